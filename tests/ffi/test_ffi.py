"""Foreign functions: a library built with gcc, called between kernels, in loops, under vmap; attributes, aliases, errors."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import export, ffi
from fuser.errors import JaxRuntimeError, UnsupportedError
from fuser.runtime.core import native

pytestmark = pytest.mark.skipif(native is None, reason="needs the native core")

SOURCE = r"""
#include <fuser/ffi.h>

static int64_t calls;

int scale(fuser_ffi_call *call) {
    const fuser_ffi_buffer *x = &call->arguments[0];
    const fuser_ffi_attribute *offsets = fuser_ffi_find(call, "offsets");
    float by = (float)fuser_ffi_double(call, "by", 1), plus = (float)fuser_ffi_int(call, "plus", 0);
    if (x->dtype != FUSER_FLOAT32 || x->rank != call->results[0].rank)
        return fuser_ffi_fail(call, "it takes float32, got dtype %d of rank %d", x->dtype, x->rank);
    if (offsets != NULL)
        for (int64_t k = 0; k < offsets->count; k++)
            plus += (float)((const int64_t *)offsets->data)[k];
    plus += (float)strlen(fuser_ffi_text(call, "label", ""));
    for (int64_t k = 0; k < fuser_ffi_elements(x); k++)
        ((float *)call->results[0].data)[k] = by * ((const float *)x->data)[k] + plus;
    return 0;
}

int sum_and_shape(fuser_ffi_call *call) {
    const fuser_ffi_buffer *x = &call->arguments[0];
    float total = 0;
    for (int64_t k = 0; k < fuser_ffi_elements(x); k++)
        total += ((const float *)x->data)[k];
    *(float *)call->results[0].data = total;
    for (int32_t d = 0; d < x->rank; d++)
        ((int32_t *)call->results[1].data)[d] = (int32_t)x->dims[d];
    return 0;
}

int count(fuser_ffi_call *call) {
    calls++;
    if (call->result_count)
        *(int64_t *)call->results[0].data = calls;
    return 0;
}

int in_place(fuser_ffi_call *call) {
    if (call->arguments[0].data != call->results[0].data)
        return 2;
    ((float *)call->results[0].data)[0] += 100;
    return 0;
}

int64_t counted(void) { return calls; }
"""

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("ffi")
    (folder / "own.c").write_text(SOURCE)
    built = folder / "own.so"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-std=c11", "-shared", "-fPIC", "-I", ffi.include_dir()]
    subprocess.run([*command, "-o", str(built), str(folder / "own.c")], check=True)
    loaded = ctypes.CDLL(str(built))
    for name in ("scale", "sum_and_shape", "count", "in_place"):
        ffi.register_ffi_target(f"test_{name}", ffi.pycapsule(getattr(loaded, name)))
    loaded.counted.restype = ctypes.c_int64
    return loaded


def like(x: Any) -> Any:
    return fuser.ShapeDtypeStruct(x.shape, x.dtype)


def scale(x: Any, **attributes: Any) -> Any:
    return ffi.ffi_call("test_scale", like(x), vmap_method="sequential")(x, **attributes)


def test_the_header_is_c_and_cpp() -> None:
    header = pathlib.Path(ffi.include_dir()) / "fuser" / "ffi.h"
    for language in ("c", "c++"):
        command = ["gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language, str(header)]
        subprocess.run(command, check=True)


def test_calls_stand_between_kernels(library: Any) -> None:
    program = fuser.jit(lambda x: fnp.sin(scale(fnp.exp(x) + 1, by=2.0, plus=3)) * 2)
    expected = np.sin((np.exp(X) + 1) * 2 + 3) * 2
    np.testing.assert_allclose(program(X), expected, 1e-5)
    assert [source.language for source in program.lower(X).sources] == [
        "c"
    ] * 3  # kernel, call, kernel: no Python between
    np.testing.assert_allclose(scale(X, by=2.0), X * 2)  # alone, at once
    with fuser.config.using(backend="reference"):
        np.testing.assert_allclose(fuser.jit(lambda x: scale(x, by=2.0))(X), X * 2)


def test_attributes_are_numbers_texts_and_arrays(library: Any) -> None:
    found = fuser.jit(lambda x: scale(x, by=np.float32(0.5), offsets=np.array([10, 20]), label="four", plus=True))(X)
    np.testing.assert_allclose(found, X * 0.5 + 35)
    with pytest.raises(TypeError, match="attribute 'by' of a foreign function is a dict"):
        scale(X, by={})


def test_several_results(library: Any) -> None:
    declared = (fuser.ShapeDtypeStruct((), np.float32), fuser.ShapeDtypeStruct((2,), np.int32))
    total, shape = fuser.jit(lambda x: ffi.ffi_call("test_sum_and_shape", declared)(x * 2))(X)
    assert float(total) == 30 and shape.tolist() == [2, 3]
    assert float(fuser.jit(lambda x: ffi.ffi_call("test_sum_and_shape", declared)(x)[0])(X)) == 15


def test_loops_call_without_python(library: Any) -> None:
    def body(carry: Any, row: Any) -> Any:
        carry = scale(carry + row, by=0.5)
        return carry, carry.sum()

    found, sums = fuser.jit(lambda x: fuser.lax.scan(body, fnp.zeros(3), x))(X)
    first = X[0] / 2
    np.testing.assert_allclose(found, (first + X[1]) / 2)
    np.testing.assert_allclose(sums, [first.sum(), ((first + X[1]) / 2).sum()])


def test_vmap_methods(library: Any) -> None:
    np.testing.assert_allclose(fuser.vmap(lambda x: scale(x, by=3.0))(X), X * 3)

    def total(x: Any, y: Any, method: str | None) -> Any:
        declared = (fuser.ShapeDtypeStruct((), np.float32), fuser.ShapeDtypeStruct((1,), np.int32))
        return ffi.ffi_call("test_sum_and_shape", declared, vmap_method=method)(x, y)

    for method, extent in (("expand_dims", 2), ("broadcast_all", 2), ("legacy_vectorized", 2)):
        scaled = lambda x, method=method: ffi.ffi_call("test_scale", like(x), vmap_method=method)(x, by=2.0)
        np.testing.assert_allclose(fuser.jit(fuser.vmap(scaled))(X), X * extent)
    with pytest.raises(NotImplementedError, match="vmap is only supported for the ffi_call primitive"):
        fuser.vmap(lambda x: total(x, x, None))(X)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        fuser.grad(lambda x: scale(x).sum())(X)


def test_effects_happen_once_each_in_order(library: Any) -> None:
    noted = ffi.ffi_call("test_count", (), has_side_effect=True)
    before = library.counted()

    @fuser.jit
    def program(x: Any) -> Any:
        noted()
        fuser.lax.fori_loop(0, 3, lambda n, c: (noted(), c)[1], x)
        return x + 1

    program(X)
    program(X)
    assert library.counted() - before == 8


def test_arguments_in_the_memory_of_results(library: Any) -> None:
    call = ffi.ffi_call("test_in_place", like(X), input_output_aliases={0: 0})
    x = fnp.asarray(X)
    found = fuser.jit(lambda x: call(x))(x)
    assert found[0, 0] == 100 and x[0, 0] == 0
    for aliases, words in (({1: 0}, "input index 1 outside"), ({0: 1}, "output index 1 outside")):
        with pytest.raises(ValueError, match=words):
            ffi.ffi_call("test_in_place", like(X), input_output_aliases=aliases)(X)


def test_failures_are_errors(library: Any) -> None:
    with pytest.raises(
        JaxRuntimeError, match="the foreign function test_scale failed: it takes float32, got dtype 4 of rank 1"
    ):
        fuser.jit(lambda x: scale(x))(np.arange(3, dtype=np.int32))
    with pytest.raises(JaxRuntimeError, match="test_in_place failed: it gives no reason"):
        ffi.ffi_call("test_in_place", like(X))(X)
    with pytest.raises(JaxRuntimeError, match="it takes float32"):
        fuser.jit(lambda x: fuser.lax.scan(lambda c, r: (scale(c) + r, None), x[0], x)[0])(X.astype(np.int32))
    with pytest.raises(UnsupportedError, match="no foreign function is registered as 'nobody'"):
        fuser.jit(lambda x: ffi.ffi_call("nobody", like(x))(x))(X)
    with pytest.raises(ValueError, match="registered as 'test_scale' already"):
        ffi.register_ffi_target("test_scale", ffi.pycapsule(library.count))
    with pytest.raises(TypeError, match="a foreign function is a PyCapsule"):
        ffi.register_ffi_target("other", lambda call: 0)
    with pytest.raises(UnsupportedError, match="called on the CPU"):
        ffi.register_ffi_target("other", ffi.pycapsule(library.count), platform="CUDA")
    with pytest.raises(UnsupportedError, match="row-major"):
        ffi.ffi_call("test_scale", like(X), input_layouts=[(1, 0)])(X)
    with pytest.raises(ValueError, match="vmap_method must be on of the allowed methods"):
        ffi.ffi_call("test_scale", like(X), vmap_method="none")


def test_saved_functions_call_what_is_allowed(library: Any) -> None:
    function = fuser.jit(lambda x: scale(x, by=2.0, label="ab"))
    with pytest.raises(ValueError, match=r"Cannot serialize code with custom calls whose targets .*: test_scale"):
        export.export(function)(X)
    allowed = [export.DisabledSafetyCheck.custom_call("test_scale")]
    loaded = export.deserialize(export.export(function, disabled_checks=allowed)(X).serialize())
    np.testing.assert_allclose(loaded.call(X), X * 2 + 2)
