"""`pretty_print` of graphs against JAX's of the same programs, to the letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser

X = np.array([4.2, 1.5], np.float32)


def _custom_jvp(m: Any) -> Any:
    @m.custom_jvp
    def f(x: Any) -> Any:
        return x + 1

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0]

    return f


def _custom_vjp(m: Any) -> Any:
    @m.custom_vjp
    def f(x: Any) -> Any:
        return x + 1

    def f_fwd(x: Any) -> Any:
        return f(x), ()

    def f_bwd(_: Any, g: Any) -> Any:
        return (g,)

    f.defvjp(f_fwd, f_bwd)
    return f


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "no equation": lambda m: lambda x: x,
    "equations": lambda m: lambda x: (m.numpy.sin(x), x.astype(np.int32), x + 1),
    "what nobody reads": lambda m: lambda x: m.lax.top_k(x, 1)[0],
    "a product": lambda m: lambda x: m.numpy.dot(x, x),
    "branches": lambda m: lambda x: m.lax.cond(x[0] > 0, lambda v: v * 2, lambda v: v - 1, x),
    "a long graph inside": lambda m: (
        lambda x: m.lax.cond(
            x[0] > 0, lambda v: m.numpy.sin(m.numpy.cos(m.numpy.tan(m.numpy.exp(v)))), lambda v: v - 1, x
        )
    ),
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text(name: str) -> None:
    mine, theirs = (m.make_jaxpr(PROGRAMS[name](m))(X).pretty_print(use_color=False) for m in (fuser, jax))
    assert mine == theirs


def test_constants_and_lines() -> None:
    held = fuser.numpy.arange(2.0)
    graph = fuser.make_jaxpr(lambda x: x * held)(X)
    assert graph.pretty_print() == "{ lambda a:f32[2]; b:f32[2]. let c:f32[2] = mul b a in (c,) }"
    lines = graph.pretty_print(source_info=True).splitlines()
    assert lines[0] == "{ lambda a:f32[2]; b:f32[2]. let" and lines[2] == "  in (c,) }"
    assert lines[1].startswith("    c:f32[2] = mul b a  # test_jaxpr_layout.py:")


def test_a_comment_ends_its_line_in_graphs_inside_too() -> None:
    graph = fuser.make_jaxpr(PROGRAMS["branches"](fuser))(X)
    lines = graph.pretty_print(source_info=True).splitlines()
    eqns = [*graph.eqns, *(eqn for branch in graph.eqns[-1].params["branches"] for eqn in branch.eqns)]
    assert sum("  # test_jaxpr_layout.py:" in line for line in lines) == len(eqns)
    assert all(" in (" not in line.partition("#")[2] for line in lines)
