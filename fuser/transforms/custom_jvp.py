"""`custom_jvp`: a function with a derivative of the user's own, for forward and reverse mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuser.frames import hide
from fuser.ir.source import current_source
from fuser.ops.calls import custom_jvp_call_p
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.python_numbers import all_as_given
from fuser.trace.tangent import Zero, add_tangents, differentiable, float0, zeros
from fuser.transforms.arguments import name_of
from fuser.transforms.custom_function import Call, CustomFunction, given_tangent, pair_of, taken_tangent


class custom_jvp(CustomFunction):
    """A function with a derivative of your own, for forward and reverse mode: decorate it, then give the rule.

    `f.defjvp(rule)`: `rule(primals, tangents) -> (primal output, tangent output)`, linear in the tangents; the tangent
    output has the tree, shapes and dtypes of the primal output. Arguments at `nondiff_argnums` (or `nondiff_argnames`) come
    first in the rule, one by one, and have no derivative. A call before a rule is defined raises AttributeError, a rule
    whose results do not fit the function's TypeError. Without differentiation the rule is never run.
    """

    kind = "custom_jvp"

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule, and return it. With `symbolic_zeros` tangents of what is constant come as `SymbolicZero`."""
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule an argument: `rule(tangent, primal output, *primals) -> tangent output`, None for zero."""
        if self.nondiff_argnums:
            raise TypeError(f"defjvps does not go with nondiff_argnums; use defjvp ({current_source().short})")

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            out = self(*primals)
            parts = [jvp(t, out, *primals) for t, jvp in zip(tangents, jvps) if jvp is not None]
            if not parts:
                return out, tree.map(lambda o: zeros(type_of(o)), out)
            total = lambda first, *rest: functools.reduce(add_tangents, rest, first)
            return out, tree.map(total, *parts)

        self.defjvp(rule)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rule = self.jvp
        if rule is None:
            raise AttributeError(
                f"No JVP defined for custom_jvp function {name_of(self.fun)} using defjvp. Define a rule ({current_source().short})"
            )
        call = self._call(self._positional(args, kwargs))
        symbolic = self.symbolic_zeros
        try:
            outs = custom_jvp_call_p.bind(
                *call.operands(),
                name=call.name,
                call_jaxpr=call.function,
                jvp_jaxpr_fun=_flat_jvp(call, rule, symbolic),
                num_consts=0,
                symbolic_zeros=symbolic,
            )
        except Exception as error:
            raise hide(error)  # noqa: B904
        return call.result(outs)


def _flat_jvp(call: Call, rule: Callable[..., Any], symbolic: bool) -> Callable[..., Any]:
    """The rule on leaves."""
    rule_name = name_of(rule)
    count = len(call.places)

    def flat(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        static = call.static_args(primals[:count])
        given = [given_tangent(t, symbolic) for t in tangents[count:]]
        values = all_as_given(primals[count:])
        result = rule(*static, tree.unflatten(call.in_tree, values), tree.unflatten(call.in_tree, given))
        primal_out, tangent_out = pair_of(result, rule_name, call.name, "primal output, tangent output")
        outs = call.primals_out(primal_out, rule_name, "JVP")
        leaves, structure = tree.flatten(tangent_out)
        if structure != call.out_tree:
            raise TypeError(
                f"Custom JVP rule {rule_name} for function {call.name} must produce primal and tangent outputs with equal "
                f"container (pytree) structures, but got {call.out_tree} and {structure} respectively. ({current_source().short})"
            )
        return outs, [_checked_tangent(out, leaf, rule_name, call.name) for out, leaf in zip(outs, leaves)]

    flat.__name__ = rule_name
    return flat


def _long(aval: Any) -> str:
    """A type as in JAX's errors: `float32[3]`."""
    return f"{'float0' if aval.dtype == float0 else aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def _checked_tangent(out: Any, leaf: Any, rule: str, name: str) -> Any:
    """The tangent of one result; TypeError if it has not the type of one."""
    aval, tangent = type_of(out), taken_tangent(leaf)
    wanted = aval if differentiable(aval) else aval.update(dtype=float0)
    if type(tangent) is Zero:
        found = tangent.aval if differentiable(tangent.aval) else tangent.aval.update(dtype=float0)
    else:
        found = type_of(tangent)
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        text = wanted.update(weak_type=False) if differentiable(aval) else f"float0{list(aval.shape)}"
        raise TypeError(
            "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. Expected "
            f"{_long(aval)} (tangent type of {_long(aval)}) but got {_long(found)}. The rule is {rule} of {name}; the tangent of "
            f"{aval.update(weak_type=False)} is {text} ({current_source().short})"
        )
    return Zero(aval) if found.dtype == float0 or type(tangent) is Zero else tangent
