"""cuFFT, cuSOLVER and cuBLAS called from C: results against the eval rules, and loops with such calls as one step of the device's."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends.triton.device import library_calls
from fuser.config import config
from fuser.ir.primitive import REGISTRY
from fuser.runtime.array import Array
from fuser.runtime.core import native
from fuser.runtime.executable import KernelStep, LibraryStep
from fuser.trace.core import bind
from tests import cuda_stand_in
from tests.backends import triton_worker
from tests.gpu import library_cases

pytestmark = pytest.mark.skipif(native is None, reason="the native core is not built, or turned off")
CALLED = ("cholesky", "qr", "eigh", "svd", "lu", "geqrf", "fft", "triangular_solve")
MATRIX = (12, 12)


@pytest.fixture(params=[True, False], ids=["captured", "enqueued"])
def device(opened: cuda_stand_in.Device, request: pytest.FixtureRequest) -> Iterator[cuda_stand_in.Device]:
    """The stand-in, whose cuSOLVER a graph can hold, or whose cuSOLVER waits for the device."""
    opened.switch.solver_captures.value = int(request.param)
    library_calls.forget()
    opened.reset()
    yield opened
    opened.switch.solver_captures.value = 1
    library_calls.forget()


def placed(*arrays: Any) -> list[Array]:
    return [Array(native.device_upload(np.asarray(a))) for a in arrays]


def put(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def steps(run: Any, *arrays: Array) -> list[type]:
    return [type(s) for s in run.lower(*arrays).compile().executable.joined]


def agrees(name: str, got: Any, want: np.ndarray) -> None:
    got = np.asarray(got)
    if name in ("eigh", "svd"):  # vectors are unique but for a factor of size 1
        got, want = np.abs(got), np.abs(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    relative = 2e-3 if want.dtype.itemsize == 4 or want.dtype == np.complex64 else 1e-8
    np.testing.assert_allclose(got, want, relative, relative * max(1.0, float(np.abs(want).max(initial=0))))


def check(name: str, arrays: Any, params: dict[str, Any]) -> list[type]:
    """Compare a primitive on the device with its eval rule; gives the steps of its program."""
    primitive = REGISTRY[name]
    run = fuser.jit(functools.partial(bind, primitive, **params), backend="triton")
    args = placed(*arrays)
    for _ in range(4):  # launched, seen again, replayed
        got = run(*args)
    with np.errstate(all="ignore"):
        want = primitive.rule("eval")(*map(np.asarray, arrays), **params)
    several = primitive.multiple_results
    for x, y in zip(got if several else [got], want if several else [want], strict=True):
        agrees(name, x, np.asarray(y))
    return steps(run, *args)


@pytest.mark.parametrize("name", CALLED)
def test_samples_agree_with_the_eval_rules(device: Any, name: str) -> None:
    with config.using(enable_x64=True):
        for arrays, params in REGISTRY[name].samples():
            found = check(name, arrays, params)
            small_stack = name in ("eigh", "svd") and np.ndim(arrays[0]) > 2
            assert (LibraryStep in found) == small_stack, (name, params)


def test_programs_with_library_calls(opened: cuda_stand_in.Device) -> None:
    """Some of what `tests.gpu.every_case` runs on a GPU."""
    opened.reset()
    with config.using(enable_x64=True, backend="triton"):
        chosen = [
            c for c in library_cases.cases() if "loop" in c[0] or "float64(12, 12)" in c[0] or "complex128(3" in c[0]
        ]
        assert len(chosen) > 25
        assert {case[0]: error for case in chosen if (error := triton_worker.check(case))} == {}


def test_larger_stacks_and_shapes(device: Any) -> None:
    square = put(3, 40, 40)
    definite = square @ np.swapaxes(square, 1, 2) + 50 * np.eye(40, dtype=np.float32)
    assert set(check("cholesky", [definite], {})) == {KernelStep}
    assert set(check("lu", [square], {})) == {KernelStep}
    assert set(check("eigh", [definite], {"lower": False})) == {KernelStep}
    for shape in ((2, 50, 7), (2, 7, 50)):
        assert set(check("qr", [put(*shape)], {"full_matrices": True})) == {KernelStep}
        assert set(check("lu", [put(*shape)], {})) == {KernelStep}
    for shape, full in (((9, 5), False), ((5, 9), False), ((6, 6), True)):
        assert set(check("svd", [put(*shape)], {"full_matrices": full, "compute_uv": True})) == {KernelStep}
    values = check("svd", [put(5, 9)], {"full_matrices": False, "compute_uv": False})
    assert set(values) == {KernelStep}
    for left, lower, turned in ((True, True, False), (False, True, True), (True, False, True), (False, False, False)):
        params = {"left_side": left, "lower": lower, "transpose_a": turned, "conjugate_a": False}
        right = put(3, 40, 6, seed=1) if left else put(3, 6, 40, seed=1)
        for arrays in ((definite, right), (definite[0], right[0])):
            assert set(check("triangular_solve", arrays, {**params, "unit_diagonal": False})) == {KernelStep}


def test_what_has_no_factors_is_nan(device: Any) -> None:
    broken = put(2, 5, 5)
    broken[1, 2, 3] = np.nan
    for function in (
        lambda a: lax.linalg.qr(a, full_matrices=False),
        lax.linalg.eigh,
        lambda a: lax.linalg.svd(a, full_matrices=False),
        lambda a: lax.linalg.lu(a)[0],
    ):
        for stack in (False, True):
            arrays = broken if stack else broken[1]
            found = fuser.tree_util.tree_leaves(fuser.jit(function, backend="triton")(*placed(arrays)))
            for result in map(np.asarray, found):
                whole = result if stack else result[None]
                assert np.isnan(whole[-1]).any()
                assert not stack or not np.isnan(whole[0]).any()
    indefinite = np.array([np.eye(3), -np.eye(3)], np.float32)
    factor = np.asarray(
        fuser.jit(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), backend="triton")(*placed(indefinite))
    )
    np.testing.assert_array_equal(factor[0], np.eye(3))
    assert np.isnan(np.diag(factor[1])).all() and not np.triu(factor[1], 1).any()


def test_spectra_of_real_numbers_along_several_dimensions(device: Any) -> None:
    """Not those of real numbers: what has no part in the result counts for nothing."""
    spectrum = (put(2, 4, 6, 5) + 1j * put(2, 4, 6, 5, seed=1)).astype(np.complex64)
    for lengths in ((8,), (9,), (6, 8), (4, 6, 9)):
        axes = tuple(range(4 - len(lengths), 4))
        run = fuser.jit(lambda x, axes=axes, n=lengths: fnp.fft.irfftn(x, n, axes), backend="triton")
        arrays = placed(spectrum)
        np.testing.assert_allclose(np.asarray(run(*arrays)), np.fft.irfftn(spectrum, lengths, axes), 1e-4, 1e-5)
        assert set(steps(run, *arrays)) == {KernelStep}
        np.testing.assert_array_equal(np.asarray(arrays[0]), spectrum)


def filtered(x: Any) -> Any:
    """A loop with transforms in its body."""
    step = lambda i, c: fnp.fft.irfft(fnp.fft.rfft(c) * 0.9, c.shape[-1]) + 0.01
    return lax.fori_loop(0, 5, step, x)


def whitened(x: Any) -> Any:
    """A loop that the device ends, with a factorisation and a triangular system in its body."""

    def step(c: Any) -> Any:
        number, a = c
        factor = lax.linalg.cholesky(a @ a.T + 20 * fnp.eye(12, dtype=a.dtype), symmetrize_input=False)
        return number + 1, lax.linalg.triangular_solve(factor, a, left_side=True, lower=True)

    return lax.while_loop(lambda c: (c[0] < 4) & (c[1].sum() < 1e9), step, (0, x))


def orthogonal(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: lax.linalg.qr(c)[0] @ c * 0.1, x)


@pytest.mark.parametrize("function", [filtered, orthogonal, whitened], ids=lambda f: f.__name__)
def test_loops_call_libraries_without_python(device: Any, function: Any) -> None:
    host = put(*MATRIX)
    (x,) = placed(host)
    run = fuser.jit(function, backend="triton")
    want = fuser.tree_util.tree_leaves(fuser.jit(function, backend="c")(host))
    captured = bool(device.switch.solver_captures.value)
    decided = function is whitened
    assert (LibraryStep in steps(run, x)) == (decided and not captured)
    for _ in range(3):
        got = fuser.tree_util.tree_leaves(run(x))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 2e-3, 2e-3)
    if decided and not captured:
        return
    for _ in range(3):
        device.reset()
        run(x)
    counts = device.counts()
    assert not {"to_host", "to_device", "host_waits"} & set(counts)
    if captured or function is filtered:  # one replay
        assert counts["calls"] == counts["graphs"] == 1


def test_graphs_stand_around_a_call_that_none_can_hold(opened: cuda_stand_in.Device) -> None:
    (x,) = placed(put(*MATRIX))

    def function(x: Any) -> Any:
        x = fnp.tanh(x @ x) @ x
        return fnp.tanh(lax.linalg.qr(fnp.tanh(x) @ x)[1] @ x) @ x

    opened.switch.solver_captures.value = 0
    try:
        library_calls.forget()
        run = fuser.jit(function, backend="triton")
        assert steps(run, x) == 3 * [KernelStep]
        for _ in range(4):
            opened.reset()
            run(x)
        assert (opened.counts()["graphs"], opened.counts()["routines"]) == (2, 1)  # nobody asks for Q
    finally:
        opened.switch.solver_captures.value = 1
        library_calls.forget()


def test_without_the_libraries_torch_computes(opened: cuda_stand_in.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    host = put(*MATRIX)
    monkeypatch.setattr(library_calls, "opened", lambda name: False)
    run = fuser.jit(lambda x: lax.linalg.qr(x)[1] + fnp.fft.fft(x).real, backend="triton")
    (x,) = placed(host)
    assert LibraryStep in steps(run, x)
    want = np.linalg.qr(host, mode="complete")[1] + np.fft.fft(host).real
    np.testing.assert_allclose(np.asarray(run(x)), want, 1e-3, 1e-3)


@pytest.mark.parametrize("step_of", ["fft", "eigh"])
def test_plans_say_whether_the_device_runs_a_loop(device: Any, step_of: str) -> None:
    """Before there is a device, as the program that is linked on one does."""

    def grown(a: Any) -> Any:
        def step(c: Any) -> Any:
            found = fnp.fft.fft(c).real if step_of == "fft" else lax.linalg.eigh(c + c.T)[0]
            return c + 1 + found**2

        return lax.while_loop(lambda c: c.sum() < 1e3, step, a)

    lowered = fuser.jit(grown, backend="triton").lower(np.eye(4, dtype=np.float32))
    (loop,) = (group for group in lowered.plan.groups if group.bodies)
    on_the_device = step_of == "fft"
    assert loop.enqueued == on_the_device and bool(loop.reason) != on_the_device
    steps = lowered.compile().executable.steps
    assert any(isinstance(step, LibraryStep) for step in steps) != on_the_device
