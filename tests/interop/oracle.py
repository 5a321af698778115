"""The oracle of accelerated functions: the function itself, run by NumPy on copies of the same arguments."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop import accelerate

# Relative and absolute tolerance for results of a dtype: a few roundings of sums and of transcendental functions.
TOLERANCES = {"float16": 4e-3, "float32": 3e-5, "float64": 1e-11, "complex64": 3e-5, "complex128": 1e-11}


def agree(
    function: Callable[..., Any], *args: Any, backend: str = "reference", tolerance: float | None = None, **kwargs: Any
) -> Any:
    """Assert that the accelerated function gives what NumPy gives: values, dtypes, shapes, and scalars for scalars."""
    theirs, mine = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = function(*theirs[0], **theirs[1])
        found = accelerate(function, backend=backend)(
            *mine[0], **mine[1]
        )  # errors ignored: it is the program that answers
    same(wanted, found, tolerance)
    same(theirs, mine, tolerance)  # what is done to the arguments is done to both
    return found


def same(wanted: Any, found: Any, tolerance: float | None = None) -> None:
    """Assert that two results are of one structure, type, dtype and shape, and have the same values."""
    assert type(wanted) is type(found), f"{type(found)} instead of {type(wanted)}: {found!r} against {wanted!r}"
    if isinstance(wanted, (list, tuple)):
        assert len(wanted) == len(found)
        for w, f in zip(wanted, found):
            same(w, f, tolerance)
    elif isinstance(wanted, dict):
        assert wanted.keys() == found.keys()
        for key in wanted:
            same(wanted[key], found[key], tolerance)
    elif isinstance(wanted, (np.ndarray, np.generic)):
        assert wanted.dtype == found.dtype, f"{found.dtype} instead of {wanted.dtype}"
        assert wanted.shape == found.shape, f"{found.shape} instead of {wanted.shape}"
        if isinstance(wanted, np.ndarray) and wanted.size:
            assert _steps(wanted) == _steps(found), f"strides {found.strides} instead of {wanted.strides}"
        if wanted.dtype.names is not None:
            assert wanted.tobytes() == found.tobytes()
            return
        if wanted.dtype.kind in "mM":
            np.testing.assert_array_equal(found.view(np.int64), wanted.view(np.int64))
            return
        bound = TOLERANCES.get(wanted.dtype.name, 0.0) if tolerance is None else tolerance
        np.testing.assert_allclose(found, wanted, rtol=bound, atol=bound)
    elif isinstance(wanted, float):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    else:
        assert wanted == found


def _steps(array: np.ndarray) -> tuple[int, ...]:
    """The strides of dimensions along which there is a step."""
    return tuple(step for step, extent in zip(array.strides, array.shape) if extent > 1)
