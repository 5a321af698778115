"""torch.compile(backend="fuser") against eager torch: results, gradients, strides, random numbers, what torch runs between."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn

import fuser.torch  # noqa: E402
from fuser.backends.base import HOST  # noqa: E402
from fuser.interop.dynamo import backend  # noqa: E402
from fuser.interop.dynamo.divide import divided  # noqa: E402
from fuser.interop.dynamo.layout import View, layout_of  # noqa: E402
from fuser.interop.dynamo.program import Program  # noqa: E402
from fuser.runtime.array import from_torch, numpy_dtype  # noqa: E402
from tests.interop.dynamo.agreement import agree  # noqa: E402


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.skip = nn.Conv2d(4, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Conv2d(4, 8, 1, 2)

    def forward(self, x: Any) -> Any:
        return F.max_pool2d(F.relu(self.norm(self.conv(x)) + self.skip(x)), 2)


class Gated(nn.Module):
    """A depthwise convolution, gated by means of its features."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.gate = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 8, 1)

    def forward(self, x: Any) -> Any:
        y = F.hardswish(self.depth(x))
        return y * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))


class Block(nn.Module):
    """A decoder block: RMS norm, rotary attention, gated linear units, dropout, over embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scale, self.out = nn.Embedding(11, 16), nn.Parameter(torch.ones(16)), nn.Linear(16, 11)
        self.qkv, self.gate, self.norm = nn.Linear(16, 48), nn.Linear(16, 32), nn.LayerNorm(16)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        b, t, d = x.shape
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        q, k, v = self.qkv(y).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        angles = torch.arange(t)[:, None] * (1.0 / 10 ** (torch.arange(4) / 4))
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        q, k = (p * cos + torch.cat((-p[..., 4:], p[..., :4]), -1) * sin for p in (q, k))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(attention.transpose(1, 2).reshape(b, t, d), 0.25, self.training)
        a, g = self.gate(self.norm(x)).chunk(2, -1)
        return self.out(x + F.silu(a) * F.gelu(g))


def test_a_residual_block_trains_and_infers() -> None:
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(2, 4, 8, 8, requires_grad=True)
    agree(model, x, tolerance=1e-4)
    with torch.no_grad():
        agree(Gated(), torch.randn(2, 8, 4, 4), gradients=False)


def test_a_decoder_block_trains_with_the_same_dropout_and_infers_in_few_programs(programs: list[Program]) -> None:
    torch.manual_seed(0)
    model, tokens = Block(), torch.randint(0, 11, (2, 6))
    agree(model, tokens, tolerance=1e-4)
    programs.clear()
    with torch.no_grad():
        agree(model.eval(), tokens, gradients=False)
    assert len(programs) <= 2  # before the angles' floats, which torch makes, and after
    with pytest.raises(IndexError, match=r"embedding: index out of range in a dimension of 11"), torch.no_grad():
        torch.compile(model, backend="fuser")(tokens + 20)


class Pools(nn.Module):
    """Windows that overlap, that reach beyond the input, of uneven sizes; convolutions that spread."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, dilation=2, groups=2)
        self.line = nn.ConvTranspose1d(4, 3, 4, 3)

    def forward(self, x: Any) -> Any:
        y = self.up(x)
        return (
            F.max_pool2d(x, 3, 2, 1), F.max_pool2d(y, (2, 3), ceil_mode=True, return_indices=True)[1], F.max_pool2d(x.round(), 3, 1, dilation=2),
            F.avg_pool2d(y, 3, 2, 1, ceil_mode=True), F.avg_pool2d(y, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, divisor_override=3),
            F.adaptive_avg_pool2d(x, (3, 4)), F.max_pool1d(x.flatten(2), 5), F.avg_pool3d(x, 2), self.line(x[0].flatten(1)), y,
        )  # fmt: skip


def test_pooling_and_transposed_convolutions(whole: None) -> None:
    torch.manual_seed(0)
    agree(Pools(), torch.randn(2, 4, 9, 8, requires_grad=True), tolerance=5e-5)


def test_attention_and_its_gradients(whole: None) -> None:
    def attend(q: Any, k: Any, v: Any, m: Any, b: Any) -> Any:
        return (
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k[:, :, :4], v[:, :, :4], m),
            F.scaled_dot_product_attention(q, k, v, b, scale=0.3),
        )

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 5, 4) > 0.4
    mask[0, 0, 2] = False
    agree(attend, q, k, v, mask, torch.randn(5, 5))
    with torch.no_grad():
        halves = (x.bfloat16() for x in (q, k, v))
        agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *halves, gradients=False, tolerance=2e-2)


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import fuser",
        "import fuser.torch",
        "import fuser.interop.dynamo.backend",
        "import torch; torch.compile(abs, backend='fuser')",
    ],
)
def test_torch_finds_the_backend_by_itself(first: str) -> None:
    """In a process of its own: here it has been imported."""
    program = f"""{first}
import torch
print(torch.compile(lambda x: x * 2 + 1, backend="fuser")(torch.ones(3)).tolist())
import fuser.torch
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout == "[3.0, 3.0, 3.0]\n", found.stderr


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("statistics", [torch.bfloat16, torch.float32])
def test_batch_norm_of_16_bit_numbers_updates_its_statistics(statistics: torch.dtype, train: bool) -> None:
    torch.manual_seed(0)
    model = nn.BatchNorm2d(6, dtype=statistics).train(train)
    for values in (model.weight, model.bias, model.running_mean):
        nn.init.normal_(values)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x, weights = torch.randn(8, 6, 5, 5).bfloat16(), torch.randn(8, 6, 5, 5)

    def run(called: Any) -> list[Any]:
        model.load_state_dict(state)
        model.zero_grad()
        given = x.clone().requires_grad_()
        found = called(given)
        (torch.sin(found.float()) * weights).sum().backward()
        kept = (model.running_mean, model.running_var, model.weight.grad, model.bias.grad)
        return [found.detach(), given.grad, *(v.clone() for v in kept), model.num_batches_tracked.clone()]

    wanted, found = run(model), run(torch.compile(model, backend="fuser"))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.stride() == other.stride()
        assert (
            one - other
        ).abs().max() <= 2e-2 * other.abs().max()  # of the largest: elements that cancel are rounding alone
    assert torch.equal(found[3], state["running_var"]) != train


def test_elementwise_operations_have_torchs_dtypes_and_rules() -> None:
    def many(x: Any, n: Any, h: Any) -> Any:
        mixed = x * n + h - 0.1 * h
        return (
            mixed, h * 0.1 + 1, n + 1.5, n // 2, n % 3, n.sum(), x.amax(-1), x > n, (n > 0) & (x < 1), x.round(), x.sign(), x**3, x**0.5,
            torch.where(x > 0, n, x), x.clamp(-1, 1), torch.maximum(x, h), x.argmax(0), x.std(0), x.to(torch.int32), x.log_softmax(-1),
            n.float().cumsum(0), torch.full_like(x, 2), x.isnan(), n.any(), x.transpose(0, 1) * 2, torch.stack([x, x]).mean(0),
        )  # fmt: skip

    x = torch.tensor([[1.0, -0.0, float("nan"), float("inf")], [-2.5, 0.5, 1.5, -3.0]])
    n, h = torch.arange(-3, 5).reshape(2, 4), torch.linspace(-1, 3, 8).reshape(2, 4).to(torch.bfloat16)
    agree(many, x, n, h, gradients=False)


def test_scatters_and_gathers_add_up_in_gradients() -> None:
    def picked(x: Any, i: Any) -> Any:
        return (
            x[i],
            x.gather(0, i[:, None].expand(-1, 3)) * 2,
            x.index_select(1, i.clamp(0, 1)),
            F.pad(x, (1, 2)),
            x[1:, ::2].flip(0),
        )

    agree(picked, torch.randn(4, 3, requires_grad=True), torch.tensor([0, -1 + 4, 1, 1]))


def test_arguments_and_views_are_handed_on_without_copies() -> None:
    def through(x: Any, y: Any) -> Any:
        y.add_(1)
        return x, x.t(), x + 0, (x + 0)[:1]

    x, y = torch.randn(3, 4), torch.zeros(3)
    a, b, c, d = torch.compile(through, backend="fuser")(x, y)
    assert a.data_ptr() == x.data_ptr() == b.data_ptr() and b.stride() == (1, 4)
    c.fill_(5)
    assert x.ne(5).all() and y.eq(1).all() and d.eq(x[:1]).all()


def test_views_of_results_are_made_at_once(whole: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []
    monkeypatch.setattr(backend, "divided", lambda *given: graphs.append(divided(*given)) or graphs[-1])

    def viewed(x: Any, w: Any) -> Any:
        h = torch.tanh(x @ w)
        doubled = h * 2
        return h.reshape(2, 3, 6).transpose(0, 1), doubled.t(), h.square()[1:, ::2], h.sum(0).expand(2, 6)

    torch.manual_seed(0)
    agree(viewed, torch.randn(6, 4, requires_grad=True), torch.randn(4, 6, requires_grad=True))
    assert len(graphs) == 2
    for node in (n for graph in graphs for n in graph.graph.nodes if n.op == "call_function"):
        assert node.target is operator.getitem or node.args[0].op == "placeholder", node.format_node()


def test_functions_are_operators_that_survive_compilation_and_export(whole: None, programs: list[Program]) -> None:
    import fuser.numpy as fnp

    @fuser.torch.operator("fuser_tests::scaled_tanh")
    def scaled(x: torch.Tensor, y: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        return fnp.tanh(x) * y * factor, fnp.argmax(x, -1)

    def own(x: Any, y: Any) -> Any:
        return torch.tanh(x) * y * 0.5, x.argmax(-1)

    def around(x: Any, y: Any) -> Any:
        found, where = scaled(x + 1, y, 0.5)
        return found * 2, where

    def results(function: Callable[..., Any]) -> list[Any]:
        inputs = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        found, where = function(*inputs)
        return [found.detach(), where, *torch.autograd.grad(found.square().sum(), inputs)]

    torch.manual_seed(0)
    x, y = torch.randn(4, 6), torch.randn(6)
    wanted = results(lambda x, y: (own(x + 1, y)[0] * 2, own(x + 1, y)[1]))
    for function in (around, torch.compile(around, backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(results(function), wanted)
    assert not programs
    torch._dynamo.reset()
    torch.testing.assert_close(results(torch.compile(around, backend="fuser", fullgraph=True)), wanted)
    assert len(programs) == 2  # forward and backward: the operator is part of the programs around it

    class Module(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return around(x, y)

    exported = torch.export.export(Module(), (x, y))
    assert "fuser_tests.scaled_tanh" in str(exported.graph)
    torch.testing.assert_close(exported.module()(x, y), (wanted[0], wanted[1]))
    torch.library.opcheck(scaled, (x, y, 0.5), test_utils=("test_schema", "test_faketensor"))


def test_new_sizes_of_a_dynamic_dimension_are_traced_without_a_new_graph() -> None:
    torch._dynamo.utils.counters.clear()
    step = torch.compile(lambda x, w: torch.softmax(x @ w, -1).reshape(-1) * x.shape[0], backend="fuser", dynamic=True)
    w = torch.randn(4, 3)
    for rows in (5, 8, 13):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(step(x, w), torch.softmax(x @ w, -1).reshape(-1) * rows)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_operators_keep_symbolic_sizes() -> None:
    import fuser.numpy as fnp

    @fuser.torch.operator("fuser_tests::differences")
    def differences(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return fnp.concatenate([x, y]).reshape(-1), fnp.sum(x[:, None] - y[None], -1)

    @fuser.torch.operator("fuser_tests::of_parity")
    def of_parity(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if int(x.shape[0]) % 2 else x[0]

    class Module(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            joined, table = differences(x * 2, y)
            return joined + 1, table.square()

    torch.manual_seed(0)
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    sizes = {"x": {0: torch.export.Dim("rows")}, "y": {0: torch.export.Dim("others")}}
    exported = torch.export.export(Module(), (x, y), dynamic_shapes=sizes).module()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(Module(), backend="fuser", dynamic=True, fullgraph=True)
    for rows, others in ((5, 7), (9, 6)):
        given = torch.randn(rows, 3), torch.randn(others, 3)
        wanted = Module()(*given)
        torch.testing.assert_close(exported(*given), wanted)
        torch.testing.assert_close(compiled(*given), wanted)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    parity = torch.compile(of_parity, backend="fuser", dynamic=True)
    for given in (x, y):  # what depends on a size is traced for it
        torch.testing.assert_close(parity(given), of_parity(given))


def test_a_number_read_from_a_tensor_within_a_graph() -> None:
    def scaled(n: Any, x: Any) -> Any:
        total = (n * 2).sum().item()
        return x.sin() * total, x.cos().sum() + 1

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(scaled, backend="fuser", fullgraph=True)
        for n in (torch.tensor([1, 2, 3]), torch.tensor([4, 4, 4])):
            x = torch.linspace(-1, 2, 5)
            torch.testing.assert_close(compiled(n, x), scaled(n, x))


def test_layouts() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    for tensor in (
        x,
        x.permute(2, 0, 1),
        x[:, :1].expand(2, 5, 4),
        x[0, 0, 0].expand(2, 2),
        x[:, ::2],
        torch.empty(0, 3),
    ):
        layout = layout_of(tensor.shape, tensor.stride())
        assert torch.equal(layout.tensor(layout.memory(tensor)), tensor)
    assert layout_of((2, 3), (1, 2)).memory(x.reshape(6, 4)[:2, :3].t().contiguous().t()).flags.c_contiguous


def test_options_are_refused() -> None:
    with pytest.raises(Exception, match=r'torch.compile\(backend="fuser"\) takes no options'):
        torch.compile(lambda x: x + 1, backend="fuser", options={"level": 1})(torch.ones(2))
    assert torch.equal(fuser.torch.to_torch(fuser.torch.from_torch(torch.ones(2))), torch.ones(2))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.int64, torch.complex64]
)
def test_tensors_lie_over_results(dtype: torch.dtype) -> None:
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for like in (
        x,
        x.permute(2, 0, 1),
        x[:, :1].expand(2, 5, 4),
        x[0, 0, 0].expand(2, 2),
        x[0, 0, 0],
        torch.empty(0, 3, dtype=dtype),
    ):
        layout = layout_of(like.shape, like.stride())
        dense = numpy.array(layout.memory(like))
        found = layout.writer(numpy_dtype(dtype))(dense)
        assert found.dtype == dtype and found.stride() == layout.tensor(dense).stride() and torch.equal(found, like)
        assert found.numel() == 0 or found.data_ptr() == dense.ctypes.data
    for view in (x[1:, ::2], x.flatten(), x.permute(2, 1, 0), x[:, None].expand(2, 3, 3, 4)):
        layout, dense = layout_of(x.shape, x.stride()), numpy.array(from_torch(x)._data)
        place = View(tuple(view.shape), view.stride(), view.storage_offset())
        for found in (layout.writer(numpy_dtype(dtype), place)(dense), place.of(layout.tensor(dense))):
            assert found.stride() == view.stride() and torch.equal(found, view)
            assert found.data_ptr() == dense.ctypes.data + view.storage_offset() * dense.itemsize
    fixed = numpy.array(from_torch(x)._data)
    fixed.flags.writeable = False  # a tensor may be written to, this memory not
    found = layout_of(x.shape, x.stride()).writer(numpy_dtype(dtype))(fixed)
    assert torch.equal(found, x)
    dense = numpy.ones(1000, numpy.float32)
    users = sys.getrefcount(dense)
    found = layout_of((1000,), (1,)).writer(dense.dtype)(dense)
    assert sys.getrefcount(dense) == users + 1
    view = found[1:]
    del found
    assert sys.getrefcount(dense) == users + 1 and view.sum() == 999
    del view
    assert sys.getrefcount(dense) == users


def test_tensors_are_read_where_they_lie() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    for tensor in (x, x.permute(2, 0, 1), nn.Parameter(x), x[1:], x.bfloat16(), x[:, :1]):
        layout = layout_of(tensor.shape, tensor.stride())
        read = layout.reader(numpy_dtype(tensor.dtype), HOST)
        data = read(tensor)
        assert data.ctypes.data == tensor.data_ptr() or not layout.plain or not tensor.is_contiguous()
        assert torch.equal(layout.tensor(data), tensor)
    layout = layout_of((2, 3), (3, 1))
    strided = layout.reader(numpy_dtype(torch.float32), HOST)(x[0, :2, :3])  # rows with gaps are copied
    assert strided.flags.c_contiguous and (strided == x[0, :2, :3].numpy()).all()


def test_zeros_without_memory_are_read() -> None:
    """Forward mode gives a cotangent of which all elements are zero a tensor without memory, which torch hands to the program."""

    def curved(x: Any) -> Any:
        def total(v: Any) -> Any:
            return torch.sin(weight @ v).sum()

        return torch.func.jacfwd(torch.sin)(x) + torch.func.hessian(total)(x)

    weight = torch.linspace(-1, 1, 16).reshape(4, 4)
    agree(curved, torch.linspace(0, 1, 4, requires_grad=True))
    zeros = torch._efficientzerotensor(3)
    assert fuser.torch.from_torch(zeros).tolist() == [0, 0, 0]
