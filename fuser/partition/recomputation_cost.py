"""Whether recomputing values of one candidate inside another costs more than storing them: the reason with both costs, or None.

`a` is what is computed, `b` what reads it; `values` are those of `a` that `b` reads, which would be stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fuser.ir.graph import Var
from fuser.ir.primitive import Movement
from fuser.ir.target import Target, duration
from fuser.partition.axes import is_shift
from fuser.partition.group import Kind

if TYPE_CHECKING:
    from fuser.partition.candidate import Candidate
    from fuser.partition.read_indices import Indices

DIVIDED = 4  # divisions that tell, along one dimension, which element a place with spaces between comes of


def padding(a: Candidate, copies: float, values: Iterable[Var], target: Target) -> str | None:
    """What asking whether elements are inside of padding costs, each several times and in loops of reductions, which are not
    split at its edges, where storing them costs less."""
    if copies <= 1 or not any(eqn.primitive.movement is Movement.PAD for eqn in a.eqns):
        return None
    asked = copies * math.prod(x.extent for x in a.axes) * target.compute("padding", 4)
    stored = target.launch + target.move(2 * sum(v.aval.nbytes for v in values))
    if asked <= stored:
        return None
    return f"it reads padding at {math.ceil(copies)} different indices; asking for it costs {duration(asked)}, storing it {duration(stored)}"


def dilation(a: Candidate, b: Candidate, target: Target) -> str | None:
    """What dividing by the spaces between elements costs, each row or element anew in loops of reductions, which are not
    unrolled by them as elementwise loops are, where storing what is made of them costs less."""
    pads = [eqn.params["padding_config"] for eqn in a.eqns if eqn.primitive.movement is Movement.PAD]
    spaced = [config for config in pads if any(between for _, _, between in config)]
    values = b.inputs & a.produced
    if not spaced or not values or not a.order:
        return None
    divisions = 0.0
    for config in spaced:
        apart = math.prod(x.extent for x in a.order) / (1 if config[-1][2] else a.order[-1].extent)
        divisions += DIVIDED * sum(between > 0 for _, _, between in config) * apart
    asked = divisions * target.compute("index_div", 4)
    stored = target.launch + target.move(2 * sum(v.aval.nbytes for v in values))
    if asked <= stored:
        return None
    return f"it reads elements with spaces between; dividing for their places costs {duration(asked)}, storing it {duration(stored)}"


def division(a: Candidate, b: Candidate, opaque: set[Var], target: Target) -> str | None:
    """`b` reads values of `a` in another shape: what `a` reads along some of its axes alone is then found by dividing the
    offset of each element, one number after the other."""
    values = [v for v in opaque & b.reshaped if v in a.layout]
    uneven = [
        v for v in values if a.uneven or any(read != a.layout[v] for several in a.reads.values() for read in several)
    ]
    if not uneven:
        return None
    domain, work = math.prod(x.extent for x in b.axes) * max(b.sweeps, 1), a.cost + b.cost
    dividing = domain * (2 * target.compute("index_div", 4) + (target.scalar - 1) * work / target.operations)
    stored = target.launch + target.move(2 * sum(v.aval.nbytes for v in uneven))
    if dividing <= stored:
        return None
    return f"it reads a value in another shape; dividing for each element's offset costs {duration(dividing)}, storing it {duration(stored)}"


def again(a: Candidate, b: Candidate, found: Indices, values: Iterable[Var], target: Target) -> str | None:
    """What computing `a` at these indices inside `b` costs, and what storing these values of it would, where that is less."""
    size = math.prod(x.extent for x in a.axes)
    values, times = list(values), sum(found.values())
    wide = max([v.aval.dtype.itemsize for v in values], default=4) / 4
    repeated = repetition(a, b, found, values, target) * size * wide / target.operations
    repeated *= target.waiting if b.kind is Kind.LOOP else 1
    gathered = sum(b.gathered.get(v, 0) for v in values) * target.gathered
    repeated += gathered * max(sum(v.aval.size > 1 for v in a.inputs) - 1, 0)
    repeated += sum(a.gathered.values()) * (times - 1) * target.gathered
    if repeated <= 0:
        return None
    moving = target.move(sum(v.aval.nbytes for v in (*b.inputs, *b.live_out)))
    own = b.cost * math.prod(x.extent for x in b.axes) / target.operations + gathered
    lost = max(moving, own + repeated) - max(moving, own)
    stored = target.launch + target.move(2 * sum(v.aval.nbytes for v in values))
    return f"computing it again costs {duration(lost)}, storing it {duration(stored)}" if lost > stored else None


def repetition(a: Candidate, b: Candidate, found: Indices, values: Iterable[Var], target: Target) -> float:
    """Additions an element of `a` that computing it at these indices inside `b` takes beyond computing it once, or keeping these values
    in rows, where all of them are constant distances (`kernel/sliding_window.py`)."""
    anew = a.cost * max(sum(found.values()) - 1, 0)
    rows = a.kind is b.kind is Kind.ELEMENTWISE and bool(b.order) and b.order[-1].extent >= target.windowed
    if not (rows and all(map(is_shift, found)) and math.prod(x.extent for x in b.order) >= target.windowed**2):
        return anew
    return min(anew, target.kept * sum(1 + sum(b.opaque.get(v, found).values()) + (v in b.reads) for v in values))


def of_operands(a: Candidate, b: Candidate, times: float, target: Target) -> str | None:
    """What computing a product's operands so many times where it reads them costs, and what storing them would, where that is less.

    A product that computes its operands waits for it, as its own units do no other work then; what it reads instead of them again comes
    from the nearest memory.
    """
    size = math.prod(x.extent for x in a.axes)
    values = sum(v.aval.nbytes for v in b.inputs & a.produced)
    read = sum(v.aval.nbytes for v in a.inputs)
    computed = a.cost * size * times / target.operations
    again = max(0.0, read - values) * (times - 1) / target.levels[0].bandwidth
    stored = target.launch + target.move(2 * values)
    if computed + again <= stored:
        return None
    return f"computing its operands {math.ceil(times)} times costs {duration(computed + again)}, storing them {duration(stored)}"
