"""Resampling in compiled PyTorch functions against eager torch: values, gradients, and that no torch operator runs between."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import fuser.torch  # noqa: E402, F401
from fuser.interop.dynamo import divide  # noqa: E402
from fuser.interop.dynamo.preserved import operators  # noqa: E402
from tests.interop.dynamo.agreement import agree  # noqa: E402

SIZES = ({"size": (5, 4)}, {"size": (15, 20)}, {"scale_factor": 2}, {"scale_factor": (1.7, 2.3)}, {"size": (1, 1)})


def _all(x: Any, ways: Any) -> tuple[Any, ...]:
    return tuple(F.interpolate(x, **way) for way in ways)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_elements(whole: None, mode: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 9, requires_grad=True)
    agree(lambda x: _all(x, [{**size, "mode": mode} for size in SIZES]), x)
    agree(lambda x: F.interpolate(x[0], scale_factor=2.5, mode=mode), x)
    agree(lambda x: F.interpolate(x[None], size=(4, 14, 5), mode=mode), x)
    whole_numbers = torch.arange(24, dtype=torch.uint8).reshape(1, 2, 3, 4)
    agree(lambda x: F.interpolate(x, scale_factor=2, mode=mode), whole_numbers, gradients=False)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_weighted_elements_of_images(whole: None, mode: str, antialias: bool, corners: bool) -> None:
    """Values of about 1 and up to 36 taps; scales that do not divide have torch's float32 positions, off by 1e-6 of an element."""
    torch.manual_seed(0)
    ways = [{**size, "mode": mode, "antialias": antialias, "align_corners": corners} for size in SIZES]
    agree(lambda x: _all(x, ways), torch.randn(2, 3, 7, 9, requires_grad=True), tolerance=1e-4)


@pytest.mark.parametrize("corners", [False, True])
def test_weighted_elements_of_lines_and_volumes(whole: None, corners: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 9, requires_grad=True)
    agree(lambda x: F.interpolate(x[0], size=17, mode="linear", align_corners=corners), x)
    agree(lambda x: F.interpolate(x[None], size=(4, 3, 11), mode="trilinear", align_corners=corners), x, tolerance=5e-5)


def test_channels_last_and_16_bit_floats(whole: None) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 5).to(memory_format=torch.channels_last)
    agree(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x.clone().requires_grad_())
    with torch.no_grad():
        agree(
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x.bfloat16(), gradients=False, tolerance=1e-2
        )


def test_new_sizes_are_resampled_without_a_new_graph(whole: None) -> None:
    torch._dynamo.utils.counters.clear()
    double = lambda x: F.interpolate(x.sin(), scale_factor=2, mode="bilinear").square()
    compiled = torch.compile(double, backend="fuser", dynamic=True)
    for side in (6, 9, 13):
        x = torch.linspace(-1, 1, 2 * side * side).reshape(1, 2, side, side)
        torch.testing.assert_close(compiled(x), double(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_weighted_means_of_integers_run_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    divide._told.clear()  # notes come once each
    image = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8)
    with caplog.at_level(logging.INFO, "fuser"):
        agree(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image, gradients=False)
    assert "aten.upsample_bilinear2d.default runs in torch: weighted means of integers" in caplog.messages


def test_torchs_decompositions_are_as_before() -> None:
    before = {op: dict(op.py_kernels) for pair in operators() for op in pair}
    agree(lambda x: F.interpolate(x, scale_factor=2), torch.ones(1, 1, 2, 2), gradients=False)
    assert all(dict(op.py_kernels) == kernels for op, kernels in before.items())
