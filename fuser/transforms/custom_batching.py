"""`custom_vmap`: a function whose batched form is given by the user; `sequential_vmap`, whose batched form is a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuser import lax
from fuser.frames import hide
from fuser.ir.source import current_source
from fuser.ops.custom_vmap import custom_vmap_call_p
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.stage import stage
from fuser.transforms.arguments import leaf_values, name_of
from fuser.transforms.custom_function import Call, CustomFunction, pair_of


class custom_vmap(CustomFunction):
    """A function with a rule of your own for vmap: decorate it, then `f.def_vmap(rule)`.

    `rule(axis_size, in_batched, *args) -> (out, out_batched)`: `in_batched` is a list with the tree of the arguments and
    True where an array has the batch as its first dimension; `out_batched` says so of `out`. A call before a rule is
    defined raises AttributeError, a rule whose trees do not fit ValueError. Without vmap the rule is never run.
    """

    kind = "custom_vmap"

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__(fun)
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule, and return it."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rule = self.vmap_rule
        if rule is None:
            raise AttributeError(
                f"the custom_vmap function {name_of(self.fun)} has no rule; define one with def_vmap ({current_source().short})"
            )
        call = Call(self.fun, self._positional(args, kwargs), (), numbers=False)
        try:
            outs = custom_vmap_call_p.bind(
                *call.operands(), name=call.name, call_jaxpr=call.function, rule=_flat_rule(call, rule), num_consts=0
            )
        except Exception as error:
            raise hide(error)  # noqa: B904
        return call.result(outs)


def _flat_rule(call: Call, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule on leaves."""
    name = name_of(rule)

    def flat(size: int, batched: Sequence[bool], *inputs: Any) -> tuple[list[Any], list[bool]]:
        if call.out_tree is None:  # the function did not run yet: its results are known by their types
            stage(
                call.function, [type_of(x).without(0) if b else type_of(x) for x, b in zip(inputs, batched)], call.name
            )
        marks = list(tree.unflatten(call.in_tree, batched))
        result = rule(size, marks, *tree.unflatten(call.in_tree, inputs))
        out, out_batched = pair_of(result, name, call.name, "output, which parts are batched")
        leaves, structure = tree.flatten(out)
        which, marked = tree.flatten(out_batched)
        if structure != marked or structure != call.out_tree:
            which_tree = "output" if structure == marked else "output and of batching"
            raise ValueError(
                f"structure of {which_tree} returned by custom vmap rule ({name}) does not match that of original "
                "custom-vmapped function: "
                f"the rule {name} of {call.name} must return outputs and marks with the tree of the function's output, "
                f"{call.out_tree}, got {structure} and {marked} ({current_source().short})"
            )
        return leaf_values(leaves, f"the result of {name}"), which

    flat.__name__ = name
    return flat


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """`f`, which under vmap runs once for each element, one after the other in a loop."""
    function = custom_vmap(f)

    @function.def_vmap
    @functools.wraps(f)
    def rule(axis_size: int, in_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        leaves, structure = tree.flatten(args)
        batched = tree.leaves(in_batched)

        def one(mapped: list[Any]) -> Any:
            rest = iter(mapped)
            return function(*tree.unflatten(structure, [next(rest) if b else v for v, b in zip(leaves, batched)]))

        out = lax.map(one, [v for v, b in zip(leaves, batched) if b])
        return out, tree.map(lambda _: True, out)

    return function
