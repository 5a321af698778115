"""Embedding bags, adaptive maxima, products and bits in compiled PyTorch functions against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import fuser.torch  # noqa: E402, F401
from fuser.interop.dynamo import divide  # noqa: E402
from tests.interop.dynamo.agreement import agree  # noqa: E402


def _torch_runs() -> set[str]:
    return {name.split(".")[1] for name, _ in divide._told}


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_embedding_bags(mode: str, padding: int | None) -> None:
    """The bags themselves are torch's."""
    torch.manual_seed(0)
    weight, indices = torch.randn(20, 6, requires_grad=True), torch.randint(0, 5, (15,))
    offsets = torch.tensor([0, 3, 3, 9])  # the second bag is empty
    divide._told.clear()
    agree(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=padding), weight, indices, offsets)
    agree(lambda w, i: F.embedding_bag(i, w, mode=mode, padding_idx=padding), weight, indices.reshape(3, 5))
    ends = torch.tensor([0, 3, 3, 9, 15])
    last = lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=padding, include_last_offset=True)
    agree(last, weight, indices, ends)
    assert _torch_runs() == {"_embedding_bag"}


@pytest.mark.parametrize("padding", [None, 3])
def test_gradients_of_the_weights_of_embedding_bags(padding: int | None) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(20, 6, requires_grad=True), torch.randint(0, 5, (15,))
    factors = torch.rand(15, requires_grad=True)
    divide._told.clear()
    bags = lambda w, i, o, f: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=f, padding_idx=padding)
    agree(bags, weight, indices, torch.tensor([0, 3, 3, 9]), factors)
    assert _torch_runs() == {"_embedding_bag"}


def test_adaptive_windows(whole: None) -> None:
    """Some are longer than others, and some overlap."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 9, requires_grad=True)
    agree(lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), x)
    agree(lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), x)
    agree(lambda x: F.adaptive_max_pool3d(x[None], (2, 3, 4)), x)
    agree(lambda x: F.adaptive_max_pool1d(x[0], 4), x)
    agree(lambda x: F.adaptive_avg_pool3d(x[None], (2, 3, 4)), x)


def test_products_of_a_batch_are_added(whole: None) -> None:
    torch.manual_seed(0)
    matrix, x, y = (torch.randn(*shape, requires_grad=True) for shape in ((3, 5), (2, 3, 4), (2, 4, 5)))
    agree(lambda m, x, y: torch.addbmm(m, x, y, beta=0.5, alpha=2), matrix, x, y)


def test_bits_of_elements(whole: None) -> None:
    def bits(x: Any, n: Any) -> Any:
        cut = ((x * 2).view(torch.int32) & 0x7FFF0000).view(torch.float32)
        return (
            cut + 1,
            x.view(torch.int16) + 0,
            x.view(torch.uint8) >> 1,
            n.view(torch.int64) * 2,
            n.view(torch.float32) * 1,
        )

    torch.manual_seed(0)
    agree(bits, torch.randn(3, 4), torch.randint(0, 100, (3, 8), dtype=torch.int16), gradients=False)


def test_quotients_of_inference_mode(whole: None) -> None:
    with torch.inference_mode():
        agree(lambda x, y: torch.true_divide(x, y), torch.ones(4), torch.arange(1.0, 5.0), gradients=False)
