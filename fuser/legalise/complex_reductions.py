"""Products and running sums of complex numbers by operations that a backend has, where it has no kernels of their own for them.

A product over an axis is a tree of products of its halves, which are slices of one array; running sums are those of the real and of the
imaginary parts. Graph → Graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.graph import Eqn, Graph
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import is_complex
from fuser.ops.cumulative import cumsum_p
from fuser.ops.elementwise import complex_p, imag_p, mul_p, real_p
from fuser.ops.movement import reshaped, slice_p
from fuser.ops.reduce import reduce_prod_p
from fuser.trace.stage import stage


def with_complex_reductions(graph: Graph, supports: Callable[[Eqn], str | None]) -> Graph:
    """The graph with each complex product and running sum that the backend refuses written by other operations, where it has those."""
    if not any(map(_complex, graph.eqns)):
        return graph
    rewriter = Rewriter(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        if not _complex(eqn) or supports(eqn) is None or supports(_simpler(rewriter, eqn)) is not None:
            rewriter.keep(eqn)
            continue
        rule = _RULES[eqn.primitive]
        function = lambda x, rule=rule, params=eqn.params: [rule(x, **params)]
        inner = stage(function, [eqn.invars[0].aval], eqn.primitive.name)
        rewriter.replace(eqn.outvars[0], rewriter.splice(inner, eqn.invars, eqn.source)[0])
    return rewriter.finish()


def _complex(eqn: Eqn) -> bool:
    return eqn.primitive in _RULES and is_complex(eqn.invars[0].aval.dtype) and eqn.invars[0].aval.size > 0


def _simpler(rewriter: Rewriter, eqn: Eqn) -> Eqn:
    """What the operation is made of."""
    operand = eqn.invars[0]
    return rewriter.make(real_p, operand) if eqn.primitive is cumsum_p else rewriter.make(mul_p, operand, operand)


def _product(x: Any, axes: Any) -> Any:
    for axis in sorted(axes, reverse=True):
        rest = None
        while (half := x.shape[axis] // 2) > 0:
            if x.shape[axis] % 2:
                last = _part(x, axis, 2 * half, 2 * half + 1)
                rest = last if rest is None else mul_p.bind(last, rest)
            x = mul_p.bind(_part(x, axis, 0, half), _part(x, axis, half, 2 * half))
        x = x if rest is None else mul_p.bind(x, rest)
        x = reshaped(x, (*x.shape[:axis], *x.shape[axis + 1 :]))
    return x


def _part(x: Any, axis: int, start: int, end: int) -> Any:
    """x[start:end] along one axis."""
    starts, limits = [0] * x.ndim, list(x.shape)
    starts[axis], limits[axis] = start, end
    return slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=None)


def _running_sum(x: Any, **params: Any) -> Any:
    return complex_p.bind(cumsum_p.bind(real_p.bind(x), **params), cumsum_p.bind(imag_p.bind(x), **params))


_RULES: dict[Any, Callable[..., Any]] = {reduce_prod_p: _product, cumsum_p: _running_sum}
