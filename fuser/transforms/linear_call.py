"""`linear_call`: a linear function with a transpose of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.graph import Graph
from fuser.ir.source import current_source
from fuser.lax.values import as_value
from fuser.ops.linear_call import linear_call_p
from fuser.trace import tree
from fuser.trace.body import close
from fuser.trace.core import type_of
from fuser.trace.stage import stage


def linear_call(
    fun: Callable[[Any, Any], Any], fun_transpose: Callable[[Any, Any], Any], residual_args: Any, linear_args: Any
) -> Any:
    """`fun(residual_args, linear_args)`, which is linear in `linear_args`; reverse mode calls `fun_transpose(residual_args, cotangents)`.

    The transpose takes the tree of the result and gives the tree of `linear_args`; its own transpose is `fun`. Neither is looked at for
    whether it is so. TypeError where trees or types do not fit.
    """
    residuals, residual_tree = tree.flatten(residual_args)
    linear, linear_tree = tree.flatten(linear_args)
    residuals, linear = ([as_value(v, "linear_call") for v in values] for values in (residuals, linear))
    fixed = [type_of(v) for v in residuals]
    callee, consts, out_tree = _staged(fun, residual_tree, linear_tree, fixed, [type_of(v) for v in linear])
    transpose, more, in_tree = _staged(fun_transpose, residual_tree, out_tree, fixed, callee.out_avals)
    found, wanted = [(a.shape, a.dtype) for a in transpose.out_avals], [(v.shape, v.dtype) for v in linear]
    if in_tree != linear_tree or found != wanted:
        raise TypeError(
            "transpose output pytree structure must match that of linear inputs, got output structure "
            f"{in_tree} of {', '.join(map(str, transpose.out_avals))} and input structure {linear_tree} of "
            f"{', '.join(str(type_of(v)) for v in linear)} ({current_source().short})"
        )
    lengths = (len(consts), len(more), len(residuals))
    results = linear_call_p.bind(
        *consts, *more, *residuals, *linear, callee=callee, transpose=transpose, lengths=lengths
    )
    return tree.unflatten(out_tree, results)


def _staged(function: Any, first: Any, second: Any, fixed: Any, moving: Any) -> tuple[Graph, tuple[Any, ...], Any]:
    """A function of two trees as a closed graph, what it closes over, and the tree of its result."""
    trees: list[Any] = []

    def flat(*tracers: Any) -> list[Any]:
        count = first.num_leaves
        result = function(tree.unflatten(first, tracers[:count]), tree.unflatten(second, tracers[count:]))
        leaves, out_tree = tree.flatten(result)
        trees.append(out_tree)
        return [as_value(leaf, "linear_call") for leaf in leaves]

    graph, consts = close(stage(flat, [*fixed, *moving], getattr(function, "__name__", "linear_call")))
    return graph, tuple(consts), trees[0]
