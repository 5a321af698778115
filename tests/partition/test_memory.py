"""What a training step keeps in memory: which values of the forward pass, for how long, in which order kernels run."""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.partition.buffers import temporary_bytes
from fuser.partition.group import Kind, Plan

F32 = np.float32
RNG = np.random.default_rng(0)
ROWS, WIDTH, HIDDEN = 512, 128, 512
LAYER = 4 * ROWS * HIDDEN  # bytes of a hidden layer's values


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32) * F32(0.1)


def plan_of(f: Any, *args: Any) -> Plan:
    return fuser.jit(f).lower(*args).plan


def alive(plan: Plan) -> list[int]:
    """Bytes of values and results that are needed at each step."""
    return [sum(s.aval.nbytes for s in plan.slots if 0 <= s.start <= n <= s.end) for n, _ in enumerate(plan.groups)]


def hidden(plan: Plan, group: int) -> int:
    """How many arrays as large as a hidden layer a kernel writes."""
    return sum(v.aval.shape == (ROWS, HIDDEN) for v in plan.groups[group].graph.outvars)


def close(results: Any, expected: Any, tolerance: float) -> bool:
    """Whether results differ by no more than a share of the largest magnitude of each array."""
    pairs = zip(fuser.tree.leaves(results), fuser.tree.leaves(expected), strict=True)
    return all(np.abs(np.asarray(a) - b).max() <= tolerance * np.abs(b).max() for a, b in pairs)


def loss(parameters: list[np.ndarray], x: np.ndarray, activation: Any = fuser.nn.gelu) -> Any:
    for first, second in zip(parameters[::2], parameters[1::2], strict=True):
        x = x + activation(x @ first) @ second
    return fnp.sum(x * x)


def test_an_activations_gradient_is_made_of_what_the_product_wrote() -> None:
    """A product's epilogue hands on its result, the activation, and at most the function that is dear; who needs factors of the
    derivative computes them."""
    args = [normal(WIDTH, HIDDEN), normal(HIDDEN, WIDTH)], normal(ROWS, WIDTH)
    for activation in (fuser.nn.gelu, fuser.nn.silu, lambda x: x * x * fnp.tanh(x)):
        step = fuser.value_and_grad(lambda p, x, activation=activation: loss(p, x, activation))
        plan = plan_of(step, *args)
        assert plan.groups[0].kind is Kind.CONTRACTION
        assert hidden(plan, 0) <= 3
        results = fuser.jit(step)(*args)
        with config.using(fuel=10**6):
            assert hidden(plan_of(step, *args), 0) >= hidden(plan, 0) + (activation is fuser.nn.gelu)
            expected = fuser.jit(step)(*args)
        with config.using(backend="reference"):
            reference = fuser.jit(step)(*args)
        assert close(results, expected, 1e-6)
        assert close(results, reference, 1e-5)


def test_a_softmax_keeps_its_result_alone_for_its_gradient() -> None:
    def f(x, w):
        return fnp.sum((fuser.nn.softmax(x @ w) @ w.T) ** 2)

    plan = plan_of(fuser.grad(f), normal(ROWS, WIDTH), normal(WIDTH, HIDDEN))
    forward = next(n for n, g in enumerate(plan.groups) if "exp" in g.ops)
    assert hidden(plan, forward) == 1


def test_gradients_are_used_up_as_soon_as_they_are_known() -> None:
    """Updates read what the forward pass kept: each frees it, so that the backward pass needs less and less memory."""

    def step(parameters, x):
        gradient = fuser.grad(loss)(parameters, x)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    layers = 6
    parameters = [w for _ in range(layers) for w in (normal(WIDTH, HIDDEN), normal(HIDDEN, WIDTH))]
    plan = plan_of(step, parameters, normal(ROWS, WIDTH))
    bytes_alive = alive(plan)
    top = bytes_alive.index(max(bytes_alive))
    updates = [n for n, g in enumerate(plan.groups) if any(v in plan.outputs for v in g.graph.outvars)]
    assert len(updates) == 2 * layers
    assert (
        bytes_alive[top] < (2 * layers + 3) * LAYER + layers * LAYER
    )  # two hidden arrays a layer, and two of its width
    middle = next(n for n in range(top, len(plan.groups)) if sum(u <= n for u in updates) == layers)
    assert middle < len(plan.groups) - layers  # half of the updates are done when other steps still wait
    assert temporary_bytes(plan) <= max(bytes_alive)
    args = parameters, normal(ROWS, WIDTH)
    with config.using(backend="reference"):
        expected = fuser.jit(step)(*args)
    assert close(fuser.jit(step)(*args), expected, 1e-5)


def test_callbacks_keep_their_order() -> None:
    """Where kernels are put in another order, what can be seen from outside stays in the program's."""
    seen: list[int] = []

    def step(parameters, x):
        gradient = fuser.grad(loss)(parameters, x)
        for n, g in enumerate(gradient):
            fuser.debug.callback(lambda total, n=n: seen.append(n), fnp.sum(g), ordered=True)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    parameters = [w for _ in range(6) for w in (normal(WIDTH, HIDDEN), normal(HIDDEN, WIDTH))]
    fuser.jit(step)(parameters, normal(ROWS, WIDTH))
    fuser.effects_barrier()
    assert seen == list(range(12))
