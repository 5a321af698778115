"""NumPy's elementwise functions of `x[mask]`, where the mask is traced: on all elements, selected alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.interop.numpy import numeric  # noqa: F401  whose functions these are
from fuser.interop.numpy.checks import exempted, notice_new
from fuser.interop.numpy.context import Context
from fuser.interop.numpy.dispatch import FUNCTIONS, ON_SELECTED, Handler
from fuser.interop.numpy.selected import Selected, alike, unknown_shape

# By function, how many of its first arguments extend as the result does; what stands behind is read at computed places.
_BROADCAST: dict[Any, int | None] = {
    **dict.fromkeys((np.clip, np.where, np.isclose), None),
    **dict.fromkeys((np.round, np.around, np.nan_to_num, np.fix, np.sinc, np.interp), 1),
}


def _elementwise(function: Any, extending: int | None) -> Handler:
    def handler(context: Context, *args: Any, **kwargs: Any) -> Selected:
        operands = [*args[:extending], *(kwargs.values() if extending is None else ())]
        others = [*args[len(args[:extending]) :], *(kwargs.values() if extending is not None else ())]
        if any(isinstance(other, Selected) for other in others):
            raise unknown_shape()
        like = alike([v for v in operands if v is not None])
        with exempted(masked=True):
            result = FUNCTIONS[function](
                context, *map(_full, args), **{name: _full(value) for name, value in kwargs.items()}
            )
        found = like.alike(result)
        notice_new(result.lifted(), found.mask)
        return found

    return handler


def _full(value: Any) -> Any:
    return value.full() if isinstance(value, Selected) else value


ON_SELECTED.update(
    {function: _elementwise(function, _BROADCAST[function]) for function in _BROADCAST.keys() & FUNCTIONS.keys()}
)
