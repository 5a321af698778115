"""How many elements a thread takes of an array at once: 16 bytes, or one where most accesses begin between multiples of 16 bytes.

Where threads hold several neighbours, an access that is not aligned is one instruction for each of them, whose threads are 16 bytes apart: it
touches four times as many lines of the first cache as one of neighbouring threads' neighbouring elements. Stencils of many taps are limited by it.
"""

from __future__ import annotations

import math

from fuser.backends.triton.emitter import widest
from fuser.backends.triton.target import MACHINES
from fuser.ir.index import Affine, Axis
from fuser.kernel.kernel import Kernel

LINE_BYTES = 128  # that a multiprocessor's first cache gives in a cycle
WARP = 32
NARROW = 1.25  # of the time of memory where a thread takes 16 bytes at once, measured on an H200


def narrow_pays(kernel: Kernel, vector: Axis) -> bool:
    """Whether a kernel without reductions is faster where a thread takes one element at once along `vector`: cycles of the first cache for 32 elements,
    or those in which memory moves them."""
    together, wide, narrow = widest(kernel), 0.0, 0.0
    accesses = [(n.attr.param, n.attr.offset) for n in kernel.nodes if n.op == "load"]
    accesses += [(s.param, s.offset) for s in kernel.stores]
    along = [(param, index) for param, index in accesses if abs(index.coefficient(vector)) == 1]
    for param, index in along:
        size = kernel.params[param].dtype.itemsize
        lines = WARP * size / LINE_BYTES
        narrow += max(1.0, lines)
        wide += lines * (together // _alignment(index, vector, together))  # each instruction touches all lines
    machine = MACHINES["cuda:90"]
    moved = WARP * sum(kernel.params[param].dtype.itemsize for param in {param for param, _ in along})
    memory = (
        moved / machine.copy * (machine.instructions / 4)
    )  # each of a multiprocessor's schedulers issues one a cycle
    return max(narrow, NARROW * memory) < max(wide, memory)


def _alignment(index: Affine, vector: Axis, together: int) -> int:
    """Of `together` elements along `vector`, a power of two, how many one instruction takes: what strides are multiples of. Offsets are
    arguments, of which compilers know no multiples."""
    if index.offset or index.coefficient(vector) != 1:
        return 1
    return math.gcd(together, *(factor for atom, factor in index.terms if atom is not vector))
