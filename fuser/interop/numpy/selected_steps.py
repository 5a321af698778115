"""Functions of `x[mask]`, for a traced mask, that run in NumPy between kernels: what is selected is compacted before.

Those whose results have the same types for any number of elements: order statistics, histograms, correlations, fits. NumPy itself says
so, by a run on samples of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy.context import Context
from fuser.interop.numpy.dispatch import ON_SELECTED, Handler
from fuser.interop.numpy.library import call_numpy
from fuser.interop.numpy.reductions import is_long
from fuser.interop.numpy.selected import Selected, unknown_shape
from fuser.interop.numpy.substitutes import faster, item
from fuser.interop.numpy.traced import TracedArray
from fuser.trace.tree import flatten_as_filled, unflatten

_FUNCTIONS = (
    "median",
    "percentile",
    "quantile",
    "histogram",
    "corrcoef",
    "cov",
    "polyfit",
    "ptp",
    "trapezoid",
    "interp",
)


def _handler(function: Callable[..., Any], otherwise: Handler | None) -> Handler:
    def handler(context: Context, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten_as_filled((args, kwargs))
        selections = [leaf for leaf in leaves if isinstance(leaf, Selected)]
        if otherwise is not None and (context.logs or not is_long(context, selections[0].full(), None)):
            return otherwise(context, *args, **kwargs)
        if any(x.along is not None and len(x.along) != 1 for x in selections):
            raise unknown_shape()
        axes = [next(iter(x.along)) if x.along is not None else 0 for x in selections]

        def compacted(*parts: Any) -> Any:
            """`function` of what masks select: first masks and all elements by turns, then the other arguments' leaves."""
            pairs = iter(zip(parts[::2], parts[1::2], axes))
            rest = iter(parts[2 * len(axes) :])
            given = [_selected(*next(pairs)) if isinstance(leaf, Selected) else next(rest) for leaf in leaves]
            positional, named = unflatten(structure, given)
            return faster(function)(*positional, **named)

        masks = [TracedArray(context, x.mask if x.along is None else x.along[a]) for x, a in zip(selections, axes)]
        fulls = [x.full() for x in selections]
        rest = [leaf for leaf in leaves if not isinstance(leaf, Selected)]
        given = [part for pair in zip(masks, fulls) for part in pair]
        return call_numpy(context, compacted, (*given, *rest), {}, masks=len(masks))

    return handler


def _selected(mask: np.ndarray, full: np.ndarray, axis: int) -> np.ndarray:
    index: tuple[Any, ...] = (*[slice(None)] * axis, mask)
    return full[index] if axis else item(full, mask)  # type: ignore[no-any-return]


for _name in _FUNCTIONS:
    if (_function := getattr(np, _name, None)) is not None:
        ON_SELECTED[_function] = _handler(_function, ON_SELECTED.get(_function))
