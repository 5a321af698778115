"""Core ATen operations beyond layers: sorted values, scans, scatters, transforms, complex numbers, integers. Torch runs nothing."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn

import fuser.torch  # noqa: E402, F401
from tests.interop.dynamo.agreement import agree  # noqa: E402


def test_sorted_values_and_ranks(whole: None) -> None:
    def ranked(x: Any, n: Any) -> Any:
        return (
            *x.sort(0), *n.sort(-1, descending=True), *torch.sort(x, stable=True, dim=-1, descending=True), *x.topk(3, 0), *x.topk(2, largest=False),
            *x.kthvalue(2, -1), *x.median(1, keepdim=True), x.median(), *x.nanmedian(0), *x.max(1), *x.min(0), torch.quantile(x[:, :3], 0.3, dim=1),
            torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x[:, :3].detach(), right=True), torch.bucketize(n, torch.tensor([0, 2, 5])),
        )  # fmt: skip

    torch.manual_seed(0)
    x = torch.randn(5, 7)
    x[1, 4] = float("nan")
    agree(ranked, x.requires_grad_(), torch.randint(0, 6, (4, 9)), gradients=False)
    agree(lambda x: (*x.sort(), *x.topk(2, 0), x.median(1)[0]), torch.randn(4, 5, requires_grad=True))


def test_scans(whole: None) -> None:
    def scanned(x: Any) -> Any:
        return x.cumprod(0), x.logcumsumexp(1), *torch.cummax(x, 1), *torch.cummin(x, 0), x.cumsum(-1).flip(-1)

    torch.manual_seed(0)
    agree(scanned, torch.randn(3, 6, requires_grad=True))
    agree(scanned, torch.tensor([[1.0, float("nan"), 3.0, 3.0], [2.0, 2.0, 0.0, 0.0]]), gradients=False)


def test_scatters_and_masks(whole: None) -> None:
    def scattered(x: Any, i: Any, m: Any) -> Any:
        y = x.clone()
        y[i] = 0.0
        y[m] = 7.0
        rows = i[None, :] % 4
        return (
            y, x.scatter(1, i[:, None], 9.0), x.scatter(0, rows, x[:1, :3]), x.scatter_add(0, rows, x[:1, :3]), x.masked_scatter(m, x * 10),
            *(x.scatter_reduce(0, rows, x[:1, :3] * 2, how, include_self=own) for how in ("mean", "amax", "prod") for own in (True, False)),
            x.diagonal_scatter(torch.zeros(4)), x.diagonal(1).square(), x.unfold(1, 2, 2) * 2, x.index_fill(0, i, 2.0),
        )  # fmt: skip

    torch.manual_seed(0)
    agree(scattered, torch.randn(4, 5, requires_grad=True), torch.tensor([0, 3, 1]), torch.rand(4, 5) > 0.5)


def test_transforms_and_complex_numbers(whole: None) -> None:
    def transformed(x: Any, y: Any) -> Any:
        z = torch.complex(x, y)
        half = torch.fft.rfft(x) * torch.exp(-torch.arange(5) / 5.0)
        turned = torch.view_as_complex(torch.stack([x, y], -1)) * torch.polar(torch.ones(8), torch.arange(8.0))
        return (
            torch.fft.irfft(half, n=8), torch.fft.fft2(x, norm="ortho").abs(), torch.fft.ifft(z, dim=0).real, torch.view_as_real(half),
            torch.fft.hfft(half, 8), (z @ z.mH).abs(), torch.view_as_real(turned), z.angle(), torch.exp(z).imag, torch.fft.irfft2(half).real,
        )  # fmt: skip

    torch.manual_seed(0)
    agree(transformed, *(torch.randn(4, 8, requires_grad=True) for _ in range(2)), tolerance=5e-5)


def test_integers_and_conversions(whole: None) -> None:
    def whole_numbers(n: Any, m: Any, x: Any) -> Any:
        return (
            n // 3, n % 3, torch.fmod(n, 3), torch.div(n, 2, rounding_mode="trunc"), n << 1, n >> 1, n @ m.T, n**3, torch.gcd(n, m),
            torch.lcm(n, m), n.to(torch.uint8), x.to(torch.int32), x.long(), x.to(torch.int8), x[:1].to(torch.uint8), (n.float() * 1.7).int(),
            x // 0.7, torch.fmod(x, 0.7), torch.remainder(x, -0.7), torch.arange(0, 1, 0.1), torch.arange(3.0) * n[:, :3],
        )  # fmt: skip

    n = torch.arange(-6, 6).reshape(3, 4)
    x = torch.tensor([[1.5, -2.7, 100.2], [float("nan"), float("inf"), -1e20]])
    agree(whole_numbers, n, n.abs() + 1, x, gradients=False)


@pytest.mark.parametrize("mask", ["causal", "of all heads", "of each head", "added"])
def test_query_heads_share_key_heads(whole: None, mask: str) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, 5, 4, requires_grad=True) for heads in (6, 2, 2))
    masks = {
        "of all heads": torch.rand(2, 1, 5, 5) > 0.3,
        "of each head": torch.rand(1, 6, 1, 5) > 0.3,
        "added": torch.randn(5, 5),
    }

    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, masks.get(mask), is_causal=mask == "causal", enable_gqa=True)

    agree(attend, query, key, value)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_rows(whole: None, p: float) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(6, 4), torch.randn(7, 4)
    b[0] = a[0]  # no distance: no gradient

    def distances(a: Any, b: Any) -> Any:
        return torch.cdist(a, b, p), torch.pdist(b.detach(), p)

    agree(distances, a.requires_grad_(), b.requires_grad_())


def test_euclidean_distances_of_long_rows(whole: None) -> None:
    torch.manual_seed(0)
    agree(
        lambda a, b: torch.cdist(a, b), torch.randn(40, 4, requires_grad=True), torch.randn(2, 7, 4) + 9, tolerance=1e-4
    )


class Cached(nn.Module):
    """Attention over keys that a buffer keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.register_buffer("keys", torch.zeros(2, 4, 10, 4))
        self.register_buffer("values", torch.zeros(2, 4, 10, 4))

    def forward(self, x: Any, place: Any) -> Any:
        query, key, value = (p.unflatten(2, (4, 4)).transpose(1, 2) for p in self.project(x).chunk(3, -1))
        self.keys[:, :, place] = key
        self.values.index_copy_(2, place, value)
        seen = torch.arange(10) <= place[:, None]
        return F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=seen).transpose(1, 2).flatten(2)


def test_a_cache_of_keys_is_written_in_place(whole: None) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        agree(Cached(), torch.randn(2, 3, 16), torch.tensor([2, 3, 4]), gradients=False)


def test_dropout_of_a_permuted_tensor_draws_eagers_mask() -> None:
    agree(lambda x: F.dropout(x.transpose(0, 1) * 2, 0.4), torch.randn(6, 5, 16, requires_grad=True))
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    agree(layer, torch.randn(2, 6, 16, requires_grad=True), tolerance=1e-4)


def test_a_checkpoint_computes_again_with_the_same_dropout() -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 4))

    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return checkpoint(self.model, x, use_reentrant=False).tanh()

    agree(Again(), torch.randn(3, 4, requires_grad=True))


def test_clipped_gradients_and_an_optimisers_step(whole: None) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4)
    results = []
    for compiled in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(model: Any = model, optimiser: Any = optimiser) -> None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimiser.step()
            results.append(norm)

        run = torch.compile(step, backend="fuser") if compiled else step
        for _ in range(2):
            optimiser.zero_grad()
            model(x).square().mean().backward()
            run()
        results.extend(p.detach().clone() for p in model.parameters())
    half = len(results) // 2
    torch.testing.assert_close(results[half:], results[:half], rtol=1e-4, atol=1e-5)


def test_a_size_that_depends_on_values_stays_with_torch() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        agree(lambda x: (x * 2)[x > 0].sum() + x.cos().sum(), torch.randn(9), gradients=False)


def test_a_loss_of_rows_with_few_targets() -> None:
    torch.manual_seed(0)
    targets = torch.tensor([[0, 2, -1, 0, 0], [4, -1, 1, 2, 3]])
    agree(lambda x: F.multilabel_margin_loss(x, targets), torch.randn(2, 5, requires_grad=True))


def test_results_without_elements_have_eagers_strides(whole: None) -> None:
    agree(lambda x: (x * 2, x.exp().reshape(0, 1, 3), x.sum(0)), torch.zeros(0, 3, requires_grad=True))


def test_derivatives_of_gamma_and_slopes_of_both_means(whole: None) -> None:
    torch.manual_seed(0)
    x = (torch.rand(4, 5) + 0.5).requires_grad_()
    agree(lambda x: (torch.polygamma(2, x), torch.digamma(x), F.rrelu(x - 1, training=False)), x, tolerance=1e-4)


def test_elements_by_their_place_in_the_whole(whole: None) -> None:
    """`take` and its gradient, `put`, and arrays whose elements are all written."""
    torch.manual_seed(0)
    places = torch.tensor([[0, 7, -1], [7, 3, 7]])

    def changed(x: Any, n: Any, v: Any) -> Any:
        made = torch.empty(3, 5).copy_(x) + x.new_empty((3, 5)).copy_(x)
        ring = F.pad(x[None], (2, 1), mode="circular")  # made by `new_empty_strided`
        return torch.take(x, n), x.put(n[:1], v[:1]), x.put(n, v, accumulate=True), made * 2, ring

    agree(changed, torch.randn(3, 5, requires_grad=True), places, torch.randn(2, 3, requires_grad=True))


@pytest.mark.parametrize("dim", [0, 1])
def test_an_index_of_rows_repeated_along_columns(whole: None, dim: int) -> None:
    """As layers of graphs are written."""
    torch.manual_seed(0)
    index = torch.tensor([4, 0, 2, 2, 4, 1, 2])
    into = torch.randn(6, 5) if dim == 0 else torch.randn(5, 6)

    def scattered(x: Any, v: Any, i: Any) -> Any:
        spread = i[:, None].expand(-1, 5) if dim == 0 else i.expand(5, -1)
        ways = [(how, own) for how in ("mean", "amax", "amin", "prod", "sum") for own in (True, False)]
        reduced = [x.scatter_reduce(dim, spread, v, how, include_self=own) for how, own in ways]
        return *reduced, x.scatter_add(dim, spread, v), x.gather(dim, spread) * v

    updates = torch.randn(7, 5) if dim == 0 else torch.randn(5, 7)
    agree(scattered, into.requires_grad_(), updates.requires_grad_(), index)


def test_a_scatter_of_rows_has_an_index_a_row(whole: None, programs: list[Any]) -> None:
    torch.manual_seed(0)
    index, into, updates = torch.tensor([4, 0, 2, 2, 4, 1, 2]), torch.randn(6, 5), torch.randn(7, 5)
    spread = lambda x, v, i: x.scatter_reduce(0, i[:, None].expand(-1, 5), v, "mean", include_self=False)
    agree(spread, into, updates, index, gradients=False)
    graphs = [g.graph for p in programs for found in p.lowerings.values() for g in found.plan.groups]
    indices = [eqn.invars[1] for graph in graphs for eqn in graph.eqns if eqn.primitive.name.startswith("scatter")]
    assert [var.aval.shape[:-1] for var in indices] == [(7,)] * 3  # sums, counts, and which rows are touched


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers_divided_by_tensors(whole: None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randint(-100 if dtype.is_signed else 0, 100, (7, 5)).to(dtype)
    y = torch.randint(1, 9, (5,)).to(dtype) * (torch.tensor([1, -1, 1, -1, 1]).to(dtype) if dtype.is_signed else 1)

    def divided(x: Any, y: Any) -> Any:
        truncated = torch.div(x, y, rounding_mode="trunc")
        return x // y, x % y, torch.fmod(x, y), truncated, 100 // y, x // 7, x % 7

    agree(divided, x, y, gradients=False)
    compiled = torch.compile(lambda x, y: x // y + 1, backend="fuser")
    assert torch.equal(compiled(x, y), x // y + 1)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, y * 0)
    assert torch.equal(compiled(x, y), x // y + 1)


def test_powers_of_integers(whole: None) -> None:
    x, n = torch.tensor([2, -1, 1, 0, 3, -1, -2, 7]), torch.tensor([-1, -3, -2, 5, 40, -2, 3, 0])
    agree(lambda x, n: (x**n, (2**n), x.int() ** n.int(), x.abs().byte() ** n.abs().byte()), x, n, gradients=False)


def test_comparisons_of_different_dtypes(whole: None) -> None:
    """A number without dimensions gives way within its kind; other tensors are promoted."""
    x, n = torch.tensor([1.5, -2.0, 16777217.0]), torch.tensor([1, -2, 16777217])
    few, one = n.to(torch.int8), torch.tensor(1.1, dtype=torch.float64)
    agree(
        lambda x, n, few, one: (x < n, n >= few, few == x.bfloat16(), x > one, n > one, (n > 0) != few, one <= x.double(), n < 2.5),
        *(x, n, few, one), gradients=False,
    )  # fmt: skip
