"""`np.polynomial`'s classes in a traced function: subclasses whose methods are NumPy's own, traced as the user's code is.

Leading coefficients that are computed are taken not to be zero, which NumPy would drop: where one is, that is an event.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre, polynomial, polyutils
from numpy.polynomial._polybase import ABCPolyBase

from fuser.interop import classes
from fuser.interop.guards import Test
from fuser.interop.numpy.checks import notice
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.creation import array
from fuser.interop.numpy.linear import fitted
from fuser.interop.numpy.traced import TracedArray, find_context

if TYPE_CHECKING:
    from fuser.interop.outside import Outside


def stand_in(outside: Outside, value: Any, number: int) -> Any:
    """What stands for a part of `np.polynomial`; None where that is traced as it is."""
    if isinstance(value, type) and issubclass(value, ABCPolyBase) and value is not ABCPolyBase:
        outside.require(number, Test.IS, value)
        return classes.stand_in(outside, value, number, type(value))
    made = _FUNCTIONS.get(value) if isinstance(value, types.FunctionType) else None
    if made is not None:
        outside.require(number, Test.IS, value)
    return made


def _trimmed(seq: Any) -> Any:
    """`polyutils.trimseq`: coefficients without leading zeros."""
    if not isinstance(seq, TracedArray) or seq.known:
        return polyutils.trimseq(seq)
    leading: Any = seq[-1]  # type: ignore[index]
    notice((leading == 0).lifted())
    return seq


def _fit(
    vander: Callable[..., Any], x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None
) -> Any:
    """`polyutils._fit`: least squares in the basis of `vander`."""
    traced = next((a for a in (x, y, w) if isinstance(a, TracedArray)), None)
    if traced is None or full or w is not None or type(deg) is not int or np.ndim(y) != 1 or np.ndim(x) != 1:
        raise untraceable("such a fit of a polynomial cannot be traced", "fit one array, without weights")
    if deg < 0 or len(x) != len(y) or not len(x) or x.dtype.kind not in "iuf":
        raise untraceable("such a fit of a polynomial cannot be traced")
    return fitted(traced._context, vander(x + 0.0, deg), y + 0.0, rcond)


def _line(function: Callable[..., Any]) -> Callable[..., Any]:
    """`polyline` and its sisters: the coefficients of `off + scl * x`."""
    constant, linear = function(0.0, 1.0)

    def line(off: Any, scl: Any) -> Any:
        context = find_context(off, scl)
        if context is None or not isinstance(scl, TracedArray) or scl.known:
            return function(off, scl)
        scale: Any = scl
        notice((scale == 0).lifted())
        return array(context, [off + constant * scale, linear * scale])

    return line


_LINES = (
    polynomial.polyline,
    chebyshev.chebline,
    legendre.legline,
    hermite.hermline,
    hermite_e.hermeline,
    laguerre.lagline,
)
_FUNCTIONS: dict[Any, Any] = {
    polyutils.trimseq: _trimmed,
    polyutils._fit: _fit,
    **{function: _line(function) for function in _LINES},
}
