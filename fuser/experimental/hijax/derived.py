"""Rules of a VJPHiPrimitive from its other rules, to be assigned in the body of the class.

`lin, linearized = linearize_from_jvp`, `vjp_fwd, vjp_bwd_retval = vjp_from_lin` (or `= vjp_from_jvp`, which keeps the
arguments alone and computes the rest again in the backward pass), and `jvp = jvp_from_lin`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fuser.experimental.hijax.leaf_rules import LeafRules, is_zero, zero_of
from fuser.ir.graph import Graph
from fuser.ir.source import current_source
from fuser.trace import tree
from fuser.trace.linear import linear_part
from fuser.trace.replay import replay
from fuser.trace.tangent import Undefined, Zero, differentiable, instantiate
from fuser.trace.transpose import transposed


@tree.register_pytree_node_class
class _Derived:
    """The linear map of a jvp: residuals, the tangents that do not depend on it, and (graph that takes the residuals, which
    results are its, which arguments it takes)."""

    def __init__(
        self, consts: Sequence[Any], known: Any, map: tuple[Graph, tuple[bool, ...], tuple[bool, ...]]
    ) -> None:
        self.consts, self.known, self.map = consts, known, map

    def tree_flatten(self) -> tuple[Any, Any]:
        return (tuple(self.consts), self.known), self.map

    @classmethod
    def tree_unflatten(cls, map: Any, children: Any) -> _Derived:
        consts, known = children
        return cls(consts, known, map)


def _active(rules: LeafRules, nzs_in: Any) -> list[bool]:
    return [bool(nz) and differentiable(a) for nz, a in zip(tree.leaves(nzs_in), rules.in_avals)]


def _lin_from_jvp(self: Any, nzs_in: Any, *primals: Any) -> Any:
    """The linearization of `jvp`, as `lin`."""
    rules: LeafRules = self.leaf_rules
    active, operands = _active(rules, nzs_in), tree.leaves(primals)
    outs: list[Any] = []
    present: list[bool] = []

    def tangents_of(*inputs: Any) -> list[Any]:
        rest = iter(inputs)
        tangents = [next(rest) if use else Zero(a) for use, a in zip(active, rules.in_avals)]
        results, found = rules.jvp(operands, tangents)
        outs[:], present[:] = results, [type(t) is not Zero for t in found]
        return [t for t in found if type(t) is not Zero]

    known, graph = linear_part(tangents_of, [a for a, use in zip(rules.in_avals, active) if use], "linearize_from_jvp")
    closed = graph.updated("closed", invars=(*graph.constvars, *graph.invars), constvars=(), consts=())
    rest = iter(known)
    fixed = [next(rest) if use else None for use in present]
    is_linear = [use and value is None for use, value in zip(present, fixed)]
    residuals = _Derived(graph.consts, tuple(fixed), (closed, tuple(is_linear), tuple(active)))
    return tree.unflatten(self.out_tree, outs), residuals, tree.unflatten(self.out_tree, present)


def _linearized_from_jvp(self: Any, residuals: Any, *tangents: Any) -> Any:
    """The linear map of `jvp`, as `linearized`."""
    rules: LeafRules = self.leaf_rules
    graph, is_linear, active = residuals.map
    given = [instantiate(_plain(t)) for t, use in zip(tree.leaves(tangents, is_zero), active) if use]
    found = iter(replay(graph, *residuals.consts, *given))
    values = [
        next(found) if linear else zero_of(a) if value is None else value
        for linear, value, a in zip(is_linear, residuals.known, rules.out_avals)
    ]
    return tree.unflatten(self.out_tree, values)


def _plain(tangent: Any) -> Any:
    return Zero(tangent.aval) if is_zero(tangent) else tangent


def jvp_from_lin(self: Any, primals: Any, tangents: Any) -> Any:
    """`lin` and `linearized`, as `jvp`."""
    if type(self).lin is _lin_from_jvp:
        raise TypeError(
            f"subclass {type(self)} can't set both `jvp = jvp_from_lin` and `lin, linearized = linearize_from_jvp`, since each would be "
            f"defined in terms of the other ({current_source().short})"
        )
    nzs_in = tree.unflatten(self.in_tree, [not is_zero(t) for t in tree.leaves(tangents, is_zero)])
    result, residuals, *_ = self.lin(nzs_in, *primals)
    return result, self.linearized(residuals, *tangents)


def _vjp_fwd_from_jvp(self: Any, nzs_in: Any, *primals: Any) -> Any:
    """The arguments are the residuals."""
    return self(*primals), (primals, nzs_in)


def _vjp_bwd_from_jvp(self: Any, res: Any, out_ct: Any) -> Any:
    """The transpose of `jvp` at the arguments."""
    primals, nzs_in = res
    return _transposed(self, nzs_in, out_ct, lambda tangents: self.jvp(primals, tangents)[1])


def _vjp_fwd_from_lin(self: Any, nzs_in: Any, *primals: Any) -> Any:
    """The residuals of `lin`."""
    result, residuals, *nonzeros = self.lin(nzs_in, *primals)
    return result, (residuals, nzs_in), *nonzeros


def _vjp_bwd_from_lin(self: Any, res: Any, out_ct: Any) -> Any:
    """The transpose of `linearized`."""
    residuals, nzs_in = res
    return _transposed(self, nzs_in, out_ct, lambda tangents: self.linearized(residuals, *tangents))


def _transposed(self: Any, nzs_in: Any, out_ct: Any, function: Callable[[Any], Any]) -> Any:
    """Cotangents of the arguments, of a function from their tangents to those of the results."""
    rules: LeafRules = self.leaf_rules
    active = _active(rules, nzs_in)

    def flat(*inputs: Any) -> list[Any]:
        rest = iter(inputs)
        given = [next(rest) if use else zero_of(a) for use, a in zip(active, rules.in_avals)]
        return [instantiate(t) for t in rules.tangents(function(rules.arguments(given)), "jvp")]

    wanted = [Undefined(a) for a, use in zip(rules.in_avals, active) if use]
    found = iter(transposed(flat, wanted, [_plain(c) for c in tree.leaves(out_ct, is_zero)]))
    return rules.arguments([next(found) if use else zero_of(a) for use, a in zip(active, rules.in_avals)])


def _pair(first: str, second: str, name: str) -> type:
    """The class of a pair of rules, which says how to unpack it where it is called."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"`{name}` is a pair of rules, not a single rule; unpack it in the class body: `{first}, {second} = {name}` "
            f"({current_source().short})"
        )

    made = NamedTuple(name, [(first, Callable), (second, Callable)])  # type: ignore[misc]
    made.__call__ = call  # type: ignore[method-assign]
    return made


linearize_from_jvp = _pair("lin", "linearized", "linearize_from_jvp")(_lin_from_jvp, _linearized_from_jvp)
vjp_from_jvp = _pair("vjp_fwd", "vjp_bwd_retval", "vjp_from_jvp")(_vjp_fwd_from_jvp, _vjp_bwd_from_jvp)
vjp_from_lin = _pair("vjp_fwd", "vjp_bwd_retval", "vjp_from_lin")(_vjp_fwd_from_lin, _vjp_bwd_from_lin)
