"""Argmax and argmin along a row: blocks of values in the core's own cache, their extreme, and then where it is.

In a row that is not long each value becomes a whole number that is ordered as the values are, with its position
behind it, and the least or greatest of these says both.

A block is looked through for a position only if its extreme beats those before it, so that nearly always the work is
one vector maximum. The values are computed once, for what is computed again might round differently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Number, Part, Range, Variable, code, joined
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_inexact
from fuser.kernel.kernel import Kernel, Sweep, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, needed, operands

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction, Run

BLOCK = 1024
SHORTEST = 64  # elements of a row from which blocks pay
# Elements of a row up to which keys pay: a third of what its first blocks take, most of which are looked through. Rows that are shared
# out in chunks are longer.
LONGEST_BY_KEYS = 1 << 14
FEWEST = 4  # elements of a row from which vectors pay


def is_argreduce(loops: Loops, sweep: Sweep) -> bool:
    """Whether a sweep looks for positions of extremes and for nothing else, along enough elements."""
    only = sweep.reductions and not sweep.stores and not sweep.kept and all(f.attr.positional for f in sweep.reductions)
    if not only or len(loops.reduced) != 1 or any(node.op == "scan" for node in sweep.body):
        return False
    return loops.extents[loops.reduced[0]] >= SHORTEST or _has_keys(loops, sweep)


def with_positions_apart(kernel: Kernel, loops: Loops) -> Kernel:
    """The kernel whose sweeps look for positions of extremes before they do other things, in loops of their own: together all of
    them would be done one number after the other."""
    sweeps = [part for sweep in kernel.sweeps for part in _apart(sweep, loops)]
    return kernel if len(sweeps) == len(kernel.sweeps) else replace(kernel, sweeps=tuple(sweeps))


def _apart(sweep: Sweep, loops: Loops) -> list[Sweep]:
    """The sweep as one for positions and one for the rest, which comes later, as it may write over what both read."""
    positions = tuple(f for f in sweep.reductions if f.attr.positional)
    others = tuple(f for f in sweep.reductions if not f.attr.positional)
    body = needed([f.args[0] for f in positions], sweep.body)
    first = replace(sweep, body=tuple(body), reductions=positions, stores=(), kept=())
    if not positions or not (others or sweep.stores) or sweep.kept or not is_argreduce(loops, first):
        return [sweep]
    roots = [*(operand for f in others for operand in operands(f)), *(store.value for store in sweep.stores)]
    roots += [atom for store in sweep.stores for atom in computed(store.offset)]
    rest = tuple(needed(roots, sweep.body))
    return [first, replace(sweep, row=(), row_stores=(), body=rest, reductions=others)]


def _has_keys(loops: Loops, sweep: Sweep) -> bool:
    """Whether a row is looked through once, by keys."""
    extent = loops.extents[loops.reduced[0]]
    return FEWEST <= extent <= LONGEST_BY_KEYS and all(map(_keys_fit, sweep.reductions))


def argreduce(writer: InnerReduction, run: Run, span: Range) -> None:
    """Write the run of such a sweep, whose accumulators are declared."""
    if _has_keys(writer.loops, run.sweep):
        _by_keys(writer, run)
    else:
        _by_blocks(writer, run, span)


def _by_blocks(writer: InnerReduction, run: Run, span: Range) -> None:
    (first, last), sweep = span, run.sweep
    base = writer.count("base", first, last, f"{{}} += {BLOCK}")
    writer.let("int64_t", "width", f"{{0}} - {{1}} < {BLOCK} ? {{0}} - {{1}} : {BLOCK}", last, base)
    for reduction in sweep.reductions:
        writer.buffer(_kind(reduction), f"{writer.name(reduction)}_block", BLOCK)
    writer.pragma("omp simd")
    x = writer.count("x", "0", writer.named("width"))
    writer.let("int64_t", writer.axis_names[run.axis], "{} + {}", base, x)
    writer.define_all(run.body)
    for reduction in sweep.reductions:
        writer.set(writer.at(f"{writer.name(reduction)}_block", x), writer.operand(reduction.args[0]))
    writer.close()
    for reduction in sweep.reductions:
        _look(writer, reduction)
    writer.close()


def _by_keys(writer: InnerReduction, run: Run) -> None:
    """The same for rows of no more than `LONGEST_BY_KEYS` values of up to 32 bits."""
    bests: list[Variable] = []
    clauses = []
    sweep = run.sweep
    for reduction in sweep.reductions:
        most = reduction.attr.reduction == "argmax"
        bests.append(writer.var("int64_t", f"{writer.name(reduction)}_best", "INT64_MIN" if most else "INT64_MAX"))
        clauses.append(code(f" reduction({'max' if most else 'min'}:{{}})", bests[-1]))
    writer.pragma("omp simd{}", joined(clauses, ""))
    x = writer.count("x", "0", code("(int32_t){}", writer.extents[run.axis]), kind="int32_t")
    writer.let("int64_t", writer.axis_names[run.axis], x)
    writer.define_all(run.body)
    for reduction, best in zip(sweep.reductions, bests):
        most = reduction.attr.reduction == "argmax"
        key = writer.let("int32_t", f"{best.name}_key", _key(reduction, writer.operand(reduction.args[0]), most))
        place = code("(INT32_MAX - {})" if most else "{}", x)
        pair = writer.let("int64_t", f"{best.name}_pair", "(int64_t)((uint64_t){} << 32) | {}", key, place)
        writer.set(best, f"{{0}} {'>' if most else '<'} {{1}} ? {{0}} : {{1}}", pair, best)
    writer.close()
    for reduction, best in zip(sweep.reductions, bests):
        place = code("INT32_MAX - (int32_t){}" if reduction.attr.reduction == "argmax" else "(int32_t){}", best)
        writer.set(f"{writer.name(reduction)}_at", place)


def _keys_fit(reduction: Scalar) -> bool:
    """Whether the values of a reduction become keys of 32 bits."""
    dtype = reduction.attr.accumulator
    return dtype.itemsize <= 4 and (dtype.kind in "iub" or spell.local(dtype) == "float")


def _key(reduction: Scalar, value: Part, most: bool) -> Code:
    """The 32-bit number of a value, ordered as the values are: zeros are equal, and nan comes first."""
    dtype = reduction.attr.accumulator
    if dtype.kind == "u" and dtype.itemsize == 4:
        return code("(int32_t)({} ^ 0x80000000u)", value)
    if dtype.kind in "iub":
        return code(value)
    bits = spell.called("bits_of_float", code("{} + {}", value, Number("0.0f", "float")))
    ordered = code("({0} ^ (int32_t)((uint32_t)((int32_t){0} >> 31) >> 1))", bits)
    return code(f"{{0}} != {{0}} ? {'INT32_MAX' if most else 'INT32_MIN'} : (int32_t){{1}}", value, ordered)


def _look(writer: InnerReduction, reduction: Scalar) -> None:
    """The extreme of a block and, if it beats what came before, its first position."""
    name, accumulator, kind = writer.name(reduction), reduction.attr.accumulator, _kind(reduction)
    inexact, most = is_inexact(accumulator), reduction.attr.reduction == "argmax"
    sign = ">" if most else "<"
    block, found, place = (writer.named(f"{name}_{what}") for what in ("block", "acc", "at"))
    best = writer.var(
        kind, f"{name}_best", spell.literal(reduction_identity(reduction.attr.reduction, accumulator), accumulator)
    )
    nan = writer.var("int", f"{name}_nan", "0")
    clause = code(f"reduction({'max' if most else 'min'}:{{}})", best)
    writer.pragma("omp simd {}{}", clause, code(" reduction(|:{})", nan) if inexact else "")
    x = writer.count("x", "0", writer.named("width"))
    value = writer.let(kind, "value", writer.at(block, x))
    writer.set(best, f"{{0}} {sign} {{1}} ? {{0}} : {{1}}", value, best)
    if inexact:
        writer.set(nan, "{0} != {0}", value, operator="|=")
    writer.close()
    beats = code(f"({{}} < 0) | ({{}} {sign} {{}})", place, best, found)
    if inexact:
        beats = code("{0} == {0} & ({1} | {2})", found, beats, nan)
    writer.open("if ({})", beats)
    at = writer.var("int32_t", "at", "1 << 30")
    writer.pragma("omp simd reduction(min:{})", at)
    x = writer.count("x", "0", writer.code("(int32_t){width}"), kind="int32_t")
    value = writer.let(kind, "value", writer.at(block, x))
    here = code("{} == {}", value, best)
    if inexact:
        here = code("({0} ? {1} != {1} : {2})", nan, value, here)
    writer.set(at, "{0} & ({1} < {2}) ? {1} : {2}", here, x, at)
    writer.close()
    writer.set(found, writer.at(block, at))
    writer.set(place, "{base} + {}", at)
    writer.close()


def _kind(reduction: Scalar) -> str:
    dtype = reduction.attr.accumulator
    return "uint8_t" if dtype == BOOL else spell.local(dtype)
