"""Sorts and top_k by stable orders of words: keys become unsigned integers in the order of the values, the least word comes first,
and what is carried along is gathered by the positions. Of long rows the elements that top_k gives are selected before they are ordered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.ops import elementwise as el
from fuser.ops.conversion import bitcast_convert_type_p
from fuser.ops.family import constant
from fuser.ops.indexing import take_along
from fuser.ops.movement import broadcast_in_dim_p, iota_p, reshape_p, slice_p, transpose_p
from fuser.ops.order import FLOAT, POSITION, WORD, order_p
from fuser.ops.selection import MOST_SELECTED, SELECTED, select_largest_p
from fuser.trace.core import type_of

IN_REGISTERS = 1024  # elements of a row that is ordered by one program
SHORTEST, MANY = 256, 1 << 20  # elements of a shorter row of which some are selected, and of all rows then

Word = tuple[Any, int]  # an array of u32, and how many bits its elements have; or of f32


def sort(*operands: Any, dimension: int, is_stable: bool = True, num_keys: int = 1) -> list[Any]:
    shape = type_of(operands[0]).shape
    if not math.prod(shape):
        return list(operands)
    if len(operands) == 1 and (read := _from_words(_rows(operands[0], dimension))) is not None:
        return [_from_rows(read, shape, dimension)]
    rows = [_rows(x, dimension) for x in operands]
    words = [word for key in rows[:num_keys] for part in _parts(key) for word in _keys(part)]
    order = ordered(words)
    return [_from_rows(take_along(x, order, 1), shape, dimension) for x in rows]


def top_k(x: Any, k: int, axis: int | None = None, **unread: Any) -> list[Any]:
    """The complement of the total order ascends, so the first of equals comes first."""
    aval = type_of(x)
    dimension = aval.ndim - 1 if axis is None else axis
    if not math.prod(aval.shape) or not k:
        kept = [(0, k if d == dimension else e) for d, e in enumerate(aval.shape)]
        none = _sliced(x, kept)
        return [none, iota_p.bind(dtype=POSITION, shape=type_of(none).shape, dimension=dimension)]
    rows = _rows(x, dimension)
    order = _selected(rows, k) if _selects(rows, k) else _first(rows, k)
    shape = tuple(k if d == dimension else e for d, e in enumerate(aval.shape))
    return [_from_rows(found, shape, dimension) for found in (take_along(rows, order, 1), order)]


def _first(rows: Any, k: int) -> Any:
    """The positions of the k largest of each row by an order of the row."""
    order = ordered([(_complement(word, bits), bits) for word, bits in _words(rows)])
    return _sliced(order, [(0, rows.shape[0]), (0, k)])


def _selected(rows: Any, k: int) -> Any:
    """The same by an order of the k alone. They are in the order of positions, so that equal ones keep theirs."""
    positions = select_largest_p.bind(rows, k=k)
    order = _first(take_along(rows, positions, 1), k)
    return take_along(positions, order, 1)


def _selects(rows: Any, k: int) -> bool:
    """Whether the k are selected first: they are few beside a row, and rows are long, or so many that further launches are little
    beside putting all of each row in order."""
    aval = type_of(rows)
    count, length = aval.shape
    if aval.dtype not in SELECTED or k > min(MOST_SELECTED, length // 2):
        return False
    return length > IN_REGISTERS or (length >= SHORTEST and count * length >= MANY)


def _from_words(rows: Any) -> Any:
    """Sorted rows as they are ordered, or read from their ordered words where equal elements have equal bits; None elsewhere."""
    dtype = type_of(rows).dtype
    if dtype == FLOAT:
        return order_p.bind(rows, bits=32)[0]
    if is_inexact(dtype) or is_complex(dtype) or dtype.itemsize > WORD.itemsize:
        return None
    ((word, bits),) = _words(rows)
    word, _ = order_p.bind(word, bits=bits)
    if dtype == BOOL:
        return el.ne_p.bind(word, _constant(0, WORD))
    unsigned = _converted(word, np.dtype(f"uint{bits}"))
    if dtype.kind == "u":
        return unsigned
    return bitcast_convert_type_p.bind(
        el.xor_p.bind(unsigned, _constant(1 << (bits - 1), type_of(unsigned).dtype)), new_dtype=dtype
    )


def ordered(words: list[Word]) -> Any:
    """The positions that sort by the first word, then the second, …, along the last dimension."""
    order: Any = None
    for word, bits in reversed(words):
        keys = word if order is None else take_along(word, order, word.ndim - 1)
        _, step = order_p.bind(keys, bits=bits)
        order = step if order is None else take_along(order, step, step.ndim - 1)
    return order


def _rows(x: Any, dimension: int) -> Any:
    """The array as rows along a dimension."""
    shape = type_of(x).shape
    others = [d for d in range(len(shape)) if d != dimension]
    if dimension != len(shape) - 1:
        x = transpose_p.bind(x, permutation=(*others, dimension))
    return reshape_p.bind(x, new_sizes=(math.prod(shape[d] for d in others), shape[dimension]), dimensions=None)


def _from_rows(rows: Any, shape: tuple[int, ...], dimension: int) -> Any:
    others = [d for d in range(len(shape)) if d != dimension]
    x = reshape_p.bind(rows, new_sizes=(*(shape[d] for d in others), shape[dimension]), dimensions=None)
    if dimension == len(shape) - 1:
        return x
    back = [*range(dimension), len(shape) - 1, *range(dimension, len(shape) - 1)]
    return transpose_p.bind(x, permutation=tuple(back))


def _sliced(x: Any, kept: list[tuple[int, int]]) -> Any:
    starts, limits = zip(*kept)
    return slice_p.bind(x, start_indices=starts, limit_indices=limits, strides=None)


def _parts(key: Any) -> list[Any]:
    return [el.real_p.bind(key), el.imag_p.bind(key)] if is_complex(type_of(key).dtype) else [key]


def _comparable(x: Any) -> Any:
    """Floats with one zero and one nan, which comes last."""
    if not is_inexact(type_of(x).dtype):
        return x
    x = _chosen(el.eq_p.bind(x, constant(0, x)), constant(0, x), x)
    return _chosen(el.ne_p.bind(x, x), constant(np.nan, x), x)


def _chosen(condition: Any, x: Any, y: Any) -> Any:
    shape = type_of(y).shape
    return el.select_n_p.bind(condition, y, broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=()))


def _keys(x: Any) -> list[Word]:
    """What a part of a key is ordered by: floats as they are, where orders take them."""
    return [(x, 32)] if type_of(x).dtype == FLOAT else _words(_comparable(x))


def _words(x: Any) -> list[Word]:
    """The words of unsigned integers in the order of the values, the first one counts most."""
    dtype = type_of(x).dtype
    if dtype == BOOL:
        return [(_converted(x, WORD), 1)]
    width = dtype.itemsize * 8
    unsigned = np.dtype(f"uint{width}")
    bits = x if dtype.kind == "u" else bitcast_convert_type_p.bind(x, new_dtype=unsigned)
    if dtype.kind != "u":
        top = _constant(1 << (width - 1), unsigned)
        flipped = el.xor_p.bind(bits, top)
        if is_inexact(dtype):
            flipped = el.select_n_p.bind(el.ge_p.bind(bits, top), flipped, el.not_p.bind(bits))
        bits = flipped
    if width <= 32:
        return [(_converted(bits, WORD), width)]
    high = el.shift_right_logical_p.bind(bits, _constant(32, unsigned))
    low = el.and_p.bind(bits, _constant(0xFFFFFFFF, unsigned))
    return [(_converted(high, WORD), 32), (_converted(low, WORD), 32)]


def _complement(word: Any, bits: int) -> Any:
    return el.xor_p.bind(word, _constant((1 << bits) - 1, WORD))


def _constant(value: int, dtype: np.dtype) -> np.ndarray:
    return np.asarray(value, dtype)


def _converted(x: Any, dtype: np.dtype) -> Any:
    return x if type_of(x).dtype == dtype else el.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)
