"""jax.example_libraries.optimizers against JAX: the same parameters after the same steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.example_libraries.optimizers
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, compare_values, numbers

import fuser
import fuser.numpy as fnp
from fuser.example_libraries import optimizers

PARAMS = {"w": numbers(np.float32, (3, 4)), "b": np.float32(0.3)}
BOTH = ((fuser, optimizers, fnp), (jax, jax.example_libraries.optimizers, jnp))
CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("sgd", (0.1,)), ("momentum", (0.1, 0.9)), ("nesterov", (0.1, 0.9)), ("adagrad", (0.1,)), ("rmsprop", (0.1,)), ("rmsprop_momentum", (0.1,)), ("adam", (0.1,)), ("adamax", (0.1,)), ("sm3", (0.1,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_steps(name: str, args: tuple[Any, ...]) -> None:
    results = []
    for library, module, arrays in BOTH:
        init, update, get = getattr(module, name)(*args)
        step = library.jit(
            lambda k, state, u=update, g=get, m=arrays, lib=library: u(
                k, lib.tree.map(lambda v: m.sin(v) * (k + 1), g(state)), state
            )
        )
        step = step.__wrapped__ if name == "sm3" else step  # JAX's state of it cannot be traced
        state = init(library.tree.map(arrays.asarray, PARAMS))
        for k in range(3):
            state = step(k, state)
        state = module.pack_optimizer_state(module.unpack_optimizer_state(state))
        results.append(library.tree.leaves(get(state)))
    for found, expected in zip(*results):
        compare_values(np.asarray(found), np.asarray(expected), 4)


SCHEDULES: list[Any] = [
    lambda m: m.constant(0.1), lambda m: m.exponential_decay(0.1, 3, 0.9), lambda m: m.inverse_time_decay(0.1, 3, 0.9), lambda m: m.inverse_time_decay(0.1, 3, 0.9, staircase=True), lambda m: m.polynomial_decay(0.1, 4, 0.01, 2.0), lambda m: m.piecewise_constant([2, 5], [0.1, 0.2, 0.3]), lambda m: m.make_schedule(0.5),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_schedules(number: int) -> None:
    for step in (0, 3, 7):
        values = [float(SCHEDULES[number](module)(step)) for _, module, _ in BOTH]
        np.testing.assert_allclose(*values, rtol=1e-6)


def test_norms_and_errors() -> None:
    grads = {"a": numbers(np.float32, (3,)), "b": numbers(np.float32, (2, 2))}
    for bound in (0.5, 100.0):
        agree(
            lambda a, b, n=bound: tuple(fuser.tree.leaves(optimizers.clip_grads([a, b], n))),
            lambda a, b, n=bound: tuple(jax.tree.leaves(BOTH[1][1].clip_grads([a, b], n))),
            *grads.values(),
        )
    for _, module, _ in BOTH:
        with pytest.raises(ValueError):
            module.piecewise_constant([1], [1.0])
        with pytest.raises(TypeError):
            module.make_schedule([1.0])
        init, update, _ = module.sgd(0.1)
        with pytest.raises(TypeError, match="did not match the parameter tree structure"):
            update(0, {"x": 1.0}, init({"y": 1.0}))
