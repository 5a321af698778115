"""`x[index]` and `x[index] = value` on traced arrays: views for basic indices, gathers and scatters for index arrays.

Assignment through slices becomes padding and selection, which fuse. A traced mask selects in place: `x[mask]` is a
`Selected`, all of `x` with the mask noted, and `x[mask] = value` chooses between value and x.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import in_numpy, notice, notice_out_of_bounds
from fuser.interop.numpy.context import to_dtype, untraceable
from fuser.interop.numpy.selected import Selected, alike, box, unknown_shape
from fuser.interop.numpy.spans import Span, span, windowed
from fuser.interop.numpy.traced import TracedArray, Value, View, find_context, wrap
from fuser.interop.numpy.varying_slices import Varying, assign, cut, varying
from fuser.ir.types import BOOL
from fuser.lax.values import broadcast_to, literal
from fuser.numpy import indexing, reductions
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops.dynamic import dynamic_update_slice_p
from fuser.runtime.array import Array
from fuser.trace.core import Tracer, bind

MOST_BESIDE = (
    64  # elements for each of a mask: all of them are computed, where NumPy takes those of selected rows alone
)
FEW_ROWS = 8  # at known positions, which are assigned one after the other
_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))


def normal(index: Any, x: TracedArray | None = None) -> tuple[Any, ...]:
    """The parts of an index: known arrays as NumPy's, lists as arrays, integers as Python's; what fuser.numpy has made as `x` is."""
    parts = index if isinstance(index, tuple) else (index,)
    if x is not None:
        parts = tuple(TracedArray(x._context, p) if isinstance(p, Tracer) else p for p in parts)
        if any(isinstance(p, Selected) for p in parts):
            parts = _masks(x, parts)
    return tuple(_part(p) for p in parts)


def _masks(x: TracedArray, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of an index of `x` with what `np.where(mask)` gave, all of it side by side, as the mask: `x[np.where(mask)]` is `x[mask]`."""
    found: list[Any] = []
    dimension, rest = 0, list(parts)
    while rest:
        part = rest[0]
        if not isinstance(part, Selected):
            if part is Ellipsis and any(isinstance(p, Selected) for p in rest):
                raise unknown_shape()
            dimension += part is not None and part is not Ellipsis
            found.append(rest.pop(0))
            continue
        mask = _mask_of_positions(rest)
        if mask is None or x.shape[dimension : dimension + mask.ndim] != mask.shape:
            raise unknown_shape()
        del rest[: mask.ndim]
        dimension += mask.ndim
        found.append(mask)
    return tuple(found)


def _mask_of_positions(parts: list[Any]) -> TracedArray | None:
    """The mask whose positions, along all of its dimensions in turn, are the first parts of an index; None where they are not."""
    if (first := parts[0].position) is None:
        return None
    mask: TracedArray = first[0]
    own = [p.position if isinstance(p, Selected) else None for p in parts[: mask.ndim]]
    whole = all(
        place is not None and place[0] is mask and place[1] == d and place[2] is parts[d].value
        for d, place in enumerate(own)
    )
    return mask if whole and len(own) == mask.ndim else None


def _part(part: Any) -> Any:
    if isinstance(part, TracedArray):
        if isinstance(part, Selected):
            raise unknown_shape()
        value = part.value
        if isinstance(value, Tracer):
            return part
        part = np.asarray(value)
        return part if part.ndim or part.dtype == BOOL else int(operator.index(part[()]))
    if isinstance(part, slice):
        if (found := span(part) or varying(part)) is not None:
            return found
        return slice(*(None if b is None else operator.index(b) for b in (part.start, part.stop, part.step)))
    if isinstance(part, list):
        traced = find_context(part)
        return np.asarray(part, dtype=None if part else np.intp) if traced is None else _listed(traced, part)
    return part


def _listed(context: Any, part: list[Any]) -> TracedArray:
    """A list with traced numbers, as an index."""
    from fuser.interop.numpy.creation import array  # which needs indices

    return array(context, part)


def is_basic(parts: tuple[Any, ...]) -> bool:
    """Whether an index has integers, slices, None and Ellipsis only, so that NumPy gives a view."""
    return all(isinstance(p, _BASIC) and not isinstance(p, (bool, np.bool_, TracedArray)) for p in parts)


def getitem(x: TracedArray, index: Any) -> Any:
    """`x[index]`: a view, a copy, a scalar, or a `Selected`."""
    parts = normal(index, x)
    if any(type(p) is Varying for p in parts):
        window, along = cut(x, parts)
        return Selected(window, along=along, view=True)
    if any(type(p) is Span for p in parts):
        x, parts = windowed(x, parts)
        if all(type(p) is slice and p == slice(None) for p in parts):
            return x
    if isinstance(x, Selected):
        return _of_selected(x, parts)
    check_bounds(parts, x.shape)
    if is_basic(parts):
        return _basic_view(x, parts)
    mask = _traced_mask(parts)
    if mask is not None:
        return _selection(x, parts, mask)
    if x.known and not any(isinstance(p, TracedArray) for p in parts):
        return wrap(x._context, x.value[parts])
    if _is_view_at(parts):
        view = _view_at(x, parts)
        if view.shape:
            return view
    result = _take(x.lifted(), for_fuser(parts))
    return TracedArray(x._context, result, scalar=not result.shape, order=_order(x, parts, result.shape))


def _of_selected(x: Selected, parts: tuple[Any, ...]) -> Any:
    """`x[mask][:, index]`, `x[k:][:, None]`: of the same rows; `x[k:][0]` and `[-1]`: the first and the last of what is selected."""
    if x.along is None or not is_basic(parts):
        raise unknown_shape()
    full, left = x.full(), x.value.ndim - sum(p is not None and p is not Ellipsis for p in parts)
    if left < 0:
        raise unknown_shape()  # NumPy has an error for too many indices
    place = next((n for n, p in enumerate(parts) if p is Ellipsis), len(parts))
    whole = (*parts[:place], *[slice(None)] * left, *parts[place + 1 :])
    along: dict[int, Value] = {}
    found: list[Any] = []
    taken = kept = 0
    for part in whole:
        mask = None if part is None else x.along.get(taken)
        number = part if isinstance(part, (int, np.integer)) else None
        if mask is not None and number is None and part != slice(None):
            raise unknown_shape()
        if mask is not None and number is None:
            along[kept] = mask
        found.append(part if mask is None or number is None else _end_of(x, mask, int(number)))
        taken += part is not None
        kept += number is None
    result = getitem(full, tuple(found))
    return x.lend(Selected(TracedArray(x._context, result.lifted()), along=along) if along else result)


def _end_of(x: Selected, mask: Any, number: int) -> TracedArray:
    """The position of the first or the last element that a mask of one dimension selects."""
    if number not in (0, -1):
        raise unknown_shape()
    notice(bind(E.not_p, reductions.any(mask)))  # NumPy's IndexError
    places: Any = np.where(TracedArray(x._context, mask), np.arange(mask.shape[0]), -1 if number else mask.shape[0])  # type: ignore[call-overload]
    return places.max() if number else places.min()  # type: ignore[no-any-return]


def _order(x: TracedArray, parts: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    from fuser.interop.numpy.layout import indexed_order  # which needs TracedArray, as this does

    return None if len(shape) < 2 or 0 in shape else indexed_order(x, parts)


def _basic_view(x: TracedArray, parts: tuple[Any, ...]) -> Any:
    index = parts[0] if len(parts) == 1 else parts
    whole = sum(1 for p in parts if p is not None and p is not Ellipsis) == x.ndim
    if whole and all(isinstance(p, (int, np.integer)) for p in parts):
        return TracedArray(x._context, _read(x.value, index), scalar=True)
    view = View(lambda value: _read(value, index), lambda value, new: assign_basic(x, value, parts, new), index)
    return x.view_of(view, x.contiguous and _keeps_layout(parts, x.shape))


def _is_view_at(parts: tuple[Any, ...]) -> bool:
    """Whether an index has, besides what makes a view, traced scalars, which NumPy takes as integers (arrays without axes make copies)."""
    return all(p.scalar if isinstance(p, TracedArray) else isinstance(p, _BASIC) for p in parts)


def _view_at(x: TracedArray, parts: tuple[Any, ...]) -> TracedArray:
    """A view of `x` at traced positions."""
    from fuser.numpy.at import IndexUpdateRef

    index, lift = for_fuser(parts), x._context.lift

    def write(value: Value, new: Any) -> Value:
        operand = lift(value, value.dtype)
        return IndexUpdateRef(operand, index[0] if len(index) == 1 else index).set(lift(new, value.dtype))

    view = View(lambda value: _take(lift(value, value.dtype), index), write, parts, True)
    return x.view_of(view, x.contiguous and _keeps_layout(parts, x.shape))


def _keeps_layout(parts: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Whether the indexed elements of a dense array are surely one dense block."""
    cut = False
    dimension = 0
    for part in parts:
        if part is None:
            continue
        if part is Ellipsis:
            return parts[-1] is Ellipsis
        full = isinstance(part, slice) and part.indices(shape[dimension]) == (0, shape[dimension], 1)
        if (cut and not full) or (isinstance(part, slice) and part.step not in (None, 1)):
            return False
        cut = cut or isinstance(part, slice)
        dimension += 1
    return True


def _read(value: Value, index: Any) -> Value:
    return indexing.getitem(value, index) if isinstance(value, (Tracer, Array)) else value[index]


def _take(value: Any, parts: tuple[Any, ...]) -> Any:
    return indexing.getitem(value, parts[0] if len(parts) == 1 else parts)


def for_fuser(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(p.lifted() if isinstance(p, TracedArray) else p for p in parts)


def check_bounds(parts: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    """NumPy's errors for known indices out of bounds or too many of them, by NumPy itself on an array without elements of its own."""
    if any(isinstance(p, (TracedArray, np.ndarray)) for p in parts):
        _notice_bounds(parts, shape)
        parts = tuple(slice(None) if isinstance(p, TracedArray) and p.dtype != BOOL else p for p in parts)
        if any(isinstance(p, TracedArray) for p in parts):
            return
    np.broadcast_to(np.int8(0), shape)[parts]


def _notice_bounds(parts: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    """Have traced positions out of bounds noticed, each against the dimension that it indexes."""
    taken = [_dimensions(p) for p in parts if p is not None and p is not Ellipsis]
    dimension = 0
    for part in parts:
        if part is Ellipsis:
            dimension += len(shape) - sum(taken)
        elif part is not None:
            if isinstance(part, TracedArray) and part.dtype != BOOL and dimension < len(shape):
                notice_out_of_bounds(part.lifted(), shape[dimension])
            dimension += _dimensions(part)


def _dimensions(part: Any) -> int:
    """How many dimensions a part of an index indexes."""
    return part.ndim if isinstance(part, (np.ndarray, TracedArray)) and part.dtype == BOOL else 1


def _traced_mask(parts: tuple[Any, ...]) -> TracedArray | None:
    """The traced mask of an index, which may stand beside integers and slices."""
    masks = [p for p in parts if isinstance(p, TracedArray) and p.dtype == BOOL]
    if not masks or _is_alone(parts):
        return masks[0] if masks else None
    (mask, *more), others = masks, tuple(p for p in parts if p is not masks[0])
    if more or not mask.ndim or not _is_view_at(others) or any(p is None or p is Ellipsis for p in others):
        raise untraceable("a traced mask beside other indices cannot be traced", "use np.where(mask, x, y)")
    return mask


def _selection(x: TracedArray, parts: tuple[Any, ...], mask: TracedArray) -> Selected:
    """`x[mask]`, or `x[:, mask]` and the like, of which the mask has one dimension."""
    view, first = _masked_view(x, parts, mask)
    if mask.shape == view.shape:
        return Selected(view, mask.value)
    plain = all(p is mask or p is Ellipsis or isinstance(p, slice) for p in parts) and parts[0] is not Ellipsis
    many = view.size > MOST_BESIDE * mask.size
    if _is_alone(parts) and plain and not many and mask.ndim > 1 and mask.shape == view.shape[: mask.ndim]:
        rows = TracedArray(view._context, _rows_of(view.lifted(), mask))
        return Selected(rows, along={0: _rows_of(mask.lifted(), mask)})
    if mask.ndim != 1 or not plain or many or mask.shape[0] != view.shape[first]:
        raise unknown_shape()
    return Selected(view, along={first: mask.lifted()})


def _rows_of(value: Any, mask: TracedArray) -> Any:
    """An array as rows that each have one element of a mask of its first dimensions."""
    return bind(V.reshape_p, value, new_sizes=(mask.size, *value.shape[mask.ndim :]), dimensions=None)


def _spread(mask: TracedArray, first: int, shape: tuple[int, ...]) -> Any:
    """A mask of some dimensions of a shape, as one of all."""
    if mask.shape == shape:
        return mask.lifted()
    dims = tuple(range(first, first + mask.ndim))
    return bind(V.broadcast_in_dim_p, mask.lifted(), shape=shape, broadcast_dimensions=dims)


def _is_alone(parts: tuple[Any, ...]) -> bool:
    """Whether an index is one part, beside Ellipsis."""
    return len(parts) - sum(p is Ellipsis for p in parts) <= 1


def _masked_view(x: TracedArray, parts: tuple[Any, ...], mask: TracedArray) -> tuple[TracedArray, int]:
    """What a mask beside integers and slices selects from, `x[i, mask, a:b]` from `x[i, :, a:b]`, and the mask's first dimension there."""
    if _is_alone(parts):
        return x, 0
    place = next(n for n, p in enumerate(parts) if p is mask)
    view = getitem(x, (*parts[:place], *[slice(None)] * mask.ndim, *parts[place + 1 :]))
    first = sum(isinstance(p, slice) for p in parts[:place])
    if mask.shape != view.shape[first : first + mask.ndim]:
        raise unknown_shape()
    return view, first


# Assignment.


def setitem(x: TracedArray, index: Any, value: Any) -> None:
    """`x[index] = value`."""
    if x.scalar:
        raise TypeError(f"'numpy.{x.dtype.type.__name__}' object does not support item assignment")
    parts = normal(index, x)
    if (
        isinstance(value, TracedArray)
        and value._base is x
        and value._view is not None
        and _same_index(value._view.index, parts)
    ):
        return  # the end of `x[index] += y`, which has written to the view already
    if any(type(p) is Varying for p in parts):
        return write_selected(*cut(x, parts), value)
    if isinstance(value, (list, tuple)):
        from fuser.interop.numpy.creation import array

        value = array(x._context, value)
    if any(type(p) is Span for p in parts):
        x, parts = windowed(x, parts)
        if all(type(p) is slice and p == slice(None) for p in parts) and _is_view_alike(value, x):
            return  # likewise
    mask = _traced_mask(parts)
    if mask is not None:
        return _assign_masked(*_masked_view(x, parts, mask), mask, value)
    if isinstance(value, Selected):
        raise unknown_shape()
    check_bounds(parts, x.shape)
    unknown = any(isinstance(p, TracedArray) for p in parts) or (isinstance(value, TracedArray) and not value.known)
    if not unknown and x.known:
        changed = np.array(x.value)
        changed[parts] = value.value if isinstance(value, TracedArray) else value
        return x.write(changed)
    new = cast_value(x, value)
    if is_basic(parts):
        return x.write(assign_basic(x, x.value, parts, new), parts, new)
    x.write(_assign_positions(x, parts, new), parts, new)


def write_selected(window: TracedArray, along: Mapping[int, Value], value: Any) -> None:
    """Write a number, or what is selected alike, to the part of a window that slices of computed extent are."""
    same = window._context.same
    if isinstance(value, Selected):
        old = value.window
        if old is not None and old._owner is window._owner and same(old.value, window.value):
            return  # the end of `x[a:b] += y`
    elif isinstance(value, (list, tuple)):
        raise unknown_shape()
    if alike([Selected(window, along=along), value]).value.ndim > window.ndim:
        raise unknown_shape()
    value = value.full() if isinstance(value, Selected) else value
    assign(window, box(along, window.shape), cast_value(window, value))


def _is_view_alike(value: Any, x: TracedArray) -> bool:
    """Whether a value is the view that `x` is, taken at another time."""
    alike = isinstance(value, TracedArray) and value._view is not None and value._base is x._base
    return alike and value._view.index == x._view.index  # type: ignore[union-attr]


def _same_index(a: Any, parts: tuple[Any, ...]) -> bool:
    known = a if isinstance(a, tuple) else (a,)
    return (
        len(known) == len(parts)
        and _is_view_at(parts)
        and all(p is q or (type(p) is type(q) is not TracedArray and p == q) for p, q in zip(known, parts))
    )


def cast_value(x: TracedArray, value: Any) -> Any:
    """`value` as primitives take it, in the dtype of `x` (assignment casts without asking, as in NumPy)."""
    if isinstance(value, TracedArray):
        return value.lifted(x.dtype)
    if isinstance(value, (Tracer, Array)):
        return to_dtype(value, x.dtype)
    if isinstance(value, np.ndarray):
        return x._context.constant(value, x.dtype)
    with in_numpy():
        stored = np.empty(np.shape(value), x.dtype)
        stored[...] = value  # with NumPy's errors for what the dtype does not hold
    return x._context.constant(stored, x.dtype)


def _assign_masked(x: TracedArray, first: int, mask: TracedArray, value: Any) -> None:
    """`x[:, ..., mask] = value`, with `first` dimensions before the mask's."""
    mask_value = _spread(mask, first, x.shape)
    if isinstance(value, Selected):
        rows = first == 0 and mask.ndim > 1 and value.value.ndim == x.ndim - mask.ndim + 1
        selected = box({0: _rows_of(mask.lifted(), mask)}, (mask.size, *x.shape[mask.ndim :])) if rows else mask_value
        if not x._context.same(value.mask, selected):
            raise untraceable(
                "x[mask] = y[other_mask] cannot be traced where the masks are not the same", "use one mask variable"
            )
        value = value.full()
        if rows:
            new = bind(V.reshape_p, cast_value(x, value), new_sizes=x.shape, dimensions=None)
            x.write(bind(E.select_n_p, mask_value, x.lifted(), new))
            return
    elif np.ndim(value) and np.shape(value) != (1,) and not _beside(x, first, mask, np.shape(value)):
        if mask.ndim == x.ndim:
            raise unknown_shape()
        raise untraceable("x[mask] = array cannot be traced where the mask is", "use np.where")
    new = cast_value(x, value)
    new = broadcast_to(_squeezed(new), x.shape) if new.shape != x.shape else new
    x.write(bind(E.select_n_p, mask_value, x.lifted(), new))


def _beside(x: TracedArray, first: int, mask: TracedArray, shape: tuple[int, ...]) -> bool:
    """Whether a value extends along dimensions behind the mask's alone."""
    behind = x.shape[first + mask.ndim :]
    fits = all(e in (1, w) for e, w in zip(shape[::-1], behind[::-1]))
    return isinstance(mask.value, Tracer) and len(shape) <= len(behind) and fits


def _squeezed(value: Any) -> Any:
    return bind(V.reshape_p, value, new_sizes=(), dimensions=None) if value.shape == (1,) else value


def assign_basic(x: TracedArray, value: Value, parts: tuple[Any, ...], new: Any) -> Value:
    """`value` with value[parts] = new."""
    if not isinstance(value, Tracer) and not isinstance(new, (Tracer, Array)):
        changed = np.array(value)
        changed[parts] = new
        return changed
    operand = x._context.lift(value, value.dtype)
    new = x._context.lift(new, value.dtype)
    entries = indexing.parse(parts[0] if len(parts) == 1 else parts, tuple(value.shape))
    spans = [e.value if e.kind == "slice" else (e.value, 1, 1) for e in entries if e.kind != "new"]
    shape = tuple(1 if e.kind == "new" else e.value[1] for e in entries if e.kind != "scalar")
    if new.shape != shape:
        new = _fit(new, shape)
    if 0 in shape:
        return operand
    block = bind(V.reshape_p, new, new_sizes=tuple(size for _, size, _ in spans), dimensions=None)
    if all(size == extent and step == 1 for (_, size, step), extent in zip(spans, operand.shape)):
        return block
    return placed_at(operand, block, spans)


def _fit(new: Any, shape: tuple[int, ...]) -> Any:
    """`new` broadcast to the indexed shape; leading dimensions of extent 1 may be missing there."""
    while new.ndim > len(shape) and new.shape[0] == 1:
        new = bind(V.squeeze_p, new, dimensions=(0,))
    if len(new.shape) > len(shape) or any(e not in (1, w) for e, w in zip(new.shape[::-1], shape[::-1])):
        raise ValueError(f"could not broadcast input array from shape {_words(new.shape)} into shape {_words(shape)}")
    return broadcast_to(new, shape)


def _words(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def placed_at(operand: Any, block: Any, spans: list[tuple[int, int, int]]) -> Any:
    """`operand` with `block` at the spans (start, size, step)."""
    backwards = tuple(d for d, (_, size, step) in enumerate(spans) if step < 0 and size > 1)
    if backwards:
        block = bind(V.rev_p, block, dimensions=backwards)
    forward = [(start if step > 0 else start + (size - 1) * step, size, abs(step)) for start, size, step in spans]
    if all(step == 1 or size == 1 for _, size, step in forward):
        starts = [literal(start, np.dtype(np.int32)) for start, _, _ in forward]
        return bind(dynamic_update_slice_p, operand, block, *starts)
    return _interleaved(operand, block, forward)


def _interleaved(operand: Any, block: Any, spans: list[tuple[int, int, int]]) -> Any:
    """`block` spread out to the operand's shape, and chosen where it has elements."""
    config = tuple(
        (start, extent - start - (size - 1) * step - 1, step - 1 if size > 1 else 0)
        for (start, size, step), extent in zip(spans, operand.shape)
    )
    zero = literal(False, BOOL) if block.dtype == BOOL else literal(0, block.dtype)
    padded = bind(V.pad_p, block, zero, padding_config=config)
    inside = bind(
        V.pad_p, broadcast_to(literal(True, BOOL), tuple(block.shape)), literal(False, BOOL), padding_config=config
    )
    return bind(E.select_n_p, inside, operand, padded)


def _assign_positions(x: TracedArray, parts: tuple[Any, ...], new: Any) -> Any:
    """`x[parts] = new` with index arrays, by a scatter."""
    from fuser.numpy.at import IndexUpdateRef

    index = for_fuser(parts)
    operand = x.lifted()
    if len(parts) == 1 and type(parts[0]) is np.ndarray and parts[0].dtype.kind in "iu" and parts[0].size <= FEW_ROWS:
        rows = parts[0].ravel()
        new = broadcast_to(new, (*parts[0].shape, *x.shape[1:]))
        new = bind(V.reshape_p, new, new_sizes=(rows.size, *x.shape[1:]), dimensions=None)
        for number, row in enumerate(map(int, rows)):
            operand = assign_basic(x, operand, (row,), _read(new, number))
        return operand
    return IndexUpdateRef(operand, index[0] if len(index) == 1 else index).set(new)
