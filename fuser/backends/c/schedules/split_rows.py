"""Index-set splitting of rows that are reduced: a row is cut where tests of position along it change their answer.

In: a run whose reductions may take elements in in any order, and twice. Out: its pieces, each a loop without those tests. Kernels that check what
NumPy would warn of read padded arrays so, and would else ask at each element which side of an edge it is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.backends.c.function import Code, Part, Range, code, joined
from fuser.backends.c.schedules import masking, uniform_tests
from fuser.backends.c.target import TARGET
from fuser.ir.index import ZERO
from fuser.ir.scalar import Scalar
from fuser.kernel.index_set_splitting import NARROW, cut
from fuser.kernel.kernel import Store
from fuser.kernel.sliding_window import IDEMPOTENT

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction, Run

MOST = 8  # pieces of a row
LEAST = 64  # elements of a row


@dataclass(frozen=True, eq=False)
class Piece:
    """Elements `first` … `last` of a row: what is computed, stored, and taken in by each reduction."""

    first: int
    last: int
    nodes: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    taken: tuple[Scalar, ...]


def pieces(writer: InnerReduction, run: Run) -> list[Piece]:
    """The pieces of each row of a run; none where it is one, or has to be taken in order."""
    sweep, axis = run.sweep, run.axis
    extent = writer.loops.extents[axis]
    plain = run.vectorised and not (run.scans or sweep.kept or writer.widened or writer.narrowed or writer.kept)
    exact = all(reduction.attr.reduction in IDEMPOTENT for reduction in sweep.reductions)
    if not plain or not exact or extent < LEAST or axis is not writer.loops.vector:
        return []
    taken = [Store(-1, ZERO, reduction.args[0]) for reduction in sweep.reductions]
    found = cut(run.body, [*sweep.stores, *taken], [(axis, extent)], MOST * len(run.body))
    if found is None or not 1 < len(found.parts) <= MOST:
        return []
    count = len(sweep.stores)
    return [
        Piece(first, last, part.nodes, part.stores[:count], tuple(store.value for store in part.stores[count:]))
        for first, last, part in found.parts
    ]


def write(writer: InnerReduction, run: Run, found: list[Piece], clauses: Mapping[Scalar, Code]) -> None:
    """The loops of a row, one for each piece. `clauses` are those of reductions for `omp simd`."""
    writer.made(index_set_splitting=len(found))
    told = joined(list(clauses.values()), "")
    for piece in found:
        begin: Part = "0" if piece.first == 0 else writer.sizes(("from", run.axis, piece.first), piece.first)
        whole = piece.last == writer.loops.extents[run.axis] - 1
        end: Part = (
            writer.extents[run.axis] if whole else writer.sizes(("to", run.axis, piece.last + 1), piece.last + 1)
        )
        if piece.last - piece.first >= NARROW:  # what was asked of each element may now be the same for the whole piece
            uniform_tests.compute(writer, piece.nodes)
        for number, span in enumerate(_spans(writer, run, piece, (begin, end))):
            with writer.scope():
                if number:
                    writer.open("if ({} < {})", writer.named("whole"), end)
                if piece.last - piece.first >= NARROW:
                    writer.pragma("omp simd{}", told)
                writer.loop(run.axis, *span)
                _element(writer, run, piece)
                writer.close()
                if number:
                    writer.close()


def _element(writer: InnerReduction, run: Run, piece: Piece) -> None:
    writer.define_all(piece.nodes)
    for reduction, value in zip(run.sweep.reductions, piece.taken):
        writer.accumulate(reduction, writer.operand(value), "")
    for store in piece.stores:
        writer.store(store)


def _spans(writer: InnerReduction, run: Run, piece: Piece, span: Range) -> list[Range]:
    """The whole vectors of a piece, and its last elements as a vector once more; all of it, where there is no vector or one may not be
    computed again."""
    sizes = [node.dtype.itemsize for node in piece.nodes if node.op == "load"]
    sizes += [writer.kernel.params[store.param].dtype.itemsize for store in piece.stores]
    lanes = TARGET.vector // min(sizes, default=4)
    again = masking.dense(writer, piece.nodes) and all(map(writer.stored_again, piece.stores))
    if not again or piece.last + 1 - piece.first < lanes:
        return [span]
    first, last = span
    whole = writer.let("int64_t", "whole", f"{{1}} + ({{0}} - {{1}}) / {lanes} * {lanes}", last, first)
    return [(first, whole), (code(f"{{}} - {lanes}", last), code(f"{{}} - {lanes} + {lanes}", last))]
