"""Structured arrays as arguments: each field of numbers is an argument of its own, a view of the array's memory.

In: an array whose dtype has fields, or a recarray. The traced function sees a `Record`: fields by name, and what is the same for all
of them. What concerns rows as a whole (sorting them, comparing them, returning them) is NumPy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.times import as_time, is_time
from fuser.ir.types import ALL_DTYPES
from fuser.trace import tree

_KINDS = (np.ndarray, np.recarray, np.memmap)


def has_parts(leaf: Any) -> bool:
    """Whether an argument is traced as other arrays in its memory: the fields of a structured array, or the ticks of times."""
    return is_time(leaf) or is_structured(leaf)


def as_parts(leaf: Any) -> Any:
    """What stands for such an argument; any other as it is."""
    return as_time(leaf) if is_time(leaf) else as_record(leaf)


def is_structured(leaf: Any) -> bool:
    """Whether an argument is an array of records whose fields can be traced."""
    return type(leaf) in _KINDS and leaf.dtype.names is not None and leaf.ndim > 0 and bool(_layout(leaf.dtype))


def as_record(leaf: Any) -> Any:
    """A structured array as its fields; anything else as it is."""
    if not is_structured(leaf):
        return leaf
    array = leaf if type(leaf) is np.ndarray else leaf.view(np.ndarray)
    names = _layout(leaf.dtype)
    return Record(
        leaf.dtype,
        leaf.shape,
        type(leaf) is np.recarray,
        {name: as_time(field) if is_time(field := array[name]) else field for name in names},
    )


_layouts: dict[np.dtype, tuple[str, ...]] = {}


def _layout(dtype: np.dtype) -> tuple[str, ...]:
    """The names of fields that can be traced; none where fields share memory."""
    found = _layouts.get(dtype)
    if found is None:
        assert dtype.fields is not None
        fields = sorted((field[1], field[0].itemsize, name) for name, field in dtype.fields.items() if len(field) == 2)
        apart = all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(fields)) and len(fields) == len(dtype.fields)
        kinds = {name: dtype.fields[name][0].base for name in dtype.names or ()}
        names = tuple(
            name for name, kind in kinds.items() if (kind in ALL_DTYPES or kind.kind in "mM") and kind.isnative
        )
        found = _layouts[dtype] = names if apart else ()
    return found


class Record:
    """What stands for a structured array in a traced function."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], attributes: bool, fields: dict[str, Any]) -> None:
        self.dtype, self.shape = dtype, shape
        self._attributes, self._fields = attributes, fields

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that `isinstance(x, np.ndarray)` holds in the traced function
        return np.ndarray

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._field(key)
        if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            return _Part(self, lambda name: self._field(name), tuple(key))
        return _Part(self, lambda name: self._field(name)[key], self.dtype.names or ())

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            raise _whole("rows of a structured array are written as a whole, which")
        field = self._field(key)
        if value is not field:
            field[...] = value

    def _field(self, name: str) -> Any:
        if name not in self._fields:
            if name not in (self.dtype.names or ()):
                raise ValueError(f"no field of name {name}")
            raise untraceable(f"the field {name} of dtype {self.dtype[name]} cannot be traced", "use fields of numbers")
        return self._fields[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._attributes and name in (self.dtype.names or ()) and not hasattr(np.recarray, name):
            return self._field(name)
        raise _whole(f"x.{name} of a structured array")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("dtype", "shape", "_attributes", "_fields") or "_fields" in self.__dict__:
            if not self._attributes or name not in (self.dtype.names or ()):
                raise _whole(f"setting x.{name} of a structured array")
            self[name] = value
        else:
            self.__dict__[name] = value


class _Part:
    """Rows of a structured array, or some of its fields, to be read field by field."""

    def __init__(self, record: Record, field: Callable[[str], Any], names: tuple[str, ...]) -> None:
        self._record, self._read, self._names = record, field, names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) and key in self._names:
            return self._read(key)
        raise _whole("a part of a structured array")

    def __setitem__(self, key: Any, value: Any) -> None:
        field = self[key]
        if value is not field:
            raise _whole("writing to a part of a structured array")

    def __len__(self) -> int:
        return len(self._read(self._names[0]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._record._attributes and name in self._names:
            return self._read(name)
        raise _whole(f"x.{name} of a part of a structured array")


def _whole(what: str) -> UnsupportedError:
    return untraceable(f"{what} cannot be traced", "use its fields")


def _refused(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise _whole("a structured array as a whole")


for _kind in (Record, _Part):
    for _method in ("__array__", "__array_ufunc__", "__array_function__", "__iter__", "__eq__", "__ne__", "__bool__"):
        setattr(_kind, _method, _refused)
    _kind.__hash__ = None  # type: ignore[assignment]


def refuse_record(value: Any) -> None:
    """UnsupportedError for a structured array, or a part of one, among results."""
    if type(value) in (Record, _Part):
        raise _whole("returning a structured array")


tree.register_pytree_node(
    Record,
    lambda record: (
        tuple(record._fields.values()),
        (record.dtype, record.shape, record._attributes, tuple(record._fields)),
    ),
    lambda how, fields: Record(how[0], how[1], how[2], dict(zip(how[3], fields))),
)
