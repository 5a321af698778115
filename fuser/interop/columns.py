"""Columns of pandas, polars and xarray as arguments of accelerated functions: their memory in, the same kind out.

The function sees arrays: a Series or DataArray as an array, a DataFrame as a dict of its numeric columns. No library is imported here
that the arguments do not come from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.interop.numpy.context import untraceable
from fuser.interop.read_only import ReadOnlyDict
from fuser.interop.trial import SLOWER, Trial
from fuser.ir.types import ALL_DTYPES
from fuser.trace import tree

LIBRARYS_OWN = ("std", "var")  # methods that divide by n - 1 in pandas and polars
_LIBRARIES = {"pandas": ("Series", "DataFrame"), "polars": ("Series", "DataFrame"), "xarray": ("DataArray",)}


class Frame(ReadOnlyDict):
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


_library_of_kind: dict[type, str] = {}  # of columns and frames


def library_of(leaf: Any) -> str | None:
    """The library that an argument is a column or frame of."""
    kind = type(leaf)
    found = _library_of_kind.get(kind)
    if found is None:
        name = kind.__module__.partition(".")[0]
        if name in _LIBRARIES and issubclass(kind, _kinds(name)):
            found = _library_of_kind[kind] = name
    return found


def _kinds(library: str) -> tuple[type, ...]:
    return tuple(getattr(sys.modules[library], kind) for kind in _LIBRARIES[library])


def _is_frame(leaf: Any) -> bool:
    """Whether a column or frame is a frame; to ask a Series for `columns` takes longer than a whole program."""
    return any(kind.__name__ == "DataFrame" for kind in type(leaf).__mro__)


_CONTAINERS = (list, tuple, dict)


def _columns_of(args: Any, kwargs: Any) -> list[Any]:
    """The columns and frames among a call's arguments."""
    plain = not kwargs and not any(isinstance(arg, _CONTAINERS) for arg in args)
    return [leaf for leaf in (args if plain else tree.leaves((args, kwargs))) if library_of(leaf)]


def as_arrays(args: Any, kwargs: Any) -> tuple[Any, Any, list[Any]]:
    """The arguments with arrays in the place of columns and dicts in that of frames, and the columns and frames.

    UnsupportedError where they are of several libraries, differ in their rows, or hold what no array of numbers does.
    """
    columns = _columns_of(args, kwargs)
    if columns:
        _check_rows(columns)
        if not kwargs and not any(isinstance(arg, _CONTAINERS) for arg in args):
            return tuple([_arrays(arg) if library_of(arg) else arg for arg in args]), kwargs, columns
        args, kwargs = tree.map_as_filled(lambda leaf: _arrays(leaf) if library_of(leaf) else leaf, (args, kwargs))
    return args, kwargs, columns


def with_columns(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`function` of arrays, called with columns; results as long as these are columns like the first."""
    args, kwargs, columns = as_arrays(args, kwargs)
    return _LIKE[library_of(columns[0])](columns, function(*args, **kwargs))


def like_columns(args: Any, kwargs: Any, result: Any) -> Any:
    """What the library gave, as `with_columns` gives it: of the same types, whichever of both answers."""
    columns = _columns_of(args, kwargs)
    return _LIKE[library_of(columns[0])](columns, result)


class ByColumns:
    """Calls of a function with columns: `whole` of their memory, or `function` of themselves where `whole` gives `not_whole` or takes longer.

    `differs`: it may call methods that are of another meaning in their library than in NumPy.
    """

    def __init__(self, whole: Any, function: Callable[..., Any], not_whole: Any, differs: bool) -> None:
        self.whole, self._function, self._not_whole, self._differs = whole, function, not_whole, differs
        self._ways: dict[Any, Callable[[Any, Any], Any]] = {}  # by the kinds and shapes of columns

    def __call__(self, args: Any, kwargs: Any) -> Any:
        columns = _columns_of(args, kwargs)
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
        return like_columns(args, kwargs, self._function(*args, **kwargs))

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
    if not _is_frame(leaf):
        return _array(leaf)
    if library_of(leaf) == "polars":
        return Frame({column.name: _array(column) for column in leaf if _is_numeric(column)})
    names, memory = leaf.columns, getattr(leaf, "_iter_column_arrays", None)
    if memory is None or not names.is_unique:
        return Frame({name: _array(leaf[name]) for name in names if _is_numeric(leaf[name])})
    pairs = zip(names, memory())  # without a Series of each column
    return Frame({name: _without_nans(data, name) for name, data in pairs if type(data) is np.ndarray and _known(data)})


_dtypes = frozenset(ALL_DTYPES)


def _known(data: Any) -> bool:
    return data.dtype in _dtypes


def _is_numeric(column: Any) -> bool:
    dtype = column.dtype
    return dtype in _dtypes if isinstance(dtype, np.dtype) else _is_polars(column) and dtype.is_numeric()


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
    return _without_nans(data, name)


def _without_nans(data: np.ndarray, name: Any) -> np.ndarray:
    if data.dtype.kind == "f" and data.size and (least := np.minimum.reduce(data, axis=None)) != least:
        raise untraceable(
            f"{name} has nans, which its library's sums leave out, and cannot be traced", "use fillna first"
        )
    return data


def _name(columns: Sequence[Any]) -> Any:
    """The name of a result: that of all columns, if they share one."""
    names = {None if _is_frame(column) else column.name for column in columns}
    return names.pop() if len(names) == 1 else None


def _like_pandas(columns: Sequence[Any], result: Any) -> Any:
    pandas, index = sys.modules["pandas"], columns[0].index
    count = len(index)

    def column(leaf: Any) -> Any:
        named = _is_column(leaf, count)
        return pandas.Series(leaf, index=index, name=_name(columns), copy=False) if named else leaf

    if _is_framed(columns[0], result, count):
        return pandas.DataFrame(result, index=index, copy=False)
    return _mapped(column, result)


def _mapped(column: Callable[[Any], Any], result: Any) -> Any:
    if isinstance(result, _CONTAINERS):
        return tree.map_as_filled(column, result)
    return column(result) if isinstance(result, np.ndarray) else result


def _like_polars(columns: Sequence[Any], result: Any) -> Any:
    polars, count = sys.modules["polars"], len(columns[0])

    def column(leaf: Any) -> Any:
        return polars.Series(_name(columns) or "", leaf) if _is_column(leaf, count) else leaf

    if _is_framed(columns[0], result, count):
        return polars.DataFrame(result)
    return _mapped(column, result)


def _like_xarray(columns: Sequence[Any], result: Any) -> Any:
    def array(leaf: Any) -> Any:
        like = next((c for c in columns if isinstance(leaf, np.ndarray) and c.shape == leaf.shape), None)
        if like is None:
            return leaf
        made = like.copy(deep=False, data=leaf)
        made.name = _name(columns)
        return made

    return _mapped(array, result)


def _is_column(leaf: Any, count: int) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.shape == (count,)


def _is_framed(like: Any, result: Any, count: int) -> bool:
    if not (isinstance(result, dict) and _is_frame(like)):
        return False
    return all(
        _is_column(v, count) or (library_of(v) is not None and not _is_frame(v) and len(v) == count)
        for v in result.values()
    )


_LIKE: dict[str | None, Callable[[Sequence[Any], Any], Any]] = {
    "pandas": _like_pandas,
    "polars": _like_polars,
    "xarray": _like_xarray,
}
