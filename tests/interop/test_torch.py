"""torch tensors in, torch tensors out: against torch itself, for functions, methods, operators and modules."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import fuser  # noqa: E402
from fuser.errors import ConcretizationTypeError, TracerBoolConversionError, UnsupportedError  # noqa: E402
from fuser.interop import accelerate  # noqa: E402
from fuser.partition.group import Kind  # noqa: E402

OUT = ', or run the function in torch with fuser.accelerate(f, fallback="warn")'
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-11, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def agree(function: Callable[..., Any], *args: Any, backend: str = "reference", **kwargs: Any) -> Any:
    """Assert that the accelerated function gives what torch gives: values, dtypes, shapes, containers."""
    wanted = function(*args, **kwargs)
    found = accelerate(function, backend=backend)(*args, **kwargs)
    same(wanted, found)
    return found


def same(wanted: Any, found: Any) -> None:
    assert type(wanted) is type(found)
    if isinstance(wanted, (tuple, list)):
        assert len(wanted) == len(found)
        for w, f in zip(wanted, found):
            same(w, f)
    elif isinstance(wanted, torch.Tensor):
        tolerance = TOLERANCES.get(wanted.dtype, 0.0)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert wanted == found or abs(wanted - found) < 1e-12


torch.manual_seed(0)
X = torch.randn(4, 6)
P = torch.rand(4, 6) + 0.5

UNARY = (
    *(
        "exp",
        "exp2",
        "expm1",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "atan",
        "sigmoid",
        "erf",
        "erfc",
        "abs",
        "neg",
    ),
    *("floor", "ceil", "trunc", "round", "frac", "sign", "square", "relu", "isnan", "isinf", "isfinite", "logical_not"),
)
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma")


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name: str) -> None:
    function = getattr(torch, name)
    agree(function, X)
    agree(lambda x: getattr(x, name)(), X.double())
    if name not in ("frac",):
        agree(function, torch.arange(-3, 4))


def test_the_sign_of_nan_is_torchs() -> None:
    agree(torch.sign, torch.tensor([float("nan"), -0.0, -2.0, float("inf")]))


@pytest.mark.parametrize("name", POSITIVE)
def test_functions_of_positive_numbers(name: str) -> None:
    agree(getattr(torch, name), P)
    agree(getattr(torch, name), P.double())


@pytest.mark.parametrize(
    "name",
    (
        "relu",
        "gelu",
        "silu",
        "softplus",
        "elu",
        "leaky_relu",
        "mish",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "relu6",
        "logsigmoid",
    ),
)
def test_activations(name: str) -> None:
    agree(getattr(F, name), X * 3)
    agree(getattr(F, name), (X * 3).bfloat16())
    agree(lambda x: F.gelu(x, approximate="tanh"), X)


DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_promotion_is_torchs(dtype: Any) -> None:
    a = (P * 3).to(dtype)
    for other in DTYPES:
        b = (P[0] * 2).to(other)
        agree(lambda a, b: (a + b, a * b, a / b, a == b, a < b, torch.maximum(a, b)), a, b)
        agree(lambda a, b: (a + b[0], b[0] * a), a, b)
    agree(lambda a: (a + 1, a * 2.5, 2 / (a + 1), 1 + a, a > 0.5), a)
    if dtype is not torch.bool:
        agree(lambda a: (a - 1, 3 - a, a**2), a)


def test_operators_and_python_numbers() -> None:
    agree(
        lambda x, y, s: (x * s + y, s - x, x**2, 2.0**x, -x, abs(x), x // 0.7, x % 0.7, (x > 0) & (y > 1), ~(x > 0)),
        X,
        P,
        1.5,
    )
    agree(lambda a, b: (a // b, a % b, a & b, a | b, a ^ b), torch.tensor([-7, 7, 9]), torch.tensor([2, -2, 4]))
    agree(lambda x: (torch.add(x, x, alpha=2), torch.sub(x, x, alpha=3), torch.div(x, 0.3, rounding_mode="floor")), X)
    agree(
        lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), x.clamp(min=0), torch.clamp(x, -1, 1)), X, P
    )
    agree(lambda x, y: (torch.lerp(x, y, 0.3), torch.addcmul(x, x, y, value=2), x.masked_fill(x > 0, -1.0)), X, P)


def test_reductions() -> None:
    agree(
        lambda x: (x.sum(), x.sum(dim=1), x.sum(-1, keepdim=True), x.mean((0, 1)), torch.mean(x, dim=0), x.prod(1)), X
    )
    agree(lambda x: (x.max(), x.min(dim=1), torch.max(x, 0, keepdim=True), x.amax(1), x.argmax(), x.argmin(dim=1)), X)
    agree(
        lambda x: (
            x.var(),
            x.std(dim=1),
            torch.var(x, 0, correction=0),
            x.std(1, unbiased=False),
            x.norm(),
            x.norm(dim=1),
        ),
        X,
    )
    agree(lambda x: (torch.logsumexp(x, dim=1), x.cumsum(0), (x > 0).all(), (x > 0).any(dim=0), torch.max(x, x * 2)), X)
    agree(
        lambda x: (x.sum(), x.sum(dim=0), x.float().mean(), x.sum(dtype=torch.float64)), torch.arange(12).reshape(3, 4)
    )
    agree(lambda x: x.max(dim=0).values - x.min(dim=0).values, X)


def test_normalisations() -> None:
    weight, bias = torch.rand(6), torch.rand(6)
    agree(lambda x: (torch.softmax(x, -1), x.softmax(dim=0), F.log_softmax(x, dim=1), F.softmax(x.half(), dim=1)), X)
    agree(
        lambda x, w, b: (F.layer_norm(x, (6,)), F.layer_norm(x, (6,), w, b, 1e-3), F.rms_norm(x, (6,), w)),
        X,
        weight,
        bias,
    )
    agree(lambda x, y: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="sum")), X, P)


def test_movement() -> None:
    agree(
        lambda x: (
            x.reshape(-1),
            x.view(2, 12),
            x.t(),
            x.T,
            x.permute(1, 0),
            x.transpose(0, 1),
            x.flatten(),
            x.unsqueeze(1),
            x[:, None].squeeze(1),
        ),
        X,
    )
    agree(
        lambda x: (torch.cat([x, x], dim=1), torch.stack([x[0], x[1]]), x.split(2), x.chunk(4, dim=1), x.unbind(0)), X
    )
    agree(lambda x: (x[0], x[1:, ::2], x[..., -1], x[None, 2], x[[0, 2]], x[:, torch.tensor([1, 0])], x[1, 2]), X)
    agree(
        lambda x: (
            x[0].expand(3, 6),
            x[:1].expand_as(x),
            x.repeat(2, 1),
            x.flip(0),
            torch.roll(x, 1, 1),
            x.tril(),
            torch.triu(x, 1),
        ),
        X,
    )
    agree(
        lambda x, i: (x[i], torch.index_select(x, 0, i), torch.gather(x, 1, i[:, None])), X, torch.tensor([3, 0, 1, 2])
    )
    agree(
        lambda x: (
            torch.zeros_like(x),
            torch.ones_like(x),
            torch.full_like(x, 2.0),
            x.double(),
            x.to(torch.int32),
            x.half(),
            x.clone(),
        ),
        X,
    )
    agree(lambda x: (x.shape[0], x.size(1), x.dim(), x.numel(), x.dtype == torch.float32, [row.sum() for row in x]), X)


def test_products() -> None:
    w = torch.randn(6, 3)
    agree(
        lambda x, w: (x @ w, torch.matmul(x, w), torch.mm(x, w), x.matmul(w[:, 0]), torch.einsum("ij,jk->ik", x, w)),
        X,
        w,
    )
    agree(
        lambda x, w: (F.linear(x, w.t()), F.linear(x, w.t(), w[0]), torch.addmm(w[:4], x, w), torch.outer(x[0], x[1])),
        X,
        w,
    )
    agree(lambda a: torch.bmm(a, a.transpose(1, 2)), torch.randn(2, 3, 4))


def test_programs_in_c() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ v

    agree(attention, *(torch.randn(2, 5, 8) for _ in range(3)), backend="c")
    agree(lambda x: F.gelu(x) * torch.sigmoid(x) + x.mean(dim=-1, keepdim=True), X.bfloat16(), backend="c")
    agree(lambda x: (x + 1, x[1:]), X.t(), backend="c")
    plan = accelerate(lambda x: torch.softmax(x * 2, dim=-1)).lower(X).plan
    assert [group.kind for group in plan.groups] == [Kind.REDUCTION]


def test_functions_of_fuser_numpy_take_tensors() -> None:
    import fuser.numpy as fnp

    found = accelerate(lambda x: fnp.exp(x) * fnp.sum(x))(X)
    torch.testing.assert_close(found, torch.exp(X) * X.sum())


def test_modules_are_followed_to_their_parameters() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    forward, given = accelerate(lambda x: model(x)), accelerate(lambda m, x: m(x))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(forward(X), model(X))
            model[0].weight.mul_(2)
        model[3] = torch.nn.Linear(8, 3)
        torch.testing.assert_close(forward(X), model(X))
    for _ in range(2):  # a step of training, and another with its weights
        wanted = torch.autograd.grad(model(X).square().sum(), [*model.parameters()])
        for run in (lambda: forward(X), lambda: given(model, X)):
            model.zero_grad()
            run().square().sum().backward()
            torch.testing.assert_close([p.grad for p in model.parameters()], [*wanted], rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for p, g in zip(model.parameters(), wanted):
                p.sub_(g, alpha=0.01)


def test_results_share_no_memory() -> None:
    x = X.clone()
    first, second, third = accelerate(lambda x: (x, x[1:], x.reshape(-1)))(x)
    first.zero_(), second.zero_(), third.zero_()
    torch.testing.assert_close(x, X)
    whole, flat = accelerate(lambda x: (lambda y: (y, y.reshape(-1)))(x + 1))(x)
    flat.zero_()
    torch.testing.assert_close(whole, X + 1)


def test_refusals() -> None:
    cases: list[tuple[Callable[..., Any], type[Exception], str]] = [
        (lambda x: x if x.sum() > 0 else -x, TracerBoolConversionError, "a traced bool[] has no value yet, so `if` cannot read it (LINE); use torch.where, or make the argument that decides static with static_argnames"),
        (lambda x: x.sum().item(), ConcretizationTypeError, "a traced f32[] has no value yet, so Python cannot read it (LINE); keep it a tensor, or make the argument static with static_argnames"),
        (lambda x: x.add_(1), UnsupportedError, "x.add_ changes a tensor in place and cannot be traced (LINE); use x.add, which makes a new one"),
        (lambda x: x.__iadd__(1), UnsupportedError, "x += y changes a tensor in place and cannot be traced (LINE); write x = x + y"),
        (lambda x: x.__setitem__(0, 1), UnsupportedError, "x[index] = value changes a tensor in place and cannot be traced (LINE); use torch.where, or torch.cat of the parts"),
        (lambda x: x[x > 0], UnsupportedError, "x[mask] with a traced mask has a shape that depends on values and cannot be traced (LINE); use torch.where(mask, x, y)"),
        (lambda x: torch.linalg.svd(x), UnsupportedError, "torch.linalg.svd cannot be traced (LINE); use torch.compile(f, backend=\"fuser\"), which takes all of torch's functions"),
        (lambda x: x.topk(2), UnsupportedError, "torch.Tensor.topk cannot be traced (LINE); use torch.compile(f, backend=\"fuser\"), which takes all of torch's functions"),
        (lambda x: F.dropout(x), UnsupportedError, "torch.nn.functional.dropout cannot be traced (LINE); use torch.compile(f, backend=\"fuser\"), which takes all of torch's functions"),
    ]  # fmt: skip
    for function, kind, words in cases:
        with pytest.raises(kind) as caught:
            accelerate(function)(X)
        assert re.sub(r"test_torch\.py:\d+", "LINE", str(caught.value)) == words + OUT


def derivatives(function: Callable[..., Any], *leaves: Any) -> list[Any]:
    """The result, its gradients, and the gradients of the sum of their squares."""
    result = function(*leaves)
    first = torch.autograd.grad(result.square().sum(), leaves, create_graph=True)
    return [result, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]


def test_gradients_of_any_order_are_torchs() -> None:
    def function(x: Any, w: Any) -> Any:
        h = torch.tanh(x @ w)
        with torch.no_grad():
            scale = h.abs().max()
        return torch.softmax(h, -1) * scale + h.detach() * x[:, :1] + x.sum() * 0.1

    x, w = X.double().requires_grad_(), torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    accelerated = accelerate(function)
    torch.testing.assert_close(derivatives(accelerated, x, w), derivatives(function, x, w))
    assert torch.autograd.gradgradcheck(accelerate(lambda x: torch.exp(x) * x), (x[0].detach().requires_grad_(),))
    with torch.no_grad():
        assert not accelerated(x, w).requires_grad
    assert not accelerated(x.detach(), w.detach()).requires_grad
    some = accelerated(x, w.detach())
    assert torch.autograd.grad(some.sum(), x, retain_graph=True)[0].shape == x.shape
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        some.sum().backward()


def test_gradients_of_several_results_and_of_complex_numbers() -> None:
    def function(x: Any, z: Any) -> Any:
        return x * 2, (x > 0), x.argmax(1), (z * z * x[0, 0]).real, x

    def of(f: Any) -> Any:
        x, z = X.clone().requires_grad_(), torch.complex(P, P * 2).requires_grad_()
        a, b, c, d, e = f(x, z)
        (a.sum() + d.sum() + (e * e).sum()).backward()
        return a, b, c, d, e, x.grad, z.grad

    wanted, found = of(function), of(accelerate(function))
    for w, f in zip(wanted, found, strict=True):
        torch.testing.assert_close(f, w)
    assert not found[1].requires_grad and not found[2].requires_grad


def test_autocast_casts_as_torch_does() -> None:
    layer, x = torch.nn.Linear(6, 3), X.clone().requires_grad_()
    function = lambda x: torch.softmax(layer(x), -1) + x.sum()
    accelerated = accelerate(function)
    accelerated(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, found = function(x), accelerated(x)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    of = lambda y: torch.autograd.grad(y.float().square().sum(), [x, layer.weight])
    for f, w in zip(of(found), of(wanted)):
        assert f.dtype == w.dtype
        torch.testing.assert_close(f, w, rtol=5e-2, atol=5e-2)


def test_mixed_arguments() -> None:
    with pytest.raises(
        TypeError,
        match=re.escape(
            "<lambda> was called with torch tensors and NumPy arrays; pass torch.from_numpy(y) for argument y"
        ),
    ):
        accelerate(lambda x, y: x + y)(X, np.ones(6))
    both = accelerate(lambda x: x * 2)
    torch.testing.assert_close(both(X), X * 2)
    np.testing.assert_allclose(both(X.numpy()), X.numpy() * 2)
    assert len(fuser.explain(both)(X).steps) == 1


def test_importing_fuser_does_not_import_torch() -> None:
    code = "import sys, numpy, fuser; fuser.accelerate(lambda x: x + 1, backend='reference')(numpy.ones(3)); print('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


@pytest.mark.gpu
def test_tensors_on_a_gpu_stay_there() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    x = X.cuda()
    found = accelerate(lambda x: torch.softmax(x * 2, dim=-1).sum(dim=0))(x)
    assert found.is_cuda
    torch.testing.assert_close(found, torch.softmax(x * 2, dim=-1).sum(dim=0))
    same = accelerate(lambda x: np.exp(x).sum(axis=0), backend="triton")(X.numpy())
    assert type(same) is np.ndarray
    np.testing.assert_allclose(same, np.exp(X.numpy()).sum(axis=0), rtol=1e-5)


def test_tensors_and_numbers_outside_are_read_again() -> None:
    state = types.SimpleNamespace(w=torch.ones(3), k=2.0)
    bias = torch.zeros(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * state.w * state.k + bias

    accelerated, x = accelerate(function), torch.arange(3.0)
    for change in (
        lambda: state.w.mul_(3),
        lambda: setattr(state, "k", 5.0),
        lambda: bias.add_(1),
        lambda: setattr(state, "w", torch.zeros(3)),
        lambda: setattr(state, "k", 6.0),
    ):
        torch.testing.assert_close(accelerated(x), function(x))
        change()
        torch.testing.assert_close(accelerated(x), function(x))
    with pytest.raises(UnsupportedError, match=r"torch\.rand draws from a state"):
        accelerate(lambda x: x + torch.rand(3))(x)


def test_indices_out_of_bounds_raise_torchs_error() -> None:
    accelerated = accelerate(lambda x, i: torch.index_select(x, 0, i) * 2)
    torch.testing.assert_close(accelerated(torch.arange(3.0), torch.tensor([2, 0])), torch.tensor([4.0, 0.0]))
    with pytest.raises(IndexError, match="out of range"):
        accelerated(torch.arange(3.0), torch.tensor([3, 0]))
    with pytest.raises(IndexError, match="out of bounds"):
        accelerate(lambda x, i: x[i] * 2)(torch.arange(3.0), torch.tensor([0, -4]))
