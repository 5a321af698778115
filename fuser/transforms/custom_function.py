"""What custom_jvp and custom_vjp share: a call of the user's functions on trees as flat functions, checked.

The flat functions go into the params of one primitive (ops/calls); the tree of the results is known once one has run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fuser.ir.source import current_source
from fuser.ir.types import ArrayType, Typed
from fuser.lax.values import as_value, python_scalar
from fuser.trace import tree
from fuser.trace.aliases import check_arguments
from fuser.trace.cells import is_ref
from fuser.trace.core import Tracer, type_of
from fuser.trace.python_numbers import all_as_given, as_given, standing_for
from fuser.trace.tangent import Zero, as_array, float0, zeros
from fuser.transforms.arguments import leaf_values, name_of


class SymbolicZero(Typed, Zero):
    """A tangent or cotangent that is known to be zero, as rules with `symbolic_zeros=True` get it; it has no contents."""

    __slots__ = ()

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
        functools.update_wrapper(self, fun)  # type: ignore[arg-type]
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
            raise TypeError(
                f"The input arguments to the {self.kind}-decorated function {name_of(self.fun)} could not be resolved to "
                f"positional-only arguments. Binding failed with the error:\n{error} ({current_source().short})"
            ) from None
        bound.apply_defaults()
        left = [k for k in bound.kwargs if k in kwargs]
        if left:
            raise TypeError(
                f"The input arguments to the {self.kind}-decorated function {name_of(self.fun)} could not be resolved to "
                "positional-only arguments. Binding failed with the error:\n"
                f"The following keyword arguments could not be resolved to positions: {', '.join(left)}; the rules of the "
                f"{self.kind} function {name_of(self.fun)} take arguments by position: make them positional parameters "
                f"({current_source().short})"
            )
        return bound.args

    def _call(self, args: tuple[Any, ...]) -> Call:
        check_arguments(self.fun, self.kind, (args, {}))
        return Call(self.fun, args, self.nondiff_argnums, self.kind)


class Call:
    """One call of a custom function: its arguments flat, and the tree of its results once a function has run.

    Flat functions take the tracers among the arguments that are not differentiated first (`hidden`), then the leaves of
    the others: so an equation that outlives the trace holds no tracer, and `taken` gives them away. With `numbers` the
    user's functions get and give Python's numbers where there are some.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        nondiff: Sequence[int],
        kind: str = "custom_vjp",
        numbers: bool = True,
    ) -> None:
        self.fun, self.kind = fun, kind
        self.as_given: Callable[[Sequence[Any]], Sequence[Any]] = all_as_given if numbers else list
        self.name = name_of(fun)
        self.count = len(args)
        self.nondiff = [n % len(args) for n in nondiff if -len(args) <= n < len(args)]
        self.diff = [n for n in range(len(args)) if n not in self.nondiff]
        leaves, self.static_tree = tree.flatten([args[n] for n in self.nondiff])
        self.static = [None if isinstance(leaf, Tracer) else leaf for leaf in leaves]
        self.places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
        hidden = [leaves[n] for n in self.places]
        leaves, self.in_tree = tree.flatten(tuple(args[n] for n in self.diff))
        self._operands = [*hidden, *leaf_values(leaves, f"the arguments of {self.name}")]
        self.out_tree: Any = None
        self.out_avals: list[ArrayType] | None = None

    def operands(self) -> list[Any]:
        """What the primitive is bound on, once: a call that outlives the trace holds no tracer."""
        operands, self._operands = self._operands, []
        return operands

    def static_args(self, hidden: Sequence[Any]) -> list[Any]:
        """The arguments that are not differentiated."""
        leaves = list(self.static)
        for place, value in zip(self.places, hidden):
            leaves[place] = value
        return tree.unflatten(self.static_tree, leaves)

    def merged(self, function: Callable[..., Any], hidden: Sequence[Any], given: Sequence[Any]) -> Any:
        """`function` on all arguments, those that are differentiated being `given` as leaves."""
        return function(*self.arguments(hidden, given))

    def arguments(self, hidden: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """All arguments, those that are differentiated being `given` as leaves."""
        args: list[Any] = [None] * self.count
        for number, value in zip(self.nondiff, self.static_args(hidden)):
            args[number] = value
        for number, value in zip(self.diff, tree.unflatten(self.in_tree, self.as_given(given))):
            args[number] = value
        return args

    def function(self, *operands: Any) -> list[Any]:
        """The flat function."""
        count = len(self.places)
        result = self.merged(self.fun, operands[:count], operands[count:])
        leaves, self.out_tree = tree.flatten(result)
        values = leaf_values(leaves, f"the result of {self.name}")
        self.check_references(values, result, "primal", self.name, ())
        self.out_avals = [type_of(v) for v in values]
        return values

    def primals_out(self, result: Any, rule: str, kind: str) -> list[Any]:
        """The leaves of the results as a rule gives them; TypeError where the function's own differ."""
        leaves, structure = tree.flatten(result)
        values = leaf_values(leaves, f"the primal output of {rule}")
        avals = [type_of(v) for v in values]
        if self.out_avals is not None and not _agree(self.out_tree, self.out_avals, structure, avals):
            found, own = _long(structure, avals), _long(self.out_tree, self.out_avals)
            second = (
                "tangents"
                if kind == "JVP"
                else ("residuals (i.e. values stored from the forward pass for use on the backward pass)")
            )
            rule_kind = kind.split()[-1]
            raise TypeError(
                f"Custom {kind} rule {rule} for function {self.name} must produce a pair (list or tuple of length two) where the "
                f"first element represents the primal output (equal to the output of the custom_{kind[:3].lower()}-decorated function "
                f"{self.name}) and the second element represents {second}, but instead the {rule_kind} rule output's first element had "
                f"shapes/dtypes of:\n    {found}\nwhile the custom_{kind[:3].lower()}-decorated function {self.name} had output "
                f"shapes/dtypes of:\n    {own}\n(got {rule_kind} output type {found} which doesn't match {own}; {current_source().short})"
            )
        self.out_tree = structure
        return values

    def check_references(
        self, values: Sequence[Any], result: Any, role: str, name: str, arguments: Sequence[Any]
    ) -> None:
        """ValueError for a Ref among the results of a function of the user's, but for one of the `arguments`."""
        known = {id(a) for a in arguments}
        for number, value in enumerate(values):
            if is_ref(value) and id(value) not in known:
                where = tree.paths(result)[number]
                raise ValueError(
                    f"{self.kind} {role} function {name} returned a mutable array reference of type {type_of(value).str_long()}"
                    f"{f' at output tree path {where}' if where else ''}{' that was not an argument' if arguments else ''}; "
                    f"return what it holds, ref[...] ({current_source().short})"
                )

    def result(self, values: Sequence[Any]) -> Any:
        return tree.unflatten(self.out_tree, self.as_given(values))


def _agree(tree_a: Any, avals_a: Sequence[ArrayType], tree_b: Any, avals_b: Sequence[ArrayType]) -> bool:
    return tree_a == tree_b and [(a.shape, a.dtype) for a in avals_a] == [(b.shape, b.dtype) for b in avals_b]


def _long(structure: Any, avals: Sequence[ArrayType]) -> str:
    """Types in their tree, as JAX names them: `(float32[3],)`."""
    return str(tree.unflatten(structure, [_Type(a.str_long()) for a in avals]))


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


def residual_leaves(leaves: Sequence[Any], structure: Any, rule: str) -> tuple[list[Any], Callable[..., Any]]:
    """Residuals as arrays, and the function that makes their tree of them again; Python's numbers stay what they are in it."""
    fixed = {n: leaf for n, leaf in enumerate(leaves) if python_scalar(leaf)}  # Python reads them in bwd too
    residuals = leaf_values([v for n, v in enumerate(leaves) if n not in fixed], f"the residuals of {rule}")
    count = len(leaves)  # the function outlives them

    def merged(residuals: Sequence[Any]) -> Any:
        given = iter(residuals)
        return tree.unflatten(structure, [fixed[n] if n in fixed else next(given) for n in range(count)])

    return residuals, merged


def given_tangent(tangent: Any, symbolic: bool) -> Any:
    """A tangent as a user's rule gets it."""
    if type(tangent) is Zero:
        return SymbolicZero(tangent.aval) if symbolic else zeros(tangent.aval)
    return as_given(tangent)


def taken_tangent(leaf: Any) -> Any:
    """A tangent as a user's rule gives it; Zero for symbolic ones and float0."""
    if isinstance(leaf, Zero):
        return Zero(leaf.aval)
    if getattr(leaf, "dtype", None) == float0:
        return leaf
    return standing_for(leaf, as_array(as_value(leaf)))
