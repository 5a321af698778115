"""custom_vmap and sequential_vmap against JAX."""

from __future__ import annotations

from typing import Any

import jax.custom_batching
import numpy as np
import pytest

import fuser
from tests.transforms.both import agree, both_raise

V = np.linspace(0.1, 1.0, 4, dtype=np.float32)


def marked(m: Any, seen: list[Any] | None = None) -> Any:
    """sin(x) y, ten times that where the rule is used."""

    @m.custom_batching.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return m.numpy.sin(x) * y

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any, y: Any) -> Any:
        if seen is not None:
            seen.append((size, batched))
        return 10 * m.numpy.sin(x) * y, any(batched)

    return f


PROGRAMS = {
    "value": lambda m, f: f(1.0, 2.0),
    "vmap": lambda m, f: m.vmap(f)(V, V),
    "one argument": lambda m, f: m.vmap(f, (0, None))(V, 2.0),
    "vmap of vmap": lambda m, f: m.vmap(m.vmap(f, (None, 0)), (0, None))(V, V),
    "jit of vmap": lambda m, f: m.jit(m.vmap(f, (0, None)))(V, 2.0),
    "vmap of jit": lambda m, f: m.vmap(m.jit(f), (0, None))(V, 2.0),
    "jvp of vmap": lambda m, f: m.jvp(m.vmap(lambda x: f(x, 2.0)), (V,), (V,)),
    "grad of vmap": lambda m, f: m.grad(lambda v: m.vmap(f)(v, v).sum())(V),
    "vmap of jvp": lambda m, f: m.vmap(lambda x, t: m.jvp(lambda x: f(x, 2.0), (x,), (t,)))(V, V),
    "tangents alone": lambda m, f: m.vmap(lambda t: m.jvp(lambda x: f(x, 2.0), (0.5,), (t,)))(V),
    "values alone": lambda m, f: m.vmap(lambda x: m.jvp(lambda x: f(x, 2.0), (x,), (1.0,)))(V),
    "scan": lambda m, f: m.vmap(lambda c: m.lax.scan(lambda c, x: (f(c, x), c), c, V)[0])(V),
    "closed-over batch": lambda m, f: m.vmap(lambda x: f(1.0, 2.0) * x)(V),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_jax(name: str) -> None:
    agree(lambda m: PROGRAMS[name](m, marked(m)), weak=name != "tangents alone")


def test_the_rule_is_told_what_is_batched() -> None:
    seen: list[Any] = []
    fuser.vmap(marked(fuser, seen), (1, None))(np.ones((2, 3), np.float32), 2.0)
    assert seen == [(3, [True, False])]
    fuser.jit(marked(fuser, seen))(1.0, 2.0)
    assert len(seen) == 1


def test_sequential_vmap() -> None:
    f = lambda m: m.custom_batching.sequential_vmap(lambda x, y: {"a": m.numpy.sin(x["b"]) * y})
    agree(lambda m: m.vmap(f(m), (0, None))({"b": V}, 2.0))
    agree(lambda m: m.jit(m.vmap(f(m)))({"b": V}, V))
    graph = fuser.make_jaxpr(fuser.vmap(f(fuser), (0, None)))({"b": V}, 2.0)
    assert [e.primitive.name for e in graph.eqns] == ["scan"]


def test_refusals() -> None:
    make = lambda m: m.custom_batching.custom_vmap(lambda x: (x, x))
    assert "no rule; define one with def_vmap" in both_raise(lambda m: m.vmap(make(m))(V), AttributeError)

    def with_rule(m: Any, rule: Any) -> Any:
        f = make(m)
        f.def_vmap(rule)
        return m.jit(m.vmap(f))(V)

    assert "with the tree of the function's output" in both_raise(
        lambda m: with_rule(m, lambda size, batched, x: ((x, x), True)), ValueError
    )
    both_raise(lambda m: with_rule(m, lambda size, batched, x: x), Exception)


def test_a_rule_gives_the_tree_of_the_functions_result() -> None:
    """Also where the function itself never ran."""
    f = fuser.custom_batching.custom_vmap(fuser.numpy.sin)

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any) -> Any:
        return [fuser.numpy.sin(x)], in_batched

    with pytest.raises(ValueError, match=r"structure of output returned by custom vmap rule \(rule\) does not match"):
        fuser.vmap(f)(np.arange(3.0))


def test_numbers_become_arrays() -> None:
    """The function is traced in JAX, so that it gives an Array also where it got numbers."""
    for m in (fuser, jax):
        f = m.custom_batching.custom_vmap(lambda x, y: x + y)
        f.def_vmap(lambda size, batched, x, y: (x * 10 + y, True))
        result = f(1.0, 2.0)
        assert isinstance(result, (fuser.Array, jax.Array)) and result.weak_type and float(result) == 3
