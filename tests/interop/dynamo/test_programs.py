"""Whole programs of PyTorch users: optimizers, tied weights, derivatives of derivatives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fuser.torch  # noqa: E402, F401
from tests.interop.dynamo.agreement import agree  # noqa: E402

F, nn = torch.nn.functional, torch.nn


class Tied(nn.Module):
    """Scores of words by the table that embeds them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner, self.out = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens: Any) -> Any:
        return self.out(torch.relu(self.inner(self.words(tokens))))


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, torch.tensor(1e-3), weight_decay=0.1, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_training_with_a_compiled_optimizer(name: str) -> None:
    torch.manual_seed(0)
    model, tokens = Tied(), torch.randint(0, 11, (3, 5))

    def trained(model: Any, compiled: Callable[..., Any]) -> list[Any]:
        optimizer = OPTIMIZERS[name](model.parameters())
        forward, update = compiled(model), compiled(lambda: optimizer.step())
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(forward(tokens).flatten(0, 1), tokens.flatten()).backward()
            update()
        return list(model.parameters())

    wanted = trained(copy.deepcopy(model), lambda f: f)
    found = trained(model, lambda f: torch.compile(f, backend="fuser"))
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6)


def test_derivatives_inside_of_a_compiled_function(whole: None) -> None:
    """The residual of u_t = u_xx / 10 at each point, by forward and reverse mode."""
    torch.manual_seed(0)
    w, v = torch.randn(2, 8, requires_grad=True), torch.randn(8, requires_grad=True)

    def loss(points: Any, w: Any, v: Any) -> Any:
        u = lambda p: torch.tanh(p @ w) @ v
        residual = lambda p: torch.func.grad(u)(p)[1] - 0.1 * torch.func.hessian(u)(p)[0, 0]
        return torch.func.vmap(residual)(points).square().mean()

    agree(loss, torch.rand(6, 2), w, v)


def test_gradients_of_a_compiled_function_are_not_differentiated_again() -> None:
    x = torch.randn(4, requires_grad=True)
    [slope] = torch.autograd.grad(torch.compile(lambda x: x.sin().sum(), backend="fuser")(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.sum().backward()
