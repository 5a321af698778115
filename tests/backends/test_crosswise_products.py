"""Convolutions of images whose channels come first: which are computed as the transposed product, and their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)
FIRST = ("NCHW", "OIHW", "NCHW")
LAST = ("NHWC", "HWIO", "NHWC")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def convolution(numbers: tuple[str, str, str], **params: Any) -> Any:
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=numbers, **params)


def crosswise(function: Any, *args: Any) -> list[bool]:
    """For each product of the program, whether the transposed one is computed."""
    lowered = fuser.jit(function, backend="c").lower(*args)
    pairs = zip(lowered.plan.groups, lowered.sources, strict=True)
    return [bool(source.launch["sizes"][3 + 8] & 2) for group, source in pairs if group.kind is Kind.CONTRACTION]


def test_which_products_are_computed_transposed() -> None:
    same = {"window_strides": (1, 1), "padding": "SAME"}
    assert crosswise(convolution(FIRST, **same), normal(1, 16, 30, 30), normal(32, 16, 3, 3)) == [True]
    assert crosswise(convolution(LAST, **same), normal(1, 30, 30, 16), normal(3, 3, 16, 32)) == [False]
    few_pixels = normal(1, 64, 7, 7), normal(256, 64, 3, 3)
    assert crosswise(convolution(FIRST, **same), *few_pixels) == [False], "to transpose the kernels would take longer"
    half = [a.astype(np.float16) for a in (normal(1, 16, 30, 30), normal(32, 16, 3, 3))]
    assert crosswise(convolution(FIRST, **same), *half) == [False], "windows are converted, and so copied, in any case"


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "odd": ((2, 5, 29, 31), (37, 5, 3, 3), {"window_strides": (1, 1), "padding": "SAME"}),
    "few features": ((1, 12, 27, 23), (5, 12, 3, 3), {"window_strides": (1, 1), "padding": "SAME"}),
    "groups": ((1, 48, 20, 19), (48, 8, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 6}),
    "strided": ((2, 3, 63, 61), (64, 3, 7, 7), {"window_strides": (2, 2), "padding": [(3, 3), (3, 3)]}),
    "dilated": ((1, 16, 30, 33), (70, 16, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 2)}),
    "long sums": ((1, 500, 12, 18), (20, 500, 3, 3), {"window_strides": (1, 1), "padding": "SAME"}),
}


def scaled(function: Any) -> Any:
    """The function with a scale and a shift of each feature, and relu."""
    return lambda x, w, s, b: fnp.maximum(function(x, w) * s + b, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("epilogue", [False, True], ids=["alone", "epilogue"])
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_transposed_products(name: str, epilogue: bool, dtype: Any) -> None:
    shape, kernel, params = CASES[name]
    x, w = normal(*shape), normal(*kernel)
    scale, shift = normal(kernel[0], 1, 1), normal(kernel[0], 1, 1)
    plain = convolution(FIRST, **params)
    function, args = (scaled(plain), (x, w, scale, shift)) if epilogue else (plain, (x, w))
    with fuser.config.using(enable_x64=True):
        wide = [a.astype(np.float64) for a in args]
        exact = np.asarray(fuser.jit(function, backend="reference")(*wide))
        magnitudes = np.asarray(fuser.jit(plain, backend="reference")(abs(wide[0]), abs(wide[1])))
        given = [a.astype(dtype) for a in args]
        products = crosswise(function, *given)
        found = np.asarray(fuser.jit(function, backend="c")(*given))
    assert products == [True], "one product, with what follows it"
    assert found.dtype == dtype
    scaling = abs(scale) if epilogue else 1
    error = 2 * np.finfo(dtype).eps * np.sqrt(np.prod(kernel[1:])) + np.finfo(dtype).eps
    np.testing.assert_array_less(abs(found - exact), error * (magnitudes * scaling + 10))


def test_a_convolution_and_what_follows_share_a_kernel() -> None:
    """Bias, batch norm, a residual and relu after it, in both layouts."""
    for numbers, x, w, of_features in (
        (FIRST, normal(1, 16, 30, 30), normal(16, 16, 3, 3), (16, 1, 1)),
        (LAST, normal(1, 30, 30, 16), normal(3, 3, 16, 16), (16,)),
    ):
        plain = convolution(numbers, window_strides=(1, 1), padding="SAME")
        block = lambda x, w, s, b, plain=plain: fnp.maximum(plain(x, w) * s + b + x, 0)
        args = x, w, normal(*of_features), normal(*of_features)
        groups = fuser.jit(block, backend="c").lower(*args).plan.groups
        assert [group.kind for group in groups] == [Kind.ELEMENTWISE, Kind.CONTRACTION], "the padding, and the rest"
