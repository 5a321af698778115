"""Vectorisation remarks: why the innermost loops of a kernel are not vectorised. A written emitter in, the first reason out.

What gcc makes vector instructions of is known by operation, by how an element's offset is found, and by what one element
waits for. The test of this file compares the reasons with what gcc says of its own loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuser.backends.c import spell
from fuser.backends.c.emitter import NEAR, Emitter
from fuser.backends.c.schedules import masking
from fuser.backends.c.schedules.argreduce import is_argreduce
from fuser.backends.c.schedules.inner_reduction import InnerReduction
from fuser.backends.c.schedules.loop_kernel import LoopKernel
from fuser.backends.c.schedules.recurrence_fission import RecurrenceFission
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, is_complex
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import of_vector
from fuser.kernel.operands import computed, index_axes, index_of
from fuser.runtime import toolchain

Scalarised = tuple[str, int]  # the reason, and for how many elements

PLAIN_COMPLEX = ("add", "sub", "mul", "neg", "conj", "real", "imag", "select", "eq", "ne", "cast", "complex")


def remark(scalar: Scalarised | None) -> dict[str, Any]:
    """The entry of a KernelSource's `launch` for loops that are not vectorised."""
    return {"scalar": scalar} if scalar else {}


def worst(a: Scalarised | None, b: Scalarised | None) -> Scalarised | None:
    """The one with more elements."""
    return max((one for one in (a, b) if one), key=lambda one: one[1], default=None)


def why_not_vectorised(writer: Emitter) -> str:
    """Why the innermost loop is not vectorised, for users; "" where it is."""
    axis = _innermost(writer)
    if axis is None:
        alone = isinstance(writer, LoopKernel) and not isinstance(writer, RecurrenceFission)
        return (
            "the loop has a loop-carried dependence; independent lanes, as vmap gives, would be vectorised"
            if alone
            else ""
        )
    found = _of_reductions(writer) if isinstance(writer, InnerReduction) else ""
    if found:
        return found
    for node in _inside(writer):
        if writer.follows(node, axis) and (
            reason := _of_operation(writer, node, axis) or _of_index(writer, node, axis)
        ):
            return reason
    stored = (writer.kernel.params[store.param].dtype for store in writer.kernel.stores)
    return _HALF if _BY_COMPILER and FLOATS[0] in stored else ""


def elements(writer: Emitter) -> int:
    """How many elements, or iterations, the kernel's loops run over."""
    loops, loop = writer.loops, writer.kernel.loop
    steps = loop.time.extent if loop is not None and loop.time is not None else 1
    return loops.count((*loops.parallel, *loops.reduced)) * steps


_BY_COMPILER = spell.storage(FLOATS[0]) == "_Float16"  # who converts it; gcc does so one number at a time
_HALF = "the compiler converts float16 without vectors; float32 and bfloat16 are vectorised"


def _innermost(writer: Emitter) -> Axis | None:
    if isinstance(writer, LoopKernel):
        return writer.vector
    if isinstance(writer, InnerReduction) and writer.loops.vector not in writer.loops.reduced:
        return writer.loops.reduced[-1]
    return writer.loops.vector


def _inside(writer: Emitter) -> Iterator[Scalar]:
    """The nodes that innermost loops compute."""
    kernel: Kernel = writer.kernel
    if isinstance(writer, InnerReduction):
        return iter({node: None for sweep in kernel.sweeps for node in sweep.body})  # many are computed again
    return iter(kernel.nodes)


def _of_reductions(writer: InnerReduction) -> str:
    for sweep in writer.kernel.sweeps:
        recalled = writer.kept.keys() - set(sweep.kept)
        if any(n.op == "scan" and n not in recalled for n in sweep.body) and sweep not in writer.in_vectors:
            return "this prefix scan has a loop-carried dependence; along an axis other than the last it is vectorised"
        extremes = any(reduction.attr.positional for reduction in sweep.reductions)
        if extremes and not is_argreduce(writer.loops, sweep):
            return "argmax and argmin of rows this short are not vectorised; along the first axis they are"
    return ""


def _of_operation(writer: Emitter, node: Scalar, axis: Axis) -> str:
    dtype = node.args[-1].dtype if node.args else node.dtype
    if is_complex(dtype) and node.op not in ("load", "const", "reduction", "carry", "final", "lane", *PLAIN_COMPLEX):
        return f"complex {node.op} is not vectorised; functions of real and imaginary parts are"
    wide = dtype.kind in "iu" and dtype.itemsize == 8 and not _by_doubles()
    if wide and node.op in ("div", "rem") and writer.follows(node.args[1], axis):
        return "division of 64-bit integers by a variable is not vectorised; by a constant, or of narrower ones, it is"
    if _BY_COMPILER and FLOATS[0] in (node.dtype, dtype) and node.op in ("load", "cast", "bitcast"):
        return _HALF
    return ""


def _by_doubles() -> bool:
    """Whether vectors of integers of 64 bits become doubles, which are divided."""
    return "avx512dq" in toolchain.processor()


def _is_hoisted(writer: Emitter, division: Div) -> bool:
    return of_vector(division, writer.loops) and any(division.divisor % strip == 0 for strip in writer.strips)


def _of_index(writer: Emitter, node: Scalar, axis: Axis) -> str:
    if node.op not in ("load", "index"):
        return ""
    offset = index_of(node)
    divisions = (atom for atom, _ in offset.terms if isinstance(atom, Div) and axis in index_axes(atom.base))
    if any(not _is_hoisted(writer, division) for division in divisions):
        return "the index of each element takes an integer division; a reshape to axes of its own would not"
    if node.op == "index":
        return ""
    gathered = any(writer.follows(value, axis) for value in computed(offset))
    if (
        gathered
        and node not in writer.single
        and (node.dtype.itemsize not in masking.GATHERED or is_complex(node.dtype))
    ):
        return f"gathers of {node.dtype} are not vectorised; those of real elements of 4 and 8 bytes are"
    tested = node.args and writer.follows(node.args[0], axis)
    chosen = tested and axis is writer.loops.vector and writer.scattered(node)
    if tested and not gathered and not chosen and not 0 <= offset.coefficient(axis) <= NEAR:
        return "masked loads with a stride are not vectorised; of a contiguous copy they are"
    return ""
