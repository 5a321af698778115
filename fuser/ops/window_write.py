"""`dynamic_update_slice` into memory that is there: a kernel writes the window alone, and the rest of the result is the operand's.

Made when a program is legalised for a target whose kernels do so, of updates of arrays whose memory the result may take over.
"""

from __future__ import annotations

from fuser.ir.graph import Eqn, Literal
from fuser.ir.primitive import Fusion, Movement, Primitive, register
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p

_of_update = dynamic_update_slice_p.rule
# As dynamic_update_slice, of which it has the rules that a finished program needs.
write_window_p: Primitive = register(
    Primitive(
        "write_window",
        Fusion.MOVEMENT,
        type=_of_update("type"),
        eval=_of_update("eval"),
        lower=_of_update("lower"),
        batch=_of_update("batch"),
        samples=_of_update("samples"),
        movement=Movement.UPDATE,
    )
)


def window_write(update: Eqn) -> Eqn:
    """A dynamic_update_slice as a write of its window."""
    return Eqn(write_window_p, update.invars, {}, update.outvars, update.source)


def reads_window(eqn: Eqn, write: Eqn) -> bool:
    """Whether an equation reads the window that is written."""
    if eqn.primitive is not dynamic_slice_p or eqn.invars[0] is not write.invars[0]:
        return False
    number = lambda start: start.val if isinstance(start, Literal) else start
    starts = [*map(number, eqn.invars[1:])] == [*map(number, write.invars[2:])]
    return starts and eqn.params["slice_sizes"] == write.invars[1].aval.shape
