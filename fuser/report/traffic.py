"""How many bytes a group's kernel moves, where that is more than each input and output once.

In: a fusion group. Out: bytes. A kernel with several stages runs over its reduced axes once for each; what one stage
has read is still in the core's cache for the next, unless the rows in flight are longer than that cache.
"""

from __future__ import annotations

import math

from fuser.ir.index import Axis
from fuser.kernel.kernel import Access, Kernel
from fuser.kernel.lower import lower
from fuser.kernel.operands import index_axes
from fuser.partition.group import FusionGroup

CACHE = 1 << 20  # bytes of a core's own cache
SIDE_BY_SIDE = 2048  # neighbouring rows that a column reduction has in flight


def bytes_moved(group: FusionGroup, generated: bool) -> int:
    """Bytes that one run reads and writes; `generated` says whether a kernel is generated for the group."""
    if not generated or not group.reduced:
        return group.ideal_bytes
    kernel = lower(group)
    reads = _stages_reading(kernel)
    again = {param: number - 1 for param, number in reads.items() if number > 1}
    if _in_flight(kernel, again) <= CACHE:
        return group.ideal_bytes
    return group.ideal_bytes + sum(number * _nbytes(kernel, param) for param, number in again.items())


def _nbytes(kernel: Kernel, param: int) -> int:
    return math.prod(kernel.params[param].shape) * kernel.params[param].dtype.itemsize


def _accesses(kernel: Kernel) -> list[tuple[int, Access]]:
    """(stage, access) of every load that runs along the reduced axes."""
    cols = set(kernel.reduced)
    loads = (
        (number, node.attr) for number, stage in enumerate(kernel.sweeps) for node in stage.body if node.op == "load"
    )
    return [(number, access) for number, access in loads if index_axes(access.offset) & cols]


def _stages_reading(kernel: Kernel) -> dict[int, int]:
    """For each parameter that is read along the reduced axes, in how many stages it is."""
    stages: dict[int, set[int]] = {}
    for number, access in _accesses(kernel):
        stages.setdefault(access.param, set()).add(number)
    return {param: len(numbers) for param, numbers in stages.items()}


def _in_flight(kernel: Kernel, params: dict[int, int]) -> int:
    """Bytes between two reads of the same element of `params`, which must stay in the cache for the second to be free."""
    length = math.prod(axis.extent for axis in kernel.reduced)
    total = 0
    for param in params:
        access = next(access for _, access in _accesses(kernel) if access.param == param)
        total += length * _abreast(kernel, access) * kernel.params[param].dtype.itemsize
    return total


def _abreast(kernel: Kernel, access: Access) -> int:
    """How many rows run side by side: 1, or some thousand where memory runs along the rows' index."""
    neighbours = [atom for atom, stride in access.offset.terms if abs(stride) == 1 and isinstance(atom, Axis)]
    rows = [axis.extent for axis in neighbours if axis in kernel.parallel]
    return min(rows[0], SIDE_BY_SIDE) if rows else 1
