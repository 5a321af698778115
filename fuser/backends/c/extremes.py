"""Argmax and argmin along a row: blocks of values in the core's own cache, their extreme, and then where it is.

A block is looked through for a position only if its extreme beats those before it, so that nearly always the work is
one vector maximum. The values are computed once, for what is computed again might round differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_inexact
from fuser.kernel.kernel import Stage, fold_identity

if TYPE_CHECKING:
    from fuser.backends.c.rows import Rows

BLOCK = 1024
SHORTEST = 24  # elements of a row from which blocks pay


def extremes(writer: Rows, stage: Stage, body: list[Scalar], axis: Axis, span: tuple[str, str]) -> None:
    """Write the run of a stage all of whose folds are argmax or argmin; their accumulators are declared."""
    first, last = span
    line = writer.line
    writer.open(f"for (int64_t base = {first}; base < {last}; base += {BLOCK})")
    line(f"const int64_t width = {last} - base < {BLOCK} ? {last} - base : {BLOCK};")
    for fold in stage.folds:
        line(f"{_kind(fold)} {writer.name(fold)}_block[{BLOCK}] __attribute__((aligned(64)));")
    line("#pragma omp simd")
    writer.open("for (int64_t x = 0; x < width; ++x)")
    line(f"const int64_t {writer.axis_names[axis]} = base + x;")
    for node in body:
        writer.define(node)
    for fold in stage.folds:
        line(f"{writer.name(fold)}_block[x] = {writer.operand(fold.args[0])};")
    writer.close()
    for fold in stage.folds:
        _look(writer, fold)
    writer.close()


def _look(writer: Rows, fold: Scalar) -> None:
    """The extreme of a block and, if it beats what came before, its first position."""
    name, accumulator = writer.name(fold), fold.attr.accumulator
    inexact, line = is_inexact(accumulator), writer.line
    most = fold.attr.fold == "argmax"
    sign = ">" if most else "<"
    best = f"{name}_best"
    line(f"{_kind(fold)} {best} = {spell.literal(fold_identity(fold.attr.fold, accumulator), accumulator)};")
    line(f"int {name}_nan = 0;")
    clause = f"reduction({'max' if most else 'min'}:{best})" + (f" reduction(|:{name}_nan)" if inexact else "")
    line(f"#pragma omp simd {clause}")
    writer.open("for (int64_t x = 0; x < width; ++x)")
    line(f"const {_kind(fold)} value = {name}_block[x];")
    line(f"{best} = value {sign} {best} ? value : {best};")
    if inexact:
        line(f"{name}_nan |= value != value;")
    writer.close()
    beats = f"({name}_at < 0) | ({best} {sign} {name}_acc)"
    if inexact:
        beats = f"{name}_acc == {name}_acc & ({beats} | {name}_nan)"
    writer.open(f"if ({beats})")
    line("int32_t at = 1 << 30;")
    line("#pragma omp simd reduction(min:at)")
    writer.open("for (int32_t x = 0; x < (int32_t)width; ++x)")
    line(f"const {_kind(fold)} value = {name}_block[x];")
    found = f"value == {best}" if not inexact else f"({name}_nan ? value != value : value == {best})"
    line(f"at = {found} & (x < at) ? x : at;")
    writer.close()
    line(f"{name}_acc = {name}_block[at];")
    line(f"{name}_at = base + at;")
    writer.close()


def _kind(fold: Scalar) -> str:
    dtype = fold.attr.accumulator
    return "uint8_t" if dtype == BOOL else spell.local(dtype)
