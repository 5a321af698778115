"""Fourier transforms in native code: every kind along one and several dimensions, in loops and on several threads, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.partition.group import Kind
from fuser.runtime.core import native

pytestmark = pytest.mark.skipif(native is None, reason="needs the native core")
SHAPES = (
    ((7,), 1),
    ((2, 3, 4), 2),
    ((3, 5, 3), 3),
    ((300, 256), 1),
    ((3, 64, 600), 2),
)  # the last are for several threads
# Lengths of the vectorised transform: each radix, one row, rows side by side with some left over, columns in whole blocks and in part.
VECTORS = (
    ((1, 120), 1),
    ((19, 128), 1),
    ((1, 486), 1),
    ((3, 2000), 1),
    ((1, 1 << 15), 1),
    ((1, 16875), 1),
    ((2, 320, 72), 2),
    ((1, 64, 270), 2),
    ((2, 60, 64, 96), 3),
)


def _run(name: str, *arrays: Any, count: int) -> Any:
    axes = tuple(range(-count, 0))
    return fuser.jit(lambda *xs: [getattr(fnp.fft, name)(x, axes=axes) for x in xs])(*arrays)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transforms_agree_with_scipy(name: str, wide: bool) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 3):
        arrays = [rng.normal(size=shape) for shape, of in (*SHAPES, *VECTORS) if of == count]
        if name != "rfftn":
            arrays = [a + 1j * rng.normal(size=a.shape) for a in arrays]
        kind = ("float64" if wide else "float32") if name == "rfftn" else "complex128" if wide else "complex64"
        given = [a.astype(kind) for a in arrays]
        with fuser.enable_x64(wide):
            found = _run(name, *given, count=count)
        for value, array in zip(found, given, strict=True):
            wanted = getattr(scipy.fft, name)(array, axes=tuple(range(-count, 0)))
            assert value.dtype == wanted.dtype
            scale = np.abs(wanted).max()
            np.testing.assert_allclose(np.asarray(value) / scale, wanted / scale, atol=1e-14 if wide else 2e-6)


def test_a_loop_of_transforms_calls_no_python() -> None:
    def filtered(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, c: fnp.fft.irfft(fnp.fft.rfft(c) * 0.9, 15), x)

    x = np.arange(15, dtype=np.float32)
    f = fuser.jit(filtered, backend="c")
    [loop] = [g for g in f.lower(x).plan.groups if g.kind is Kind.CONTROL]
    assert not loop.reason and not any(g.reason for g in loop.inner)
    np.testing.assert_allclose(np.asarray(f(x)), x * 0.9**5, rtol=1e-5, atol=1e-5)
    assert fuser.jit(fnp.fft.fft)(np.zeros((0, 3), np.complex64)).shape == (0, 3)


def test_a_row_does_not_depend_on_the_number_of_threads() -> None:
    x = np.random.default_rng(1).normal(size=(1, 1 << 16)).astype(np.float32)
    before, found = fuser.config.threads, []
    try:
        for threads in (1, 2):
            fuser.config.update("threads", threads)
            found.append(np.asarray(fuser.jit(lambda v: fnp.fft.rfft(v))(x)))
    finally:
        fuser.config.update("threads", before)
    np.testing.assert_array_equal(*found)
