"""Columns of pandas, polars and xarray as arguments of accelerated functions: their memory in, the same kind out.

The function sees arrays: a Series or DataArray as an array, a DataFrame as a dict of its numeric columns. No library is imported here
that the arguments do not come from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.interop.held import HeldDict
from fuser.interop.numpy.context import untraceable
from fuser.interop.trial import SLOWER, Trial
from fuser.ir.types import ALL_DTYPES
from fuser.trace import tree

LIBRARYS_OWN = ("std", "var")  # methods that divide by n - 1 in pandas and polars
_LIBRARIES = {"pandas": ("Series", "DataFrame"), "polars": ("Series", "DataFrame"), "xarray": ("DataArray",)}


class Frame(HeldDict):
    """The columns of a frame by name, to be read; what a frame answers otherwise than a dict is refused, so that its library answers."""

    name = "frame"

    def __len__(self) -> int:
        raise untraceable("the number of a frame's rows cannot be traced", "take it of a column")

    def __eq__(self, other: Any) -> Any:
        raise untraceable("a comparison with a whole frame cannot be traced", "compare its columns")

    __hash__ = None  # type: ignore[assignment]


tree.register_pytree_node(
    Frame, lambda frame: (tuple(frame.values()), tuple(frame.keys())), lambda names, columns: Frame(zip(names, columns))
)


def library_of(leaf: Any) -> str | None:
    """The library that an argument is a column or frame of."""
    name = type(leaf).__module__.partition(".")[0]
    return name if name in _LIBRARIES and isinstance(leaf, _kinds(name)) else None


def _kinds(library: str) -> tuple[type, ...]:
    return tuple(getattr(sys.modules[library], kind) for kind in _LIBRARIES[library])


def as_arrays(arguments: Any) -> tuple[Any, list[Any]]:
    """The arguments with arrays in the place of columns and dicts in that of frames, and the columns and frames.

    UnsupportedError where they are of several libraries, differ in their rows, or hold what no array of numbers does.
    """
    columns = [leaf for leaf in tree.leaves(arguments) if library_of(leaf)]
    if columns:
        _check_rows(columns)
        arguments = tree.map(lambda leaf: _arrays(leaf) if library_of(leaf) else leaf, arguments)
    return arguments, columns


def with_columns(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`function` of arrays, called with columns; results as long as these are columns like the first."""
    (args, kwargs), columns = as_arrays((args, kwargs))
    return _LIKE[library_of(columns[0])](columns, function(*args, **kwargs))


class ByColumns:
    """Calls of a function with columns: `whole` of their memory, or `function` of themselves where `whole` gives `not_whole` or takes longer.

    `differs`: it may call methods that are of another meaning in their library than in NumPy.
    """

    def __init__(self, whole: Any, function: Callable[..., Any], not_whole: Any, differs: bool) -> None:
        self.whole, self._function, self._not_whole, self._differs = whole, function, not_whole, differs
        self._ways: dict[Any, Callable[[Any, Any], Any]] = {}  # by the kinds and shapes of columns

    def __call__(self, args: Any, kwargs: Any) -> Any:
        columns = [leaf for leaf in tree.leaves((args, kwargs)) if library_of(leaf)]
        key = tuple([(type(column), column.shape) for column in columns])
        way = self._ways.get(key)
        if way is None:
            way = self._of_columns if self._differs else self._trial(key) if self.whole.measure else self._of_memory
            self._ways[key] = way
        return way(args, kwargs)

    def _of_memory(self, args: Any, kwargs: Any) -> Any:
        result = with_columns(self.whole, args, kwargs)
        return self._of_columns(args, kwargs) if result is self._not_whole else result

    def _of_columns(self, args: Any, kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def _trial(self, key: Any) -> Trial:
        def decided(ratio: float) -> None:
            self._ways[key] = self._of_columns if ratio > SLOWER else self._of_memory

        return Trial(self._of_memory, self._of_columns, lambda: None if self.whole.measuring else (), decided)


def _check_rows(columns: Sequence[Any]) -> None:
    first = columns[0]
    library = library_of(first)
    for other in columns[1:]:
        if library_of(other) != library:
            raise untraceable(
                f"columns of {library} and {library_of(other)} in one call cannot be traced", "use one library"
            )
        if library == "pandas" and other.index is not first.index and not other.index.equals(first.index):
            raise untraceable("columns with different indexes cannot be traced", "align them first: a.align(b)")
        if library == "polars" and len(other) != len(first):
            raise untraceable(
                f"columns of {len(first)} and {len(other)} rows cannot be traced", "give columns of one length"
            )
        if library == "xarray" and not all(other[d].equals(first[d]) for d in other.dims if d in first.dims):
            raise untraceable(
                "arrays with different coordinates cannot be traced", "align them first: xarray.align(a, b)"
            )


def _arrays(leaf: Any) -> Any:
    """The memory of a column, or of the numeric columns of a frame by name."""
    if not hasattr(leaf, "columns"):
        return _array(leaf)
    return Frame({name: _array(leaf[name]) for name in leaf.columns if _is_numeric(leaf[name])})


def _is_numeric(column: Any) -> bool:
    dtype = column.dtype
    return dtype in ALL_DTYPES if isinstance(dtype, np.dtype) else _is_polars(column) and dtype.is_numeric()


def _is_polars(column: Any) -> bool:
    return library_of(column) == "polars"


def _array(column: Any) -> np.ndarray:
    name = column.name if column.name is not None else "the column"
    if not (_is_numeric(column) or (_is_polars(column) and str(column.dtype) == "Boolean")):
        raise untraceable(f"{name} of dtype {column.dtype} cannot be traced", "give columns of NumPy's numbers")
    if _is_polars(column):
        if column.null_count():
            raise untraceable(f"{name} has {column.null_count()} nulls and cannot be traced", "use fill_null first")
        return np.asarray(column.to_numpy())
    data = column.data if library_of(column) == "xarray" else column.to_numpy()
    if type(data) is not np.ndarray:
        raise untraceable(f"{name} lies in a {type(data).__name__} and cannot be traced", "use .compute() first")
    if data.dtype.kind == "f" and data.size and np.isnan(data.min()):
        raise untraceable(
            f"{name} has nans, which its library's sums leave out, and cannot be traced", "use fillna first"
        )
    return data


def _name(columns: Sequence[Any]) -> Any:
    """The name of a result: that of all columns, if they share one."""
    names = {getattr(column, "name", None) for column in columns}
    return names.pop() if len(names) == 1 else None


def _like_pandas(columns: Sequence[Any], result: Any) -> Any:
    pandas, index = sys.modules["pandas"], columns[0].index

    def column(leaf: Any) -> Any:
        return (
            pandas.Series(leaf, index=index, name=_name(columns), copy=False) if _is_column(leaf, len(index)) else leaf
        )

    if _is_frame(columns[0], result, len(index)):
        return pandas.DataFrame(result, index=index, copy=False)
    return tree.map(column, result)


def _like_polars(columns: Sequence[Any], result: Any) -> Any:
    polars, count = sys.modules["polars"], len(columns[0])

    def column(leaf: Any) -> Any:
        return polars.Series(_name(columns) or "", leaf) if _is_column(leaf, count) else leaf

    if _is_frame(columns[0], result, count):
        return polars.DataFrame(result)
    return tree.map(column, result)


def _like_xarray(columns: Sequence[Any], result: Any) -> Any:
    def array(leaf: Any) -> Any:
        like = next((c for c in columns if isinstance(leaf, np.ndarray) and c.shape == leaf.shape), None)
        if like is None:
            return leaf
        made = like.copy(deep=False, data=leaf)
        made.name = _name(columns)
        return made

    return tree.map(array, result)


def _is_column(leaf: Any, count: int) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.shape == (count,)


def _is_frame(like: Any, result: Any, count: int) -> bool:
    return isinstance(result, dict) and hasattr(like, "columns") and all(_is_column(v, count) for v in result.values())


_LIKE: dict[str | None, Callable[[Sequence[Any], Any], Any]] = {
    "pandas": _like_pandas,
    "polars": _like_polars,
    "xarray": _like_xarray,
}
