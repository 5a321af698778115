"""What the distributions share: operands in one floating dtype, and functions that are the exponential of another."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fuser import numpy as fnp
from fuser.ir.types import is_complex
from fuser.lax.values import convert, promote_inexact

Function = Callable[..., Any]


def floats(function: str, *operands: Any) -> list[Any]:
    """The operands in their common real floating dtype, weak only as scalars. ValueError for complex numbers."""
    return [settled(v) for v in adaptable(function, *operands)]


def adaptable(function: str, *operands: Any) -> list[Any]:
    """As `floats`, with whatever weak type promotion gives."""
    values = promote_inexact(function, *operands)
    if any(is_complex(v.dtype) for v in values):
        raise ValueError(f"{function} takes real numbers, got {' and '.join(v.dtype.name for v in values)}")
    return values


def settled(x: Any) -> Any:
    """`x`, without a weak type unless it is a scalar, as JAX's distributions give it."""
    return convert(x, x.dtype) if x.ndim else x


def exponential(name: str, text: str, logarithm: Function) -> Function:
    """exp of a function, with its signature."""

    @functools.wraps(logarithm)
    def function(*args: Any, **kwargs: Any) -> Any:
        return fnp.exp(logarithm(*args, **kwargs))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def logarithm(name: str, text: str, plain: Function) -> Function:
    """The logarithm of a function, with its signature."""

    @functools.wraps(plain)
    def function(*args: Any, **kwargs: Any) -> Any:
        return fnp.log(plain(*args, **kwargs))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def density(log_density: Function) -> Function:
    """The density, from its logarithm."""
    return exponential("pdf", "The density, elementwise: exp(logpdf).", log_density)


def probability(log_mass: Function) -> Function:
    """The probability, from its logarithm."""
    return exponential("pmf", "The probability, elementwise: exp(logpmf).", log_mass)
