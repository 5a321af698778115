"""Parallelisation: the axis whose iterations threads share, and for kernels with few parallel elements chunks of the outermost reduced axis,
of which threads reduce one each before the results are combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fuser.backends.c.function import Code, Range, Variable
from fuser.ir.index import Axis

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter

ENOUGH = 128  # shared iterations that leave no thread much longer at work than others


def shared_axis(axes: Sequence[Axis], extents: Mapping[Axis, int]) -> Axis:
    """The axis whose iterations threads share: the first with enough of them, else the longest."""
    return next((axis for axis in axes if extents[axis] >= ENOUGH), None) or max(axes, key=extents.__getitem__)


def count(writer: Emitter, total: Code, spread: Code, least: Code) -> None:
    """Say how long a chunk is, so as to `spread` them over threads with `least` iterations each, and how many there are."""
    writer.lets("int64_t", ("spread", spread), ("least", least))
    length = writer.let("int64_t", "length", "{spread} > {least} ? {spread} : {least}")
    writer.let("int64_t", "chunks", "({0} + {1} - 1) / {1}", total, length)


def open_loop(writer: Emitter, total: Code) -> tuple[Variable, Range]:
    """Open the loop over chunks, which threads share; gives its counter and the iterations of one."""
    if writer.threads:
        writer.pragma("omp parallel for schedule(static) num_threads({})", writer.team_size())
    chunk = writer.count("chunk", "0", writer.named("chunks"))
    first = Variable("first", "int64_t")
    end = writer.code("{0} + {length} < {1} ? {0} + {length} : {1}", first, total)
    last = writer.lets("int64_t", ("first", writer.code("{} * {length}", chunk)), ("last", end))
    return chunk, (first, last)
