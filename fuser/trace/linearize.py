"""Linearization: the values of a function at a point, and its derivative there as a linear Graph.

A jvp runs over a LinearTrace: values are computed as always, and the tangents' equations become the Graph, whose consts
are the residuals. Replayed it is the pushforward, transposed the pullback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.ir.graph import Graph
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import ArrayType
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.linear import linear_part
from fuser.trace.replay import replay
from fuser.trace.tangent import Zero, as_array, differentiable, instantiate
from fuser.trace.transpose import backward


class Linearized:
    """The derivative of a flat function at a point: a linear Graph between the inputs and outputs that take part.

    `inputs` tells which inputs do (those of differentiable types); `outputs` has None for those that do, else the tangent.
    """

    def __init__(
        self, graph: Graph, avals: Sequence[ArrayType], inputs: Sequence[bool], outputs: Sequence[Any]
    ) -> None:
        self.graph = graph
        self.avals = avals
        self.inputs = inputs
        self.outputs = outputs

    def pushforward(self, tangents: Sequence[Any]) -> list[Any]:
        """The tangent (or `Zero`) of each output, for one of each input."""
        used = [instantiate(t) for t, use in zip(tangents, self.inputs) if use]
        found = iter(replay(self.graph, *used))
        return [next(found) if o is None else o for o in self.outputs]

    def pullback(self, cotangents: Sequence[Any], name: str = "grad", taken: Any = None) -> list[Any]:
        """The cotangent (or `Zero`) of each input, for one of each output; weak where the input is.

        `taken(number of the input, equation, cotangent, operands)` may take what an equation that reads an input contributes: it says so.
        """
        used = [c for c, o in zip(cotangents, self.outputs) if o is None]
        own = dict(zip(self.graph.invars, (n for n, use in enumerate(self.inputs) if use)))
        keeps = taken and (lambda eqn, *rest: eqn.invars[0] in own and taken(own[eqn.invars[0]], eqn, *rest))
        found = iter(backward(self.graph, used, name, keeps))
        return [_typed(next(found), aval) if use else Zero(aval) for use, aval in zip(self.inputs, self.avals)]


def _typed(cotangent: Any, aval: ArrayType) -> Any:
    if type(cotangent) is Zero or type_of(cotangent).weak_type == aval.weak_type:
        return cotangent
    convert = REGISTRY["convert_element_type"]
    return convert.bind(cotangent, new_dtype=aval.dtype, weak_type=aval.weak_type)


def linearize(
    function: Callable[..., Sequence[Any]],
    primals: Sequence[Any],
    wanted: Callable[[], int] | None = None,
    name: str = "grad",
    pushes: bool = False,
) -> tuple[list[Any], Linearized]:
    """Results of a flat function at `primals`, and the derivative there of the first `wanted()` (all) of them.

    It is made for `pullback`, or where it `pushes` for `pushforward`: functions may have rules for one of them alone.
    """
    primals = [as_array(p) for p in primals]
    avals = [type_of(p) for p in primals]
    mask = [differentiable(a) for a in avals]
    outs: list[Any] = []

    def tangents_of(*inputs: Any) -> list[Any]:
        rest = iter(inputs)
        tangents = [next(rest) if use else Zero(aval) for use, aval in zip(mask, avals)]
        results, out_tangents = jvp(function, primals, tangents, name)
        outs.extend(results)
        return out_tangents[: wanted()] if wanted else out_tangents

    known, graph = linear_part(tangents_of, [a for a, use in zip(avals, mask) if use], name, pushes)
    return outs, Linearized(graph, avals, mask, known)
