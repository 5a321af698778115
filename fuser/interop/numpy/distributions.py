"""Distributions of `scipy.stats` in accelerated functions: densities, probabilities and quantiles of continuous ones are traced.

A method of SciPy's checks its arguments, then calls the distribution's own formula (`_pdf`, `_cdf`, ...) where they are inside the
support. The formula runs here as it is, on traced arrays, and a select takes the place of the mask. Formulas that need values
(integrals, searches for a root) are steps of the program that call SciPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import exempted
from fuser.interop.numpy.context import Context, TooManyOperations, untraceable
from fuser.interop.numpy.traced import TracedArray, find_context


@dataclass(frozen=True)
class Rule:
    """A method: its value outside of the support, and at or beyond an end of it ("upper", "lower"), where it is another there.

    `closed`: whether the support's ends belong to it. `scaled`: whether the formula's value is divided by the scale.
    """

    outside: float
    end: str = ""
    beyond: float = 0.0
    closed: bool = False
    scaled: Callable[[Any, Any], Any] | None = None


RULES = {
    "pdf": Rule(0.0, closed=True, scaled=lambda value, scale: value / scale),
    "logpdf": Rule(-np.inf, closed=True, scaled=lambda value, scale: value - np.log(scale)),
    "cdf": Rule(0.0, "upper", 1.0),
    "logcdf": Rule(-np.inf, "upper", 0.0),
    "sf": Rule(0.0, "lower", 1.0),
    "logsf": Rule(-np.inf, "lower", 0.0),
}
QUANTILES = {"ppf": (0.0, 1.0), "isf": (1.0, 0.0)}  # where the lower and the upper end of the support are taken
_HOSTED = (
    "pmf",
    "logpmf",
    "mean",
    "var",
    "std",
    "median",
    "entropy",
    "interval",
    "stats",
    "moment",
    *RULES,
    *QUANTILES,
)


def is_distribution(value: Any) -> bool:
    """Whether a value is a distribution of scipy.stats, with or without its parameters."""
    module = sys.modules.get("scipy.stats._distn_infrastructure")
    return module is not None and isinstance(value, (module.rv_generic, module.rv_frozen))


class TracedDistribution:
    """What stands for a distribution: its methods take traced arrays."""

    def __init__(self, distribution: Any) -> None:
        self._distribution = distribution

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The distribution with these parameters, which may be traced."""
        if find_context(*args, *kwargs.values()) is None:
            return TracedDistribution(self._distribution(*args, **kwargs))
        return _Frozen(self._distribution, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        distribution = self._distribution
        if hasattr(distribution, "dist"):
            return getattr(_Frozen(distribution.dist, distribution.args, distribution.kwds), name)
        return _method(distribution, name)


class _Frozen:
    """A distribution with its parameters."""

    def __init__(self, distribution: Any, args: Any, kwargs: Any) -> None:
        self._distribution, self._args, self._kwargs = distribution, args, kwargs

    def __getattr__(self, name: str) -> Any:
        method = _method(self._distribution, name)
        return lambda *given, **named: method(*given, *self._args, **{**self._kwargs, **named})


def _method(distribution: Any, name: str) -> Any:
    function = getattr(distribution, name)
    if not callable(function):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        from fuser.interop.numpy.dispatch import unwrap, wrap_known
        from fuser.interop.numpy.library import call_numpy
        from fuser.interop.numpy.scipy import any_unknown

        context = find_context(*args, *kwargs.values())
        if name not in _HOSTED:
            raise untraceable(f"scipy.stats.{distribution.name}.{name} cannot be traced", "call it outside")
        if context is None:
            return function(*args, **kwargs)
        if not any_unknown((args, list(kwargs.values()))):
            return wrap_known(context, function(*unwrap(args), **unwrap(kwargs)))
        found = _traced(context, distribution, name, args, kwargs)
        return call_numpy(context, function, args, kwargs) if found is NotImplemented else found

    return call


def _traced(context: Context, distribution: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The method's value by operations of the program; NotImplemented where SciPy is to answer."""
    formula = getattr(distribution, f"_{name}", None)
    if formula is None or not hasattr(distribution, "_pdf") or (name not in RULES and name not in QUANTILES):
        return NotImplemented
    try:
        (x, *given), named = args, kwargs
        parameters, loc, scale = distribution._parse_args(*given, **named)
        arguments = [_number(v) for v in (x, *parameters, loc, scale)]
        if any(a is None for a in arguments):
            return NotImplemented
        x, *shapes, loc, scale = arguments
        valid = _valid(distribution, shapes, scale)
        if valid is None:
            return NotImplemented
        support = distribution._get_support(*shapes)
        if any(isinstance(end, TracedArray) and not end.known for end in support):
            return NotImplemented
        with exempted(masked=True):  # SciPy tells of none: it computes within the support alone
            if name in QUANTILES:
                return _quantile(name, formula, x, shapes, loc, scale, support, valid)
            return _of_values(distribution, RULES[name], formula, x, shapes, loc, scale, support, valid)
    except TooManyOperations:
        raise
    except Exception:  # of a formula that is for ndarrays alone, or arguments for which SciPy has words
        return NotImplemented


def _number(value: Any) -> Any:
    """An argument as SciPy's methods take it: an array of numbers; None for what is none."""
    if isinstance(value, TracedArray):
        return value if value.dtype.kind in "iuf" else None
    array = np.asarray(value)
    return array if array.dtype.kind in "iuf" else None


def _valid(distribution: Any, shapes: list[Any], scale: Any) -> Any:
    """Where parameters are valid: True for all, or a traced mask; None where some known ones are not, or only SciPy knows."""
    valid: Any = True
    if any(isinstance(shape, TracedArray) for shape in shapes):
        generic = sys.modules["scipy.stats._distn_infrastructure"].rv_generic._argcheck
        if getattr(type(distribution), "_argcheck", None) is not generic:
            return None
        checked = [shape > 0 for shape in shapes]
    else:
        checked = [np.asarray(distribution._argcheck(*shapes), bool)]
    for condition in (*checked, scale > 0):
        if isinstance(condition, TracedArray):
            valid = condition if valid is True else valid & condition
        elif not np.all(condition):
            return None
    return valid


def _of_values(
    distribution: Any, rule: Rule, formula: Any, x: Any, shapes: Any, loc: Any, scale: Any, support: Any, valid: Any
) -> Any:
    z = (np.multiply(x, np.float64(1)) - loc) / scale
    low, high = support
    inside = (distribution._support_mask if rule.closed else distribution._open_support_mask)(z, *shapes)
    value = formula(z, *shapes)
    if rule.scaled is not None and not _is_one(scale):
        value = rule.scaled(value, scale)
    found = np.where(inside, value, rule.outside)
    if rule.end:
        found = np.where(z >= high if rule.end == "upper" else z <= low, rule.beyond, found)
    return _where_valid(found, np.isnan(z), valid)


def _quantile(name: str, formula: Any, q: Any, shapes: Any, loc: Any, scale: Any, support: Any, valid: Any) -> Any:
    at_low, at_high = QUANTILES[name]
    inside = (q > 0) & (q < 1)
    found = np.where(inside, formula(q, *shapes) * scale + loc, np.nan)
    for at, end in ((at_low, support[0]), (at_high, support[1])):
        found = np.where(q == at, end * scale + loc, found)
    return _where_valid(found, np.isnan(loc), valid)


def _where_valid(found: Any, unknown: Any, valid: Any) -> Any:
    if valid is not True:
        unknown = unknown | ~valid
    known = isinstance(unknown, np.bool_) and not unknown
    return (found if known else np.where(unknown, np.nan, found))[()]


def _is_one(scale: Any) -> bool:
    return isinstance(scale, np.ndarray) and scale.ndim == 0 and bool(scale == 1)
