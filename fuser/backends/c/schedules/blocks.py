"""Blocks along the vector that stay in the core's own cache: what is staged, fissioned, interleaved or streamed goes through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.backends.c.function import Part, Symbol, Variable, code, joined
from fuser.backends.c.schedules import fission, staging, unroll_and_jam
from fuser.kernel.kernel import Store

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise, Span
    from fuser.backends.c.schedules.piece import Piece

BLOCK = 1024  # elements of a large result that are computed before they leave for memory
X = Variable("x", "int64_t")  # the running element of a block


def write(writer: Elementwise, piece: Piece, span: Span, share: bool) -> None:
    """The loop over blocks of a span, and in each block the loops over its elements; threads `share` the blocks."""
    block = length(piece)
    if share:
        writer.shared()
    writer.count("base", span.begin, span.end, f"{{}} += {block}")
    writer.let("int64_t", "width", f"{{0}} - {{base}} < {block} ? {{0}} - {{base}} : {block}", span.end)
    staging.read(writer, piece, span.axis)

    def element(offset: Part) -> None:
        writer.let("int64_t", writer.axis_names[span.axis], "{base} + {}", offset)

    if piece.unroll_and_jam:
        unroll_and_jam.write(writer, piece, block, element)
    else:
        for store in piece.streaming:
            writer.targets[store] = writer.at(writer.room_for(store, block), X)
        fission.write(writer, piece, block, writer.named("width"), element)
    staging.leave(writer, piece, span.axis)
    for store in piece.streaming:
        _stream(writer, span, store)
    writer.close()


def length(piece: Piece) -> int:
    """Elements of a block."""
    if piece.tiles_in or piece.tiles_out:
        return staging.ROWS
    if piece.fission:
        return fission.block_of(piece)
    return BLOCK // unroll_and_jam.step(piece) * unroll_and_jam.step(piece) if piece.unroll_and_jam else BLOCK


def _stream(writer: Elementwise, span: Span, store: Store) -> None:
    """A block of a result goes to memory past the caches, but for one that lies over an array which the kernel just read."""
    param = writer.params[store.param]
    with writer.scope():
        writer.open()
        writer.let("int64_t", writer.axis_names[span.axis], "{base}")
        target, block = writer.target(store), writer.named(f"{param.name}_block")
        form = f"{{}}(&{{}}, {{}}, {{width}} * sizeof({param.type}));"
        over = [writer.params[number] for number in sorted(writer.overwritten(store.param))]
        if over:
            same = joined([code("{} == {}", param, other) for other in over], " || ")
            writer.open("if ({})", same)
            writer.do(form, Symbol("__builtin_memcpy"), target, block)
            writer.close(flat=True)
            writer.do("else " + form, Symbol("stream"), target, block)
        else:
            writer.do(form, Symbol("stream"), target, block)
        writer.close()
