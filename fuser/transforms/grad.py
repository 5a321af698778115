"""`grad` and `value_and_grad`: reverse-mode derivatives of functions with one scalar result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuser.frames import hide
from fuser.ir.source import current_source
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.linearize import linearize
from fuser.trace.python_numbers import as_given
from fuser.trace.tangent import full
from fuser.transforms.arguments import (
    check_callable,
    check_input,
    check_output,
    checked_argnums,
    dense,
    flat,
    refuse_axes,
)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable[..., Any]:
    """A function that gives `fun`'s value and its gradient with respect to the arguments at `argnums`.

    `fun` returns a scalar of float dtype (complex with `holomorphic`), or a pair `(scalar, aux)` with `has_aux`. The
    gradient has the tree, shapes and dtypes of the argument, a tuple of them for a sequence of `argnums`. Integer leaves
    are refused, or with `allow_int` have gradients of dtype float0. TypeError for other results.
    """
    refuse_axes(reduce_axes, "value_and_grad")
    check_callable(fun, "value_and_grad")

    @functools.wraps(fun)
    def value_and_grad_of(*args: Any, **kwargs: Any) -> Any:
        try:
            return _value_and_grad(fun, args, kwargs, argnums, has_aux, holomorphic, allow_int)
        except Exception as error:
            raise hide(error)  # noqa: B904

    return value_and_grad_of


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable[..., Any]:
    """A function that gives the gradient of `fun` (with `has_aux`, the gradient and aux); see `value_and_grad`.

    At a tie of max or min each side gets half; at 0 sign and relu have derivative 0, abs 1 and sqrt inf; a `where` passes
    nothing to the branch that is not taken, but a nan made there by 0 * inf stays: guard its argument with a `where` too.
    """
    refuse_axes(reduce_axes, "grad")
    check_callable(fun, "grad")

    @functools.wraps(fun)
    def grad_of(*args: Any, **kwargs: Any) -> Any:
        try:
            value, gradient = _value_and_grad(fun, args, kwargs, argnums, has_aux, holomorphic, allow_int)
        except Exception as error:
            raise hide(error)  # noqa: B904
        return (gradient, value[1]) if has_aux else gradient

    return grad_of


def _value_and_grad(
    fun: Callable[..., Any], args: Any, kwargs: Any, argnums: Any, has_aux: bool, holomorphic: bool, allow_int: bool
) -> Any:
    numbers = checked_argnums(argnums, len(args), "grad", fun)
    function, leaves = flat(fun, args, kwargs, numbers, has_aux)
    for leaf in leaves:
        check_input(type_of(leaf), "grad", holomorphic, allow_int)

    def scalar(*inputs: Any) -> list[Any]:
        outs = function(*inputs)
        _check_scalar(function.result, outs[: function.count], holomorphic)
        return outs

    outs, linear = linearize(scalar, leaves, lambda: 1)
    gradients = dense(linear.pullback([full(type_of(outs[0]), 1)]))
    gradient = tree.unflatten(function.in_tree, gradients)
    value = (as_given(outs[0]), function.aux(outs)) if has_aux else as_given(outs[0])
    return value, gradient if isinstance(argnums, Sequence) else gradient[0]


def _check_scalar(result: Any, outs: Sequence[Any], holomorphic: bool) -> None:
    if len(outs) != 1 or not tree.structure(result).is_leaf():
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output was a {type(result).__name__} with {len(outs)} leaves; "
            f"use has_aux=True for further results, or vjp or jacrev ({current_source().short})"
        )
    aval = type_of(outs[0])
    if aval.shape:
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}; "
            f"sum it, or use vjp or jacrev ({current_source().short})"
        )
    check_output(aval, "grad", holomorphic)
