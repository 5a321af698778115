"""What transforms share about arguments: which are differentiated, flat functions, and what leaves may be."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.names import function_name
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType, float0, is_complex, is_inexact
from fuser.lax.values import as_value
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.python_numbers import all_as_given, standing_for
from fuser.trace.tangent import Zero, as_array, zeros


def name_of(function: Callable[..., Any]) -> str:
    """What messages call the function."""
    return function_name(function)


def check_callable(function: Any, transform: str) -> None:
    if not callable(function):
        raise TypeError(f"{transform} takes a function, got a {type(function).__name__} ({current_source().short})")


def checked_argnums(argnums: Any, count: int, transform: str, function: Callable[..., Any]) -> tuple[int, ...]:
    """The positions, counted from the front; TypeError where the call has too few arguments."""
    try:
        numbers: tuple[int, ...] = (operator.index(argnums),)
    except TypeError:
        numbers = tuple(operator.index(n) for n in argnums)
    for number in numbers:
        if not -count <= number < count:
            need = number + 1 if number >= 0 else -number
            raise TypeError(
                f"{transform} of {name_of(function)}: differentiating with respect to {argnums=} requires at least {need} "
                f"positional arguments to be passed by the caller, but got only {count} positional arguments.; "
                f"pass them by position ({current_source().short})"
            )
    return tuple(n % count for n in numbers)


def leaf_values(leaves: Sequence[Any], what: str) -> list[Any]:
    """Leaves as arrays; TypeError for what is none."""
    values = []
    for leaf in leaves:
        if getattr(leaf, "dtype", None) == float0:
            values.append(leaf)
            continue
        try:
            values.append(standing_for(leaf, as_value(leaf)))
        except TypeError:
            raise TypeError(
                f"{what}: the leaf {leaf!r} is {dtypes.in_words(leaf)}, which is no array of numbers; "
                f"pass arrays and numbers in tuples, lists, dicts or registered classes ({current_source().short})"
            ) from None
    return values


class Flat:
    """A function on leaves: `flat(*leaves) -> leaves`; the tree of the results is in `out_tree` afterwards.

    With `has_aux` the function gives `(result, aux)`; the leaves of the result come first, `count` of them. What is not
    differentiated reaches the function as the caller gave it, a number of Python's or an array of NumPy's.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        numbers: Sequence[int],
        in_tree: Any,
        has_aux: bool = False,
    ) -> None:
        self.function = function
        self.args = [
            None if n in numbers else a for n, a in enumerate(args)
        ]  # what is differentiated is given at each call
        self.kwargs = kwargs
        self.numbers = numbers
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.out_tree: Any = None
        self.aux_tree: Any = None
        self.result: Any = None
        self.count = 0
        self.plain: dict[int, tuple[Any, Any]] = {}  # by position, a leaf's value and what the caller gave for it

    def __call__(self, *leaves: Any) -> list[Any]:
        args = list(self.args)
        if self.plain:
            leaves = tuple(self._as_given(n, leaf) for n, leaf in enumerate(leaves))
        for number, value in zip(self.numbers, tree.unflatten(self.in_tree, leaves)):
            args[number] = value
        result = self.function(*args, **self.kwargs)
        aux: list[Any] = []
        if self.has_aux:
            if not (isinstance(result, tuple) and len(result) == 2):
                raise TypeError(
                    f"{name_of(self.function)} with has_aux must return a pair (result, aux), got a {type(result).__name__} ({current_source().short})"
                )
            result, extra = result
            aux, self.aux_tree = tree.flatten(extra)
        self.result = result
        out, self.out_tree = tree.flatten(result)
        self.count = len(out)
        what = f"the result of {name_of(self.function)}"
        return [*leaf_values(out, what), *leaf_values(aux, what)]

    def _as_given(self, number: int, leaf: Any) -> Any:
        value, given = self.plain.get(number, (None, leaf))
        return given if leaf is value else leaf

    def results(self, values: Sequence[Any]) -> Any:
        """The tree of the result, without aux."""
        return tree.unflatten(self.out_tree, all_as_given(values[: self.count]))

    def aux(self, values: Sequence[Any]) -> Any:
        return tree.unflatten(self.aux_tree, all_as_given(values[self.count :]))


def flat(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    numbers: Sequence[int],
    has_aux: bool = False,
) -> tuple[Flat, list[Any]]:
    """`function` on the leaves of the arguments at these positions, and those leaves."""
    leaves, in_tree = tree.flatten(tuple(args[n] for n in numbers))
    found = Flat(function, args, kwargs, numbers, in_tree, has_aux)
    values = leaf_values(leaves, f"the arguments of {name_of(function)}")
    for number, (leaf, value) in enumerate(zip(leaves, values)):
        if isinstance(leaf, (int, np.ndarray)) and leaf is not value and not is_inexact(value.dtype):
            found.plain[number] = value, leaf if isinstance(leaf, int) else np.asarray(leaf, value.dtype)
    return found, values


def check_input(aval: ArrayType, transform: str, holomorphic: bool, allow_int: bool) -> None:
    """TypeError for a dtype that the transform does not differentiate by."""
    if holomorphic and not is_complex(aval.dtype):
        raise TypeError(
            f"{transform} with holomorphic=True requires inputs with complex dtype, but got {aval.dtype.name}; "
            f"convert them, or leave holomorphic out ({current_source().short})"
        )
    if not is_inexact(aval.dtype) and not allow_int:
        raise TypeError(
            f"{transform} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got "
            f"{aval.dtype.name}; convert it to a float, "
            f"differentiate by another argument with argnums, or use vjp or allow_int=True ({current_source().short})"
        )


def check_output(aval: ArrayType, transform: str, holomorphic: bool) -> None:
    """TypeError for a result that the transform cannot differentiate."""
    if holomorphic:
        if not is_complex(aval.dtype):
            raise TypeError(
                f"{transform} with holomorphic=True requires outputs with complex dtype, but got {aval.dtype.name} ({current_source().short})"
            )
    elif is_complex(aval.dtype):
        raise TypeError(
            f"{transform} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{aval.dtype.name}; pass holomorphic=True for a holomorphic function, "
            f"or use vjp ({current_source().short})"
        )
    elif not is_inexact(aval.dtype):
        raise TypeError(
            f"{transform} requires real- or complex-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{aval.dtype.name}; use vjp for functions with integer outputs ({current_source().short})"
        )


def cotangent_values(given: Sequence[Any], avals: Sequence[ArrayType], what: str) -> list[Any]:
    """Tangents or cotangents that a user gave, checked against the types they belong to; float0 becomes Zero."""
    values = []
    for leaf, aval in zip(given, avals):
        if getattr(leaf, "dtype", None) == float0 or not is_inexact(aval.dtype):
            values.append(Zero(aval))
            continue
        value = standing_for(leaf, as_array(as_value(leaf)))
        found = type_of(value)
        if found.shape != aval.shape or found.dtype != aval.dtype:
            raise TypeRuleError(f"{what} needs {aval.update(weak_type=False)}, got {found} ({current_source().short})")
        values.append(value)
    return values


def dense(tangents: Sequence[Any]) -> list[Any]:
    """Symbolic zeros as arrays of zeros; float0 for types without derivative."""
    return [zeros(t.aval) if type(t) is Zero else t for t in tangents]


def refuse_axes(reduce_axes: Any, function: str) -> None:
    """NotImplementedError for `reduce_axes`, which JAX took once and refuses now."""
    if reduce_axes:
        raise NotImplementedError(
            f"reduce_axes argument to {function} is deprecated; sum with fuser.lax.psum within the function "
            f"({current_source().short})"
        )
