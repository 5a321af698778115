"""Loop parallelisation: a scan whose iterations need nothing of each other becomes array operations on all of them at once.

Such a scan hands nothing on, or only counters and arrays of which each iteration writes a window of its own (a DOALL loop:
Kennedy and Allen, Optimizing Compilers for Modern Architectures, 2001, section 2). Its body is batched over the
iterations; slices that move evenly become views, and what was written piece by piece is laid side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.errors import FuserError
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var, graphs_in
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ir.source import replayed
from fuser.ir.types import ArrayType
from fuser.ir.work import elements
from fuser.ops.control import split_scan
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.movement import iota_p, reshaped, rev_p, slice_p, transpose_p
from fuser.ops.windows import sliding_windows_p
from fuser.passes.dce import drop_dead
from fuser.passes.loops.iterations import Constants, Known, decided, iterations, progression
from fuser.trace.batch import batch, moved
from fuser.trace.body import pick
from fuser.trace.replay import replay
from fuser.trace.stage import stage

LARGE = 1 << 16  # elements of an iteration beside which calling its kernels costs nothing
MOST_BYTES = 1 << 26  # of values of all iterations that are kept at once


def parallelise_loops(graph: Graph) -> Graph:
    """The graph with such scans written out; inner loops have had their turn."""
    rewriter = Rewriter(graph)
    constants = Constants(graph, rewriter.producers)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        results = None
        if eqn.primitive.control is Control.SCAN and eqn.params["length"] > 1 and small(eqn):
            results = _written_out(eqn, rewriter, constants)
        if results is None:
            rewriter.keep(eqn)
        else:
            for var, operand in zip(eqn.outvars, results, strict=True):
                rewriter.replace(var, operand)
    return rewriter.finish()


def small(eqn: Eqn) -> bool:
    """Whether calls are what an iteration costs, and what all iterations keep is not much."""
    body: Graph = eqn.params["jaxpr"]
    if not all(map(_independent, body.eqns)) or elements(body) > LARGE:
        return False
    kept = sum(v.aval.nbytes for e in body.eqns if _stored(e) for v in e.outvars)
    return bool(eqn.params["length"] * kept <= MOST_BYTES)


def _independent(eqn: Eqn) -> bool:
    """Whether batching repeats no work, speaks to no other device and calls no function of the user's, which expects one
    iteration's values: lanes of a choice or of a while would wait."""
    if eqn.primitive.control is Control.SCAN:
        return all(_independent(inner) for graph in graphs_in(eqn.params) for inner in graph.eqns)
    if eqn.primitive.fusion is Fusion.CONTROL or eqn.primitive.collect is not None:
        return False
    return not any(callable(p) or callable(getattr(p, "function", None)) for p in eqn.params.values())


def _stored(eqn: Eqn) -> bool:
    """Whether an equation's results are seldom fused with what reads them."""
    return eqn.primitive.fusion not in (Fusion.ELEMENTWISE, Fusion.MOVEMENT)


@dataclass(frozen=True)
class _Window:
    """Where iterations read or write a window: along dimension `moving` from `first` on, `step` further each row of the
    xs; along the others at `starts`."""

    moving: int
    first: int
    step: int
    starts: tuple[Operand, ...]
    sizes: tuple[int, ...]

    def bounds(self, length: int) -> tuple[int, int]:
        """The first element along the moving dimension that some iteration touches, and the one after the last."""
        last = self.first + (length - 1) * self.step
        return min(self.first, last), max(self.first, last) + self.sizes[self.moving]


@dataclass(frozen=True)
class _Write:
    """A carry that each iteration writes a window of: the update, and where."""

    update: Eqn
    window: _Window


class _Iterations:
    """One scan: what its carries are, and which slices of its body are rows of a view."""

    def __init__(self, eqn: Eqn, constants: Constants) -> None:
        self.eqn, params = eqn, eqn.params
        self.known: Known = iterations(eqn, constants)
        self.body: Graph = drop_dead(decided(params["jaxpr"], self.known))
        self.consts, self.carries, self.length = params["num_consts"], params["num_carry"], params["length"]
        self.fixed: set[Operand] = set(self.body.invars[: self.consts])
        for inner in self.body.eqns:
            if all(v in self.fixed for v in inner.operands()):
                self.fixed.update(inner.outvars)
        self.producers = self.body.producers
        self.uses = Counter(v for e in self.body.eqns for v in e.operands())
        self.uses.update(v for v in self.body.outvars if isinstance(v, Var))

    def writes(self) -> list[_Write | None] | None:
        """By carry: how it is written, or None for a counter; None as a whole where an iteration needs another one."""
        found: list[_Write | None] = []
        for n in range(self.carries):
            carry = self.body.invars[self.consts + n]
            counter = progression(carry, self.known) is not None
            write = None if counter else self._write(carry, self.body.outvars[n])
            if write is None and not counter:
                return None
            found.append(write)
        return found

    def _write(self, carry: Var, out: Operand) -> _Write | None:
        eqn = self.producers.get(out) if isinstance(out, Var) else None
        if eqn is None or eqn.primitive is not dynamic_update_slice_p or eqn.invars[0] is not carry:
            return None
        assert isinstance(out, Var)
        window = self.window(eqn.invars[2:], carry.aval.shape, eqn.invars[1].aval.shape)
        if window is None or abs(window.step) != window.sizes[window.moving] or self.uses[out] != 1:
            return None
        own = [e for e in self.body.eqns if e is not eqn and carry in e.operands()]
        if self.uses[carry] != 1 + len(own) or not all(self._reads(e, eqn) for e in own):
            return None
        return _Write(eqn, window)

    @staticmethod
    def _reads(read: Eqn, write: Eqn) -> bool:
        """Whether an equation reads of a carry just what the iteration is about to write."""
        if read.primitive is not dynamic_slice_p or read.params["slice_sizes"] != write.invars[1].aval.shape:
            return False
        pairs = zip(read.invars[1:], write.invars[2:])
        return read.invars[0] is write.invars[0] and all(
            a is b or (isinstance(a, Literal) and isinstance(b, Literal) and a.val == b.val) for a, b in pairs
        )

    def window(self, starts: Sequence[Operand], shape: Sequence[int], sizes: Sequence[int]) -> _Window | None:
        """Where a window lies that moves evenly along one dimension, and never is moved inside; None for others."""
        moving: list[tuple[int, int, int]] = []
        for d, (start, extent, size) in enumerate(zip(starts, shape, sizes)):
            counted = progression(start, self.known)
            if extent == size or start in self.fixed or (counted is not None and counted[1] == 0):
                continue
            if counted is None:
                return None
            moving.append((d, *counted))
        if len(moving) != 1:
            return None
        ((d, first, step),) = moving
        window = _Window(d, first, step, tuple(starts), tuple(sizes))
        low, high = window.bounds(self.length)
        return window if low >= 0 and high <= shape[d] else None

    def slices(self, written: set[Operand]) -> dict[Eqn, _Window]:
        """The slices of what is the same in all iterations, or is `written`, that move evenly."""
        found = {}
        for eqn in self.body.eqns:
            if eqn.primitive is dynamic_slice_p and (eqn.invars[0] in self.fixed or eqn.invars[0] in written):
                window = self.window(eqn.invars[1:], eqn.invars[0].aval.shape, eqn.params["slice_sizes"])
                if window is not None:
                    found[eqn] = window
        return found


def _written_out(eqn: Eqn, rewriter: Rewriter, constants: Constants) -> list[Operand] | None:
    """The scan's results by array operations; None where an iteration needs another one."""
    found = _Iterations(eqn, constants)
    writes = found.writes()
    if writes is None:
        return None
    program = _Program(found, writes)
    try:
        graph = stage(program.run, [v.aval for v in eqn.invars], "iterations")
    except (FuserError, NotImplementedError):  # a primitive without a batch rule, or without one for these params
        return None
    return None if graph.constvars else rewriter.splice(graph, eqn.invars)


class _Program:
    """The scan as a function of its operands, all iterations at once."""

    def __init__(self, found: _Iterations, writes: list[_Write | None]) -> None:
        self.found, self.writes = found, writes
        body, consts = found.body, found.consts
        carried = body.invars[consts : consts + found.carries]
        written = {c: n for n, (c, w) in enumerate(zip(carried, writes)) if w is not None}
        self.slices = found.slices(set(written))
        windows = [*self.slices.values(), *(w.window for w in writes if w is not None)]
        sources = [s.invars[0] for s in self.slices if s.invars[0] not in written]
        self.written = written
        outer = [v for window in windows for v in window.starts if isinstance(v, Var) and v in found.fixed] + sources
        self.outer = [v for v in dict.fromkeys(outer) if isinstance(v, Var)]
        self.before = drop_dead(replace(pick(body, range(consts)), outvars=tuple(self.outer)))
        values = [w.update.invars[1] if w is not None else Literal(0, ArrayType((), np.dtype("int32"))) for w in writes]
        kept = [e for e in body.eqns if e not in self.slices]
        rows = [s.outvars[0] for s in self.slices]
        ys = body.outvars[found.carries :]
        invars = [v for v in body.invars if v not in written]
        whole = replace(body, invars=(*invars, *rows), eqns=tuple(kept), outvars=(*values, *ys))
        self.all = drop_dead(whole)

    def run(self, *operands: Any) -> list[Any]:
        found, length = self.found, self.found.length
        consts, init, xs = split_scan(operands, found.consts, found.carries)
        known: dict[Operand, Any] = dict(zip(self.outer, replay(self.before, *consts)))
        with replayed(found.eqn.source):
            rows = [self._rows(s, p, known, init) for s, p in self.slices.items()]
            counters = [self._counter(n) for n, w in enumerate(self.writes) if w is None]
        given = [*consts, *counters, *xs, *rows]
        dims = [None] * len(consts) + [0] * (len(given) - len(consts))
        values, dims = batch(lambda *v: replay(self.all, *v), given, dims, length)
        values = [moved(v, d, 0, length) for v, d in zip(values, dims)]
        with replayed(found.eqn.source):
            finals = [
                self._last(n) if w is None else self._joined(w, value, init[n], known)
                for n, (w, value) in enumerate(zip(self.writes, values))
            ]
        return [*finals, *values[found.carries :]]

    def _counter(self, number: int) -> Any:
        """A counter's values in all iterations."""
        carry = self.found.body.invars[self.found.consts + number]
        first, step = progression(carry, self.found.known) or (0, 0)
        dtype = carry.aval.dtype
        count = iota_p.bind(dtype=dtype, shape=(self.found.length,), dimension=0)
        return count * dtype.type(step) + dtype.type(first)

    def _last(self, number: int) -> Any:
        """A counter after the loop."""
        carry = self.found.body.invars[self.found.consts + number]
        first, step = progression(carry, self.found.known) or (0, 0)
        end = first - step if self.found.eqn.params["reverse"] else first + self.found.length * step
        return np.asarray(end).astype(carry.aval.dtype)

    def _starts(self, window: _Window, known: dict[Operand, Any], first: Any) -> list[Any]:
        """The starts along each dimension, `first` along the moving one."""
        starts = [known[v] if v in known else self._constant(v) for v in window.starts]
        starts[window.moving] = np.asarray(first).astype(window.starts[window.moving].aval.dtype)
        return starts

    def _constant(self, start: Operand) -> np.ndarray:
        """A start that is a literal, or the same number in all iterations; of a dimension taken whole it does not matter."""
        first, _ = progression(start, self.found.known) or (0, 0)
        return np.asarray(first).astype(start.aval.dtype)

    def _rows(self, eqn: Eqn, window: _Window, known: dict[Operand, Any], init: list[Any]) -> Any:
        """What a slice reads in all iterations, as a view."""
        source = eqn.invars[0]
        x = init[self.written[source]] if source in self.written else known[source]  # type: ignore[index]
        low, high = window.bounds(self.found.length)
        d, size = window.moving, window.sizes[window.moving]
        sizes = (*window.sizes[:d], high - low, *window.sizes[d + 1 :])
        if sizes != x.shape:
            x = dynamic_slice_p.bind(x, *self._starts(window, known, low), slice_sizes=sizes)
        stride = max(abs(window.step), 1)
        if size == 1:
            every = [stride if k == d else 1 for k in range(x.ndim)]
            x = slice_p.bind(x, start_indices=(0,) * x.ndim, limit_indices=x.shape, strides=tuple(every))
            x = reshaped(x, (*x.shape, 1))
        else:
            x = sliding_windows_p.bind(x, dimensions=(d,), window=(size,), strides=(stride,), dilation=(1,))
        order = [d, *(x.ndim - 1 if k == d else k for k in range(x.ndim - 1))]
        x = transpose_p.bind(x, permutation=tuple(order))
        return rev_p.bind(x, dimensions=(0,)) if window.step < 0 else x

    def _joined(self, write: _Write, value: Any, initial: Any, known: dict[Operand, Any]) -> Any:
        """The carry after the loop: all windows side by side, where they were written."""
        window = write.window
        d, size = window.moving, window.sizes[window.moving]
        value = rev_p.bind(value, dimensions=(0,)) if window.step < 0 else value
        value = moved(value, 0, d)
        block = reshaped(value, (*window.sizes[:d], self.found.length * size, *window.sizes[d + 1 :]))
        if math.prod(block.shape) == math.prod(initial.shape):
            return block
        low, _ = window.bounds(self.found.length)
        return dynamic_update_slice_p.bind(initial, block, *self._starts(window, known, low))
