"""Argmax and argmin along a row: blocks of values in the core's own cache, their extreme, and then where it is.

A short row is one vector or a few: each value becomes a whole number that is ordered as the values are, with its position
behind it, and the least or greatest of these says both.

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
SHORTEST = 64  # elements of a row from which blocks pay
FEWEST = 4  # elements of a row from which vectors pay


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


def keyed(writer: Rows, stage: Stage, body: list[Scalar], axis: Axis) -> None:
    """Write the same for rows of fewer than `SHORTEST` values of up to 32 bits."""
    line = writer.line
    bests = [f"{writer.name(fold)}_best" for fold in stage.folds]
    clauses = []
    for fold, best in zip(stage.folds, bests):
        most = fold.attr.fold == "argmax"
        line(f"int64_t {best} = {'INT64_MIN' if most else 'INT64_MAX'};")
        clauses.append(f" reduction({'max' if most else 'min'}:{best})")
    line(f"#pragma omp simd{''.join(clauses)}")
    writer.open(f"for (int32_t x = 0; x < (int32_t){writer.extents[axis]}; ++x)")
    line(f"const int64_t {writer.axis_names[axis]} = x;")
    for node in body:
        writer.define(node)
    for fold, best in zip(stage.folds, bests):
        most = fold.attr.fold == "argmax"
        line(f"const int32_t {best}_key = {_key(fold, writer.operand(fold.args[0]), most)};")
        place = "(INT32_MAX - x)" if most else "x"
        line(f"const int64_t {best}_pair = (int64_t)((uint64_t){best}_key << 32) | {place};")
        line(f"{best} = {best}_pair {'>' if most else '<'} {best} ? {best}_pair : {best};")
    writer.close()
    for fold, best in zip(stage.folds, bests):
        place = f"INT32_MAX - (int32_t){best}" if fold.attr.fold == "argmax" else f"(int32_t){best}"
        line(f"{writer.name(fold)}_at = {place};")


def keys_fit(fold: Scalar) -> bool:
    """Whether the values of a fold become keys of 32 bits."""
    dtype = fold.attr.accumulator
    return dtype.itemsize <= 4 and (dtype.kind in "iub" or spell.local(dtype) == "float")


def _key(fold: Scalar, value: str, most: bool) -> str:
    """The 32-bit number of a value, ordered as the values are: zeros are equal, and nan comes first."""
    dtype = fold.attr.accumulator
    if dtype.kind == "u" and dtype.itemsize == 4:
        return f"(int32_t)({value} ^ 0x80000000u)"
    if dtype.kind in "iub":
        return value
    bits = f"bits_of_float({value} + 0.0f)"
    ordered = f"({bits} ^ (int32_t)((uint32_t)((int32_t){bits} >> 31) >> 1))"
    return f"{value} != {value} ? {'INT32_MAX' if most else 'INT32_MIN'} : (int32_t){ordered}"


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
