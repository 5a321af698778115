"""Writes of windows as candidates: kernels that compute a value element by element and store it where it belongs in an array that is there.

The value's makers join a write as they join any reader. What must not share its kernel is what would need the array as it was: then the
array would be copied, of which a part alone is to be written.
"""

from __future__ import annotations

from fuser.ir.graph import Eqn, Var
from fuser.ir.index import Axis
from fuser.ops.window_write import reads_window
from fuser.partition.axes import Views
from fuser.partition.axis_matching import match
from fuser.partition.candidate import Candidate, Uses, escaping, within
from fuser.partition.group import FUSIBLE, Kind, Layout


def window(number: int, eqn: Eqn, views: Views) -> Candidate:
    """The candidate of a write of a window: it runs along what is written, and reads the array only to say whose memory it is."""
    operand, value, *starts = eqn.invars
    out = eqn.outvars[0]
    labels: Layout = tuple(None if e == 1 else Axis(e) for e in value.aval.shape)
    axes = [a for a in labels if a is not None]
    candidate = Candidate(Kind.ELEMENTWISE, [eqn], {number}, axes, [], {}, produced={out}, live_out={out})
    candidate.order, candidate.narrowest = list(axes), out.aval.dtype.itemsize
    if isinstance(value, Var):
        candidate.layout[value] = labels
    if (source := views(operand).source) is not None:
        candidate.windows[out] = source
    for read, along in ((operand, None), (value, labels), *((start, ()) for start in starts)):
        view = views(read)
        if view.source is None:
            continue
        if along is not None and view.dimensions is not None:
            dims = tuple(None if d is None else along[d] for d in view.dimensions)
            candidate.reads.setdefault(view.source, set()).add(dims)
        else:
            size = 0 if read is operand else value.aval.size
            candidate.opaque.setdefault(view.source, {})[object()] = size / max(view.source.aval.size, 1)
            candidate.uneven.add(view.source)
    return candidate


def blocker(a: Candidate, b: Candidate, uses: Uses) -> str | None:
    """Parts of arrays are written by kernels that compute values element by element, whose other values read nothing of the results."""
    if not (a.windows or b.windows):
        return None
    if not {a.kind, b.kind} <= set(FUSIBLE):
        return "a product or a loop writes whole arrays"
    if a.windows.keys() & b.inputs:
        return "it reads an array of which the other writes a part"
    if a.produced.intersection(b.windows.values()):
        return "it writes a part of what the other makes"
    if a.windows and b.opaque.keys() & a.produced:
        return "it reads at other indices what the other writes into an array"
    arrays = {*b.windows.values(), *b.changed}
    if escaping(a, b, uses) and not all(within(v, a, b, uses) for v in arrays):
        return "others read the value and the array of which it becomes a part, and so have to run between them"
    if a.inputs & b.changed or b.inputs & a.changed:
        return "it reads an array that is changed before it writes a part of it, so that the array would be copied"
    if b.inputs.intersection(a.windows.values()) or not all(_read_there(a, b, out) for out in b.windows):
        return "it writes a part of an array of which the other reads other elements, so that the array would be copied"
    if not _once(a, b):
        return "it writes a part of an array that other iterations of the kernel read there, so that the array would be copied"
    return None


def _once(a: Candidate, b: Candidate) -> bool:
    """Whether each element of an array that both together read where they write it is one iteration's."""
    mapping = match(a, b)
    axes = len(a.axes) + sum(axis not in mapping for axis in b.axes)
    eqns = (*a.eqns, *b.eqns)
    for candidate in (a, b):
        for out, array in candidate.windows.items():
            (write,) = (eqn for eqn in candidate.eqns if eqn.outvars[0] is out)
            own = candidate.layout.get(write.invars[1])  # type: ignore[arg-type]
            fewer = own is not None and sum(axis is not None for axis in own) < axes
            if fewer and any(array in eqn.invars and eqn is not write for eqn in eqns):
                return False
    return True


def _read_there(a: Candidate, b: Candidate, out: Var) -> bool:
    """Whether `a` reads nothing of the array of which `b` writes a part, or each element of that part where `b` then writes it."""
    array = b.windows[out]
    if array not in a.inputs:
        return True
    write = next(eqn for eqn in b.eqns if eqn.outvars[0] is out)
    reads = [eqn for eqn in a.eqns if array in eqn.invars]
    value, mapping = write.invars[1], match(a, b)
    if not isinstance(mapping, dict) or len(reads) < len(a.opaque.get(array, ())) or value not in b.layout:
        return False
    own = tuple(None if axis is None else mapping.get(axis, axis) for axis in b.layout[value])  # type: ignore[index]
    return all(reads_window(eqn, write) and a.layout.get(eqn.outvars[0]) == own for eqn in reads)
