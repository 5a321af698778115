"""Loops and branches that call Python stay native code: only the callback itself is a step of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.experimental import io_callback
from fuser.partition.group import FusionGroup, Kind, Plan
from fuser.runtime.core import native

Function = Callable[[Any], Any]
FLOAT = np.dtype("float32")
pytestmark = pytest.mark.skipif(native is None, reason="loops with callbacks run in Python without the native core")


def _host(values: Any) -> np.ndarray:
    return np.asarray(values, FLOAT)


def _like(x: Any) -> Any:
    return fuser.ShapeDtypeStruct(x.shape, FLOAT)


def _differentiable(call: Function) -> Function:
    """JAX has no derivatives of callbacks that give results, so a function brings its own."""

    @fuser.custom_jvp
    def called(x: Any) -> Any:
        return call(x)

    called.defjvp(lambda primals, tangents: (call(primals[0]), call(primals[0]) * tangents[0]))
    return called


CALLS: dict[str, Function] = {
    "pure_callback": _differentiable(lambda x: fuser.pure_callback(_host, _like(x), x, vmap_method="broadcast_all")),
    "sequential": _differentiable(lambda x: fuser.pure_callback(_host, _like(x), x, vmap_method="sequential")),
    "io_callback": _differentiable(lambda x: io_callback(_host, _like(x), x)),
    "ordered io_callback": _differentiable(lambda x: io_callback(_host, _like(x), x, ordered=True)),
    "debug.print": lambda x: (fuser.debug.print("{}", x), x)[1],
    "ordered debug.print": lambda x: (fuser.debug.print("{}", x, ordered=True), x)[1],
    "debug.callback": lambda x: (fuser.debug.callback(lambda _: None, x), x)[1],
}


def _scan(call: Function) -> Function:
    return lambda x: lax.scan(lambda c, y: (2 * call(fnp.sin(c) + y), c), x, fnp.arange(4.0))[0]


def _branch_in_scan(call: Function) -> Function:
    def step(c: Any, y: Any) -> Any:
        return lax.cond(y > 1, lambda c: 2 * call(c), lambda c: c + 1, c), None

    return lambda x: lax.scan(step, x, fnp.arange(4.0))[0]


FORMS: dict[str, Callable[[Function], Function]] = {
    "between kernels": lambda call: lambda x: 2 * call(fnp.sin(x)),
    "scan": _scan,
    "scan in a loop": lambda call: lambda x: lax.fori_loop(0, 3, lambda i, c: _scan(call)(c), x),
    "cond in a scan": _branch_in_scan,
    "while": lambda call: lambda x: lax.while_loop(lambda c: c.sum() < 50, lambda c: call(c) + 1 + abs(c), x),
    "test of a while": lambda call: lambda x: lax.while_loop(lambda c: call(c).sum() < 5, lambda c: abs(c) + 2, x),
    "cond": lambda call: lambda x: lax.cond(x.sum() > 0, lambda x: 2 * call(x), lambda x: x + 1, x),
    "switch": lambda call: lambda x: lax.switch(x.sum().astype(int), [call, lambda x: 2 * x, lambda x: call(x + 1)], x),
}


def _groups(plan: Plan) -> Iterator[FusionGroup]:
    for group in plan.groups:
        yield group
        for body in group.bodies:
            yield from _groups(body)


def _programs(name: str, form: str) -> Iterator[tuple[Function, Any]]:
    program = FORMS[form](CALLS[name])
    yield program, np.ones(5, FLOAT)
    if "ordered" not in name and not (name == "io_callback" and form in ("cond", "switch")):  # which vmap refuses
        yield fuser.vmap(program), np.ones(5, FLOAT)
    if "while" not in form:
        yield fuser.grad(lambda x: program(x).sum()), np.ones(5, FLOAT)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CALLS)
def test_only_the_callback_is_a_step_of_the_host(name: str, form: str) -> None:
    for program, x in _programs(name, form):
        groups = list(_groups(fuser.jit(program).lower(x).plan))
        assert all(group.bodies and not group.reason for group in groups if group.kind is Kind.CONTROL)
        hosted = [eqn.primitive.name for group in groups if group.reason for eqn in group.graph.eqns]
        assert hosted and all("callback" in name for name in hosted), hosted
