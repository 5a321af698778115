"""Kernels on NumPy, program by program and equation by equation: every access is checked.

IndexError for a block or an access that lies outside, RaceError where a program reads or writes what another one writes that
may run at the same time. Memory that nobody has written holds nan, or the least integer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import FuserError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Literal
from fuser.ir.primitive import Control
from fuser.ir.references import Index, Window
from fuser.ir.types import is_inexact
from fuser.ops.control import lanes
from fuser.pallas.specs import Extent, Kind
from fuser.runtime.array import to_numpy
from fuser.trace.cells import array_type


class RaceError(FuserError):
    """Two programs of a kernel's grid that may run at once touch one element, and one of them writes it."""


class View:
    """A Ref while a kernel is interpreted: an ndarray, what was read, written and updated atomically of it, its name for messages."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        self.array, self.name = array, name
        self.read = np.zeros(array.shape, bool)
        self.written = np.zeros(array.shape, bool)
        self.updated = np.zeros(array.shape, bool)


def interpreted(
    arrays: Sequence[np.ndarray],
    *,
    jaxpr: Graph,
    index_maps: tuple[Graph, ...],
    blocks: tuple[tuple[Extent, ...], ...],
    grid: tuple[int, ...],
    vmapped: int,
    aliases: tuple[tuple[int, int], ...],
    out_avals: tuple[Any, ...],
    parallel: tuple[int, ...] = (),
    **params: Any,
) -> list[np.ndarray]:
    """The outputs of the kernel for these inputs; `parallel` are dimensions of the grid whose programs may run at once."""
    started = {o: arrays[i] for i, o in aliases}
    outputs = [np.array(to_numpy(started[n])) if n in started else unwritten(a) for n, a in enumerate(out_avals)]
    held = [np.array(to_numpy(a)) for a in arrays] + outputs
    scratch = [unwritten(array_type(a)) for a in jaxpr.in_avals[len(grid) - vmapped + len(held) :]]
    races = [_Races(a.shape, len(grid), tuple(vmapped + p for p in parallel)) for a in held]
    run = _Run(jaxpr.name)
    for number in itertools.product(*map(range, grid)):
        views = []
        for n, (array, block, index_map) in enumerate(zip(held, blocks, index_maps)):
            starts = _starts(index_map, block, number)
            views.append((View(_copied(array, block, starts, f"operand {n}", number), f"operand {n}"), starts))
        refs = [*(v for v, _ in views), *(View(s, f"scratch buffer {n}") for n, s in enumerate(scratch))]
        ids = [np.int32(n) for n in number[vmapped:]]
        with np.errstate(all="ignore"):
            run.graph(jaxpr, [*ids, *refs])
        for (view, starts), array, block, race in zip(views, held, blocks, races):
            race.note(view, starts, block, number, run.name)
            _stored(array, view, block, starts)
    return held[len(arrays) :]


def unwritten(aval: Any) -> np.ndarray:
    """Memory that nobody has written: nan, or the least integer."""
    if is_inexact(aval.dtype):
        return np.full(aval.shape, np.nan, aval.dtype)
    return np.full(aval.shape, np.iinfo(aval.dtype).min if aval.dtype.kind in "iu" else 0, aval.dtype)


# Blocks.


def _starts(index_map: Graph, block: tuple[Extent, ...], number: Sequence[int]) -> list[int]:
    found = [int(v) for v in evaluate(index_map, [np.int32(n) for n in number])]
    return [
        f * e.size if e.kind is Kind.BLOCKED else f - e.padding[0] if e.kind is Kind.ELEMENT else f
        for f, e in zip(found, block)
    ]


def _inside(shape: Sequence[int], block: tuple[Extent, ...], starts: Sequence[int]) -> tuple[Any, Any]:
    """The part of a block that lies in the array: as an index of the array, and as one of the block."""
    bounds = [(max(s, 0), min(s + e.size, extent)) for s, e, extent in zip(starts, block, shape)]
    of_array = tuple(slice(low, max(high, low)) for low, high in bounds)
    return of_array, tuple(slice(a.start - s, a.stop - s) for a, s in zip(of_array, starts))


def _copied(array: np.ndarray, block: tuple[Extent, ...], starts: list[int], name: str, number: Any) -> np.ndarray:
    for d, (start, e, extent) in enumerate(zip(starts, block, array.shape)):
        if start <= -e.size or (start >= extent and extent) or (start < 0 and e.kind is not Kind.ELEMENT):
            raise IndexError(
                f"the block of {name} for program {number} begins at element {start} of dimension {d}, which has {extent}; its "
                "index map must give blocks that lie in the array at least in part"
            )
    whole = np.zeros([e.size for e in block], array.dtype)
    if is_inexact(array.dtype):
        whole[...] = np.nan
    of_array, of_block = _inside(array.shape, block, starts)
    whole[of_block] = array[of_array]
    return whole.reshape([e.size for e in block if e.kind is not Kind.SQUEEZED])


def _stored(array: np.ndarray, view: View, block: tuple[Extent, ...], starts: list[int]) -> None:
    changed = view.written | view.updated
    if changed.any():
        of_array, of_block = _inside(array.shape, block, starts)
        whole = [e.size for e in block]
        mask = changed.reshape(whole)[of_block]
        array[of_array] = np.where(mask, view.array.reshape(whole)[of_block], array[of_array])


class _Races:
    """Which program last wrote, read and updated each element, told apart by their numbers along the parallel dimensions."""

    def __init__(self, shape: Sequence[int], rank: int, parallel: tuple[int, ...]) -> None:
        self.parallel = parallel
        self.writer, self.reader, self.updater = (np.full(shape, -1, np.int64) for _ in range(3))

    def note(self, view: View, starts: list[int], block: Any, number: Any, name: str) -> None:
        """RaceError where this program touches what another one along a parallel dimension wrote, or writes what one read. What
        several programs update atomically, and do not touch otherwise, is no race."""
        if not self.parallel:
            return
        own = 0
        for axis in self.parallel:
            own = own * 1_000_003 + number[axis]
        of_array, of_block = _inside(self.writer.shape, block, starts)
        whole = [e.size for e in block]
        read, written, updated = (a.reshape(whole)[of_block] for a in (view.read, view.written, view.updated))
        writer, reader, updater = (a[of_array] for a in (self.writer, self.reader, self.updater))
        other = lambda who: (who != -1) & (who != own)
        bad = ((read | written | updated) & other(writer)) | ((written | updated) & other(reader))
        bad |= (read | written) & other(updater)
        if bad.any():
            at = tuple(int(p) + s.start for p, s in zip(np.argwhere(bad)[0], of_array))
            does = "writes" if (written | updated)[tuple(np.argwhere(bad)[0])] else "reads"
            raise RaceError(
                f"a race in {name}: program {number} {does} element {at} of "
                f"{view.name}, which another program touches that may run at the same time; give each program elements of its own, "
                'update it by atomics alone, or declare the dimension of the grid "arbitrary"'
            )
        writer[written], reader[read], updater[updated] = own, own, own


# The body.


class _Run:
    """Interprets graphs whose Refs are Views."""

    def __init__(self, name: str) -> None:
        self.name = name

    def graph(self, graph: Graph, args: Sequence[Any]) -> list[Any]:
        """The results of the graph; Views are read and written."""
        values: dict[Any, Any] = dict(zip((*graph.constvars, *graph.invars), (*graph.consts, *args)))

        def read(operand: Any) -> Any:
            if isinstance(operand, Literal):
                return np.asarray(operand.val)
            value = values[operand]
            return value if isinstance(value, View) else to_numpy(value)

        for eqn in graph.eqns:
            results = self.eqn(eqn, [read(v) for v in eqn.invars])
            values.update(zip(eqn.outvars, results if eqn.primitive.multiple_results else [results]))
        return [read(v) for v in graph.outvars]

    def eqn(self, eqn: Eqn, operands: list[Any]) -> Any:
        rule = _RULES.get(eqn.primitive.name)
        if rule is not None and (not operands or isinstance(operands[0], View) or eqn.primitive.name == "new_ref"):
            return rule(eqn, *operands)
        if eqn.primitive.control is not None:
            return _CONTROL[eqn.primitive.control](self, operands, **eqn.params)
        if "jaxpr" in eqn.params or "call_jaxpr" in eqn.params:
            return self.graph(eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"], operands)
        return eqn.primitive.rule("eval")(*operands, **eqn.params)


def _cond(run: _Run, operands: list[Any], branches: tuple[Graph, ...], **params: Any) -> list[Any]:
    return run.graph(branches[min(max(int(operands[0]), 0), len(branches) - 1)], operands[1:])


def _scan(
    run: _Run,
    operands: list[Any],
    jaxpr: Graph,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool = False,
    **params: Any,
) -> list[Any]:
    first = num_consts + num_carry
    consts, carry, xs = operands[:num_consts], operands[num_consts:first], operands[first:]
    ys = [np.zeros((length, *y.shape), y.dtype) for y in jaxpr.out_avals[num_carry:]]
    for step in reversed(range(length)) if reverse else range(length):
        results = run.graph(jaxpr, [*consts, *carry, *(x[step] for x in xs)])
        carry = results[:num_carry]
        for y, value in zip(ys, results[num_carry:]):
            y[step] = value
    return [*carry, *ys]


def _while(
    run: _Run, operands: list[Any], cond_nconsts: int, cond_jaxpr: Graph, body_nconsts: int, body_jaxpr: Graph
) -> list[Any]:
    first = cond_nconsts + body_nconsts
    test, body, carry = operands[:cond_nconsts], operands[cond_nconsts:first], operands[first:]
    while True:
        [going] = run.graph(cond_jaxpr, [*test, *carry])
        if not np.any(going):
            return carry
        new = run.graph(body_jaxpr, [*body, *carry])
        carry = [lanes(going, n, c) for n, c in zip(new, carry)]


_CONTROL: dict[Control, Callable[..., Any]] = {Control.COND: _cond, Control.SCAN: _scan, Control.WHILE: _while}


# Accesses.


def _positions(eqn: Eqn, view: View, index: Index, indices: Sequence[Any], mask: Any = None) -> tuple[np.ndarray, ...]:
    """Every element's position, an array in the access' shape for each dimension of the Ref; those under a false mask are clamped.

    IndexError where one lies outside. Each dimension has a table of positions, and NumPy's own rules place the tables' numbers.
    """
    given, shape = iter(indices), iter(view.array.shape)
    tables: list[np.ndarray] = []
    places: list[Any] = []
    for part in index:
        if part is None:
            places.append(None)
            continue
        next(shape)
        if isinstance(part, Window):
            start = int(next(given)) if part.start is None else part.start
            found = start + np.arange(part.size) * part.stride
            places.append(slice(None))
        else:
            found = np.asarray(next(given) if part.position is None else part.position)
            places.append(np.arange(found.size).reshape(found.shape))
        tables.append(found.reshape(-1))
    extents = [len(table) for table in tables]
    along = lambda d: [-1 if k == d else 1 for k in range(len(tables))]
    spread = [np.broadcast_to(t.reshape(along(d)), extents)[tuple(places)] for d, t in enumerate(tables)]
    for found, extent in zip(spread, view.array.shape):
        bad = (found < 0) | (found >= extent)
        if mask is not None:
            bad &= np.broadcast_to(mask, found.shape)
        if bad.any():
            raise _outside(eqn, view, int(found[bad].flat[0]), extent)
    return tuple(np.clip(found, 0, extent - 1) for found, extent in zip(spread, view.array.shape))


def _outside(eqn: Eqn, view: View, position: int, extent: int) -> IndexError:
    return IndexError(
        f"{eqn.primitive} at {eqn.source.short} touches position {position} of a dimension of {view.name} that has {extent} "
        "elements; mask what lies outside: load(ref, index, mask=…, other=…)"
    )


def _get(eqn: Eqn, view: View, *indices: Any) -> np.ndarray:
    at = _positions(eqn, view, eqn.params["index"], indices)
    view.read[at] |= ~view.written[at]
    return np.array(view.array[at])


def _swap(eqn: Eqn, view: View, value: Any, *indices: Any) -> np.ndarray:
    at = _positions(eqn, view, eqn.params["index"], indices)
    before = np.array(view.array[at])
    view.array[at] = value
    view.written[at] = True
    return before


def _addupdate(eqn: Eqn, view: View, value: Any, *indices: Any) -> list[Any]:
    at = _positions(eqn, view, eqn.params["index"], indices)
    view.read[at] |= ~view.written[at]
    np.add.at(view.array, at, value)
    view.written[at] = True
    return []


def _masked_load(eqn: Eqn, view: View, mask: Any, other: Any, *indices: Any) -> np.ndarray:
    at = _positions(eqn, view, eqn.params["index"], indices, mask)
    touched = tuple(np.asarray(a)[np.broadcast_to(mask, np.shape(a))] for a in at)
    view.read[touched] |= ~view.written[touched]
    return np.where(mask, view.array[at], other)


def _masked_swap(eqn: Eqn, view: View, value: Any, mask: Any, *indices: Any) -> np.ndarray:
    at = _positions(eqn, view, eqn.params["index"], indices, mask)
    before = np.array(view.array[at])
    keep = np.broadcast_to(mask, before.shape)
    touched = tuple(np.asarray(a)[keep] for a in at)
    view.array[touched] = np.broadcast_to(value, before.shape)[keep]
    view.written[touched] = True
    return before


_UPDATES: dict[str, Callable[..., Any]] = {
    "add": lambda before, value, compared: before + value,
    "max": lambda before, value, compared: np.maximum(before, value),
    "min": lambda before, value, compared: np.minimum(before, value),
    "and": lambda before, value, compared: before & value,
    "or": lambda before, value, compared: before | value,
    "xor": lambda before, value, compared: before ^ value,
    "xchg": lambda before, value, compared: value,
    "cas": lambda before, value, compared: value if before == compared else before,
}


def _atomic(eqn: Eqn, view: View, value: Any, compared: Any, mask: Any, *indices: Any) -> np.ndarray:
    """Element by element: positions may repeat."""
    at = _positions(eqn, view, eqn.params["index"], indices, mask)
    before = np.array(view.array[at])
    for n in np.argwhere(np.broadcast_to(mask, before.shape)):
        own, place = tuple(n), tuple(a[tuple(n)] for a in at)
        before[own] = view.array[place]
        view.array[place] = _UPDATES[eqn.params["kind"]](view.array[place], value[own], compared[own])
        view.updated[place] = True
    return before


def _new_ref(eqn: Eqn, value: np.ndarray) -> View:
    return View(np.array(value), "a Ref of the kernel")


_RULES: dict[str, Callable[..., Any]] = {
    "new_ref": _new_ref,
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
    "masked_load": _masked_load,
    "masked_swap": _masked_swap,
    "atomic": _atomic,
    "freeze": lambda eqn, view: view.array,
    "free_ref": lambda eqn, view: [],
}
