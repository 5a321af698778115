"""`custom_jvp` and `custom_vjp`: functions whose derivatives are given by the user instead of derived.

The user's functions on trees become flat ones, checked against each other, in the params of one primitive (ops/calls).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fuser.errors import UnexpectedTracerError
from fuser.frames import hide
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.ops.calls import custom_jvp_call_p
from fuser.trace import tree
from fuser.trace.core import Tracer, type_of
from fuser.trace.tangent import Zero, add_tangents, as_array, differentiable, float0, zeros
from fuser.transforms.arguments import leaf_values, name_of


class SymbolicZero(Zero):
    """A tangent or cotangent that is known to be zero, as rules with `symbolic_zeros=True` get it; it has no contents."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return self.aval.size

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"


class CustomFunction:
    """What custom_jvp and custom_vjp share: the function, and which arguments are not differentiated."""

    kind = ""

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        if not callable(fun):
            raise TypeError(f"{self.kind} takes a function, got a {type(fun).__name__} ({current_source().short})")
        functools.update_wrapper(self, fun)
        self.fun = fun
        numbers = {nondiff_argnums} if isinstance(nondiff_argnums, int) else set(nondiff_argnums)
        if nondiff_argnames:
            names = {nondiff_argnames} if isinstance(nondiff_argnames, str) else set(nondiff_argnames)
            parameters = list(inspect.signature(fun).parameters)
            missing = sorted(names.difference(parameters))
            if missing:
                raise ValueError(
                    f"{name_of(fun)} has no parameter {missing[0]!r}; it has {', '.join(parameters)} ({current_source().short})"
                )
            numbers |= {n for n, parameter in enumerate(parameters) if parameter in names}
        self.nondiff_argnums = tuple(sorted(numbers))

    def __getattr__(self, name: str) -> Any:
        if name == "fun":  # not yet set, as while it is copied
            raise AttributeError(name)
        return getattr(self.fun, name)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in."""
        try:
            signature = inspect.signature(self.fun)
        except (TypeError, ValueError):
            signature = inspect.signature(lambda *args, **kwargs: None)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"the {self.kind} function {name_of(self.fun)}: {error} ({current_source().short})") from None
        bound.apply_defaults()
        left = [k for k in bound.kwargs if k in kwargs]
        if left:
            raise TypeError(
                f"the {self.kind} function {name_of(self.fun)} got {', '.join(left)} by keyword only; its rules take arguments "
                f"by position: make them positional parameters ({current_source().short})"
            )
        return bound.args

    def _call(self, args: tuple[Any, ...]) -> Call:
        return Call(self.fun, args, self.nondiff_argnums)


class Call:
    """One call of a custom function: its arguments flat, and the tree of its results once a function has run.

    Flat functions take the tracers among the arguments that are not differentiated first (`hidden`), then the leaves of
    the others: so an equation that outlives the trace holds no tracer.
    """

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], nondiff: Sequence[int]) -> None:
        self.fun = fun
        self.name = name_of(fun)
        self.count = len(args)
        self.nondiff = [n % len(args) for n in nondiff if -len(args) <= n < len(args)]
        self.diff = [n for n in range(len(args)) if n not in self.nondiff]
        leaves, self.static_tree = tree.flatten([args[n] for n in self.nondiff])
        self.static = [None if isinstance(leaf, Tracer) else leaf for leaf in leaves]
        self.places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
        self.hidden = [leaves[n] for n in self.places]
        leaves, self.in_tree = tree.flatten(tuple(args[n] for n in self.diff))
        self.leaves = leaf_values(leaves, f"the arguments of {self.name}")
        self.out_tree: Any = None
        self.out_avals: list[ArrayType] | None = None

    @property
    def operands(self) -> list[Any]:
        return [*self.hidden, *self.leaves]

    def static_args(self, hidden: Sequence[Any]) -> list[Any]:
        """The arguments that are not differentiated."""
        leaves = list(self.static)
        for place, value in zip(self.places, hidden):
            leaves[place] = value
        return tree.unflatten(self.static_tree, leaves)

    def merged(self, function: Callable[..., Any], hidden: Sequence[Any], given: Sequence[Any]) -> Any:
        """`function` on all arguments, those that are differentiated being `given` as leaves."""
        args: list[Any] = [None] * self.count
        for number, value in zip(self.nondiff, self.static_args(hidden)):
            args[number] = value
        for number, value in zip(self.diff, tree.unflatten(self.in_tree, given)):
            args[number] = value
        return function(*args)

    def function(self, *operands: Any) -> list[Any]:
        """The flat function."""
        count = len(self.hidden)
        result = self.merged(self.fun, operands[:count], operands[count:])
        leaves, self.out_tree = tree.flatten(result)
        values = leaf_values(leaves, f"the result of {self.name}")
        self.out_avals = [type_of(v) for v in values]
        return values

    def primals_out(self, result: Any, rule: str) -> list[Any]:
        """The leaves of the results as a rule gives them; TypeError where the function's own differ."""
        leaves, structure = tree.flatten(result)
        values = leaf_values(leaves, f"the primal output of {rule}")
        avals = [type_of(v) for v in values]
        if self.out_avals is not None and not _agree(self.out_tree, self.out_avals, structure, avals):
            raise TypeError(
                f"the rule {rule} of {self.name} must return the primal output of {self.name} first, got "
                f"{_described(structure, avals)} where {self.name} returned {_described(self.out_tree, self.out_avals)} "
                f"({current_source().short})"
            )
        self.out_tree = structure
        return values

    def result(self, values: Sequence[Any]) -> Any:
        return tree.unflatten(self.out_tree, values)


def _agree(tree_a: Any, avals_a: Sequence[ArrayType], tree_b: Any, avals_b: Sequence[ArrayType]) -> bool:
    return tree_a == tree_b and [(a.shape, a.dtype) for a in avals_a] == [(b.shape, b.dtype) for b in avals_b]


def _described(structure: Any, avals: Sequence[ArrayType]) -> str:
    """Types in their tree: `(f32[3], {'a': f32[]})`."""
    return str(tree.unflatten(structure, [_Type(str(a)) for a in avals]))


class _Type:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def pair_of(result: Any, rule: str, name: str, what: str) -> tuple[Any, Any]:
    """A rule's result, which must be a pair."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(
            f"the rule {rule} of {name} must return a pair ({what}), got a {type(result).__name__}"
            f"{f' of length {len(result)}' if isinstance(result, (tuple, list)) else ''} ({current_source().short})"
        )
    return result[0], result[1]


def given_tangent(tangent: Any, symbolic: bool) -> Any:
    """A tangent as a user's rule gets it."""
    if type(tangent) is Zero:
        return SymbolicZero(tangent.aval) if symbolic else zeros(tangent.aval)
    return tangent


def taken_tangent(leaf: Any) -> Any:
    """A tangent as a user's rule gives it; Zero for symbolic ones and float0."""
    if isinstance(leaf, Zero):
        return Zero(leaf.aval)
    if getattr(leaf, "dtype", None) == float0:
        return leaf
    return as_array(as_value(leaf))


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
                f"the custom_jvp function {name_of(self.fun)} has no rule; define one with defjvp ({current_source().short})"
            )
        call = self._call(self._positional(args, kwargs))
        symbolic = self.symbolic_zeros
        try:
            outs = custom_jvp_call_p.bind(
                *call.operands,
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
    count = len(call.hidden)

    def flat(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        static = call.static_args(primals[:count])
        given = [given_tangent(t, symbolic) for t in tangents[count:]]
        result = rule(*static, tree.unflatten(call.in_tree, primals[count:]), tree.unflatten(call.in_tree, given))
        primal_out, tangent_out = pair_of(result, rule_name, call.name, "primal output, tangent output")
        outs = call.primals_out(primal_out, rule_name)
        leaves, structure = tree.flatten(tangent_out)
        if structure != call.out_tree:
            raise TypeError(
                f"the rule {rule_name} of {call.name} must return a tangent output with the tree of the primal output, "
                f"{call.out_tree}, got {structure} ({current_source().short})"
            )
        return outs, [_checked_tangent(out, leaf, rule_name, call.name) for out, leaf in zip(outs, leaves)]

    flat.__name__ = rule_name
    return flat


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
            f"the rule {rule} of {name} must return tangents of the types of the primal outputs, got {found.update(weak_type=False)} "
            f"for {aval.update(weak_type=False)}, whose tangent is {text} ({current_source().short})"
        )
    return Zero(aval) if found.dtype == float0 or type(tangent) is Zero else tangent


def refuse_tracers(args: Sequence[Any], numbers: Sequence[int], name: str) -> None:
    """UnexpectedTracerError for a tracer among arguments that are not differentiated."""
    for number in numbers:
        for leaf in tree.leaves(args[number]):
            if isinstance(leaf, Tracer):
                raise UnexpectedTracerError(
                    f"the custom_vjp function {name} got a traced {leaf.aval} as argument {number}, which nondiff_argnums "
                    "says is not differentiated; such arguments are functions or Python values: pass arrays as ordinary "
                    f"arguments, and return None as their cotangent ({current_source().short})"
                )
