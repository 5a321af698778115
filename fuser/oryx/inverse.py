"""The inverse of a function, and log |det J⁻¹|, from its Graph.

Values are found from the results backwards through equations that can be undone, and forwards through those whose operands are
known by then, in turns: so a coupling layer, whose one half conditions the other, is inverted too. Beside each value that was
found backwards stands, element by element, what the equations behind it add to the logarithm of the determinant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser import numpy as fnp
from fuser.api.jitted import jit
from fuser.ir.graph import Eqn, Graph, Literal, Var
from fuser.ops.movement import slice_p
from fuser.oryx.undo import ELEMENTWISE, STRUCTURAL, Found, Undone
from fuser.trace import tree


def inverse(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """A function from the results of `function` to its arguments (one alone as it is, several as a tuple).

    `example` gives shapes and dtypes of the arguments; without it they are those of the result, which is then one argument's.
    ValueError where an equation has no inverse, or the results do not determine the arguments.
    """
    return lambda *results: inverse_and_ildj(function, *example)(*results)[0]


def ildj(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """A function from the results of `function` to log |det ∂arguments/∂results| there; see `inverse`."""
    return lambda *results: inverse_and_ildj(function, *example)(*results)[1]


def inverse_and_ildj(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """A function from the results of `function` to what `inverse` and `ildj` give, with one walk over the graph.

    The determinant is that of the whole map: a scalar. vmap over examples gives one each.
    """

    def inverted(*results: Any) -> tuple[Any, Any]:
        given = example or results
        graph = jit(function).trace(*given).graph
        wanted = tree.leaves(results if len(results) > 1 else results[0])
        if len(wanted) != len(graph.outvars):
            raise ValueError(f"the function gives {len(graph.outvars)} arrays, and {len(wanted)} were to be inverted")
        found, log_determinant = _Inversion(graph, list(map(fnp.asarray, wanted))).run()
        arguments = tree.unflatten(tree.structure(given), found)
        return (arguments if len(given) > 1 else arguments[0]), log_determinant

    return inverted


class _Inversion:
    """What is known of one graph: `values`, and `logs`, the logarithms of slopes of those that were found backwards."""

    def __init__(self, graph: Graph, results: list[Any]) -> None:
        self.graph = graph
        self.values: dict[Var, Any] = dict(zip(graph.constvars, graph.consts))
        self.logs: dict[Var, Any] = {}
        self.parts: dict[Var, dict[tuple[Any, Any], Undone]] = {}  # of values that are known in slices so far
        for var, value in zip(graph.outvars, results):
            if isinstance(var, Var):
                if var.aval.shape != value.shape:
                    raise ValueError(
                        f"the function gives {var.aval}, and an array of shape {value.shape} was to be inverted"
                    )
                self.values[var], self.logs[var] = value, fnp.zeros(value.shape, value.dtype)

    def run(self) -> tuple[list[Any], Any]:
        """The arguments, and the sum of their logarithms."""
        waiting = list(self.graph.eqns)
        while any(v not in self.values for v in self.graph.invars):
            left = [eqn for eqn in waiting if not self._forwards(eqn)]
            left = [eqn for eqn in reversed(left) if not self._backwards(eqn)][::-1]
            if len(left) == len(waiting):
                raise ValueError(self._why(left))
            waiting = left
        found = [self.values[v] for v in self.graph.invars]
        return found, sum((self.logs[v].sum() for v in self.graph.invars if v in self.logs), fnp.zeros(()))

    def _read(self, operand: Any) -> Any:
        return (
            fnp.asarray(operand.val, operand.aval.dtype) if isinstance(operand, Literal) else self.values.get(operand)
        )

    def _forwards(self, eqn: Eqn) -> bool:
        """Whether the operands are known, so that the results are, too."""
        operands = [self._read(v) for v in eqn.invars]
        if any(value is None for value in operands):
            return False
        results = eqn.primitive.bind(*operands, **eqn.params)
        for var, value in zip(eqn.outvars, results if eqn.primitive.multiple_results else [results]):
            self.values.setdefault(var, value)
        return True

    def _backwards(self, eqn: Eqn) -> bool:
        """Whether the result is known, and an operand that is not follows from it."""
        if any(v not in self.logs for v in eqn.outvars):
            return False
        operands = [self._read(v) for v in eqn.invars]
        outs = [Undone(self.values[v], self.logs[v]) for v in eqn.outvars]
        found = self._undone(eqn, operands, outs)
        for var, each in zip(eqn.invars, found or ()):
            if each is not None and isinstance(var, Var) and var not in self.values:
                self.values[var], self.logs[var] = each.value, each.log
        return found is not None

    def _undone(self, eqn: Eqn, operands: list[Any], outs: list[Undone]) -> Found:
        if eqn.primitive is slice_p:
            return self._in_parts(eqn, outs[0])
        inner = eqn.params.get("call_jaxpr") or eqn.params.get("jaxpr")
        if inner is not None and len(inner.invars) == len(operands) and "length" not in eqn.params:
            return _through(inner, operands, outs)
        if (rule := ELEMENTWISE.get(eqn.primitive)) is not None:
            return rule(operands, outs[0], eqn.params)
        if (moved := STRUCTURAL.get(eqn.primitive)) is not None:
            return moved(eqn, operands, outs)
        return None

    def _in_parts(self, eqn: Eqn, out: Undone) -> list[Undone | None] | None:
        """The operand, once the slices of it that are known cover one dimension; until then nothing."""
        shape = eqn.invars[0].aval.shape
        start, limit = tuple(eqn.params["start_indices"]), tuple(eqn.params["limit_indices"])
        cut = [d for d, n in enumerate(shape) if (start[d], limit[d]) != (0, n)]
        if len(cut) > 1 or not isinstance(eqn.invars[0], Var) or set(eqn.params["strides"] or (1,)) != {1}:
            return None
        if not cut:
            return [out]
        parts = self.parts.setdefault(eqn.invars[0], {})
        parts[start[cut[0]], limit[cut[0]]] = out
        ordered = sorted(parts)
        ends = [0, *(stop for _, stop in ordered)]
        if [first for first, _ in ordered] != ends[:-1] or ends[-1] != shape[cut[0]]:
            return []  # undone as far as it goes
        return [Undone(*(fnp.concatenate(each, cut[0]) for each in zip(*(parts[key] for key in ordered))))]

    def _why(self, left: list[Eqn]) -> str:
        for eqn in reversed(left):
            if all(v in self.values for v in eqn.outvars):
                return f"no inverse: {eqn.primitive} of {', '.join(str(v.aval) for v in eqn.invars)} cannot be undone ({eqn.source.short})"
        return "no inverse: the results do not determine all arguments; the function must be one-to-one"


def _through(graph: Graph, operands: list[Any], outs: list[Undone]) -> Found:
    """The same inside of a call, whose known operands become constants."""
    inside = _Inversion(graph, [out.value for out in outs])
    inside.logs |= {v: out.log for v, out in zip(graph.outvars, outs) if isinstance(v, Var)}
    inside.values |= {v: value for v, value in zip(graph.invars, operands) if value is not None}
    inside.run()
    return [Undone(inside.values[v], inside.logs[v]) if v in inside.logs else None for v in graph.invars]
