"""`grid_sample` in compiled PyTorch functions against eager torch: values and gradients, and that torch runs nothing between."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import fuser.torch  # noqa: E402, F401
from tests.interop.dynamo.agreement import agree  # noqa: E402

PADDING = ("zeros", "border", "reflection")


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_of_images(whole: None, mode: str, corners: bool) -> None:
    """Places inside, outside, and twice as far out."""
    torch.manual_seed(0)
    x, grid = torch.randn(2, 3, 5, 7, requires_grad=True), (torch.randn(2, 4, 6, 2) * 1.5).requires_grad_()
    agree(
        lambda x, g: tuple(F.grid_sample(x, g, mode, padding, corners) for padding in PADDING), x, grid, tolerance=1e-4
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_samples_of_volumes(whole: None, mode: str) -> None:
    torch.manual_seed(0)
    x, grid = torch.randn(2, 3, 4, 5, 3, requires_grad=True), (torch.randn(2, 2, 3, 4, 3)).requires_grad_()
    agree(lambda x, g: tuple(F.grid_sample(x, g, mode, padding, False) for padding in PADDING), x, grid, tolerance=1e-4)


def test_places_on_the_border_have_no_derivative(whole: None) -> None:
    torch.manual_seed(0)
    grid = torch.tensor([[[[-1.0, -1.0], [1.0, 1.0], [0.0, 1.0], [-2.0, 0.5]]]], requires_grad=True)
    x = torch.randn(1, 2, 3, 3, requires_grad=True)
    agree(lambda x, g: tuple(F.grid_sample(x, g, "bilinear", p, True) for p in ("border", "reflection")), x, grid)


def test_only_the_grid_is_differentiated(whole: None) -> None:
    """A spatial transformer: the image is a constant, channels are last."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)

    def warped(x: Any, theta: Any) -> Any:
        return F.grid_sample(x, F.affine_grid(theta, [2, 3, 4, 5], align_corners=False), align_corners=False)

    agree(warped, x, torch.randn(2, 2, 3, requires_grad=True), tolerance=1e-4)
