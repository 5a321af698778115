"""SciPy's functions in accelerated functions: special functions are traced, others are steps of the program that call SciPy.

A function of `HOSTED` modules is called between kernels with the values that have been computed. Its result has the shapes that a
sample gives; where a call's values give others, NumPy and SciPy answer the whole call.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import exempted
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.distributions import TracedDistribution, is_distribution
from fuser.interop.numpy.traced import TracedArray, find_context

HOSTED = ("scipy.ndimage", "scipy.signal", "scipy.special", "scipy.linalg", "scipy.fft", "scipy.spatial.distance")
_FUNCTIONS = {  # of modules whose other functions draw random numbers, search, or give objects
    "scipy.stats": (
        *(
            "rankdata",
            "zscore",
            "zmap",
            "gmean",
            "hmean",
            "pmean",
            "skew",
            "kurtosis",
            "moment",
            "sem",
            "iqr",
            "variation",
        ),
        *("trim_mean", "tmean", "tvar", "tstd", "gstd", "entropy", "median_abs_deviation", "boxcox_llf"),
    ),
    "scipy.integrate": ("trapezoid", "simpson", "cumulative_trapezoid", "cumulative_simpson"),
}
_SAME = (
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "gammaln",
    "ndtr",
    "ndtri",
    "log_ndtr",
    "i0",
    "i1",
    "j0",
    "j1",
    "xlogy",
    "xlog1py",
    "entr",
)


def traced_ufuncs() -> dict[Any, Callable[..., Any]]:
    """SciPy's ufuncs that fuser.scipy.special computes, once SciPy has been imported."""
    special = sys.modules.get("scipy.special")
    return {} if special is None else {getattr(special, name): _function(name) for name in _SAME}


def _function(name: str) -> Callable[..., Any]:
    def function(*operands: Any) -> Any:
        import fuser.scipy.special

        with exempted(masked=True):  # SciPy tells of no infinities
            return getattr(fuser.scipy.special, name)(*operands)

    return function


def hosted_ufunc(context: Context, ufunc: np.ufunc, inputs: Any) -> Any:
    """A ufunc that no kernel has, by its own loops."""
    from fuser.interop.numpy.library import call_numpy

    return call_numpy(context, ufunc, inputs, {})


class HostedModule(types.ModuleType):
    """A module of SciPy whose functions take traced arrays."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return stand_in(getattr(self._module, name))


def has_stand_in(value: Any) -> bool:
    """Whether something stands for a value in a traced function: a module of SciPy, a function of one, a distribution."""
    owner = getattr(value, "__self__", None)
    of_scipy = getattr(value, "__name__", "").split(".")[0] == "scipy"
    return of_scipy or is_hosted(value) or is_distribution(value) or is_distribution(owner)


def stand_in(value: Any) -> Any:
    """What stands for a module of SciPy, a function of one, a distribution, or a method of one."""
    if isinstance(value, types.ModuleType):
        return HostedModule(value) if value.__name__.split(".")[0] == "scipy" else value
    if is_distribution(value):
        return TracedDistribution(value)
    if is_distribution(getattr(value, "__self__", None)):
        return getattr(TracedDistribution(value.__self__), value.__name__)
    return _hosted(value) if is_hosted(value) else value


def is_hosted(value: Any) -> bool:
    """Whether a value is a function of a module whose functions are steps of the program; ufuncs find their way themselves."""
    if isinstance(value, (type, np.ufunc)) or not callable(value):
        return False
    module = str(getattr(value, "__module__", ""))
    if module.startswith(HOSTED):
        return True
    names = _FUNCTIONS.get(".".join(module.split(".")[:2]), ())
    return getattr(value, "__name__", None) in names


def _hosted(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        from fuser.interop.numpy.dispatch import unwrap, wrap_known
        from fuser.interop.numpy.library import call_numpy

        context = find_context(*args, *kwargs.values())
        if context is None:
            return function(*args, **kwargs)
        if not any_unknown((args, list(kwargs.values()))):
            return wrap_known(context, function(*unwrap(args), **unwrap(kwargs)))
        if isinstance(kwargs.get("output"), TracedArray):
            raise untraceable(f"{function.__name__} with output= cannot be traced", "assign the result: y[...] = ...")
        found = _filtered(context, function, args, kwargs)
        if found is not NotImplemented:
            return found
        try:
            return call_numpy(context, function, args, kwargs)
        except (TypeError, ValueError) as error:
            name = f"{function.__module__.split('._')[0]}.{function.__name__}"
            raise untraceable(f"{name} of a sample failed ({error}), so its results' shapes are not known") from None

    call.__name__ = function.__name__
    return call


def _filtered(context: Context, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a filter that is traced; NotImplemented for others, and for arguments that SciPy is to answer for."""
    from fuser.interop.numpy.filters import FILTERS

    module = ".".join(str(function.__module__).split(".")[:2])
    traced = FILTERS.get((module, function.__name__))
    try:
        return NotImplemented if traced is None else traced(context, *args, **kwargs)
    except (TypeError, ValueError):  # SciPy says what is wrong with the arguments
        return NotImplemented


def any_unknown(value: Any) -> bool:
    """Whether traced arrays whose values are not known are in a tree of tuples and lists."""
    if isinstance(value, (tuple, list)):
        return any(any_unknown(v) for v in value)
    return isinstance(value, TracedArray) and not value.known
