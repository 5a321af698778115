"""FusionGroup → the text of one Python function: a Pallas kernel with its grid and blocks, or calls that XLA compiles.

`in_pallas` needs no devices: `Refused` by the tiling or the writer means XLA, with that reason. Where arrays are only read
in an order that tiles lack, XLA moves them first and the kernel reads the copy; the text and the plan say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.backends.tpu import spell
from fuser.backends.tpu.arrays import Arrays
from fuser.backends.tpu.blocks import Windows, grid_of
from fuser.backends.tpu.call import Before, write_call
from fuser.backends.tpu.host_calls import HostCall
from fuser.backends.tpu.loop_kernel import LoopKernel
from fuser.backends.tpu.reductions import Rows, phases
from fuser.backends.tpu.tiling import Refused, Tiling
from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Fusion, Movement
from fuser.kernel.decompose import decompose
from fuser.kernel.lower import lower, results
from fuser.kernel.lower_loop import lower_loop
from fuser.ops.elementwise import copy_p
from fuser.partition.group import FusionGroup, Kind

PALLAS = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN, Kind.LOOP)
LARGER = (Movement.SPREAD, Movement.MAKE)  # movement that makes arrays larger is left to the kernel


@dataclass(frozen=True)
class Emitted:
    """A function's text, what it calls on the host, and of a Pallas kernel: its grid, bytes of vector memory, and bytes that it
    moves."""

    text: str
    pallas: bool
    note: str = ""
    grid: tuple[int, ...] = ()
    vmem: int = 0
    moved: int = 0
    host_calls: tuple[HostCall, ...] = ()

    def __str__(self) -> str:
        """The file of the function alone."""
        return spell.header(self.text) + "\n\n\n" + self.text + "\n"


def in_pallas(group: FusionGroup, vmem: int) -> Emitted:
    """The kernel of a group that is elementwise, a reduction, a scan or a loop; Refused, with the reason, where XLA takes it."""
    try:
        return _pallas(group, group, vmem)
    except Refused as refusal:
        reason = str(refusal)
    moved, inner = hoisted(group)
    if moved:
        try:
            found = _pallas(inner, group, vmem)
            names = ", ".join(dict.fromkeys(eqn.primitive.name for eqn in moved))
            return replace(found, note=f"XLA moves its inputs first ({names}): {reason}")
        except Refused:
            pass
    raise Refused(reason)


def in_xla(group: FusionGroup) -> Emitted:
    """The group as calls of jax.lax, which XLA compiles and fuses."""
    arrays = Arrays(owner=group.name)
    names = _names(group)
    arrays.names.update(zip(group.graph.invars, names))
    arrays.graph(group.graph)
    head = f"def {group.name}({', '.join(names)}):"
    outputs = [arrays.operand(v) for v in results(group)]
    text = "\n".join([*comments(group), head, *arrays.lines, f"    return [{', '.join(outputs)}]"])
    return Emitted(text, False, host_calls=tuple(arrays.host_calls))


def hoisted(group: FusionGroup) -> tuple[list[Eqn], FusionGroup]:
    """Movement of the group's inputs that XLA can do before the kernel, and the group without it."""
    known: set[Var] = set(group.graph.invars)
    moved: dict[Eqn, None] = {}
    for eqn in group.graph.eqns:
        movement = eqn.primitive.fusion is Fusion.MOVEMENT and eqn.primitive.movement not in LARGER
        if movement and all(v in known for v in eqn.operands()) and any(True for _ in eqn.operands()):
            moved[eqn] = None
            known.update(eqn.outvars)
    rest = tuple(eqn for eqn in group.graph.eqns if eqn not in moved)
    if not any(eqn.primitive.fusion is not Fusion.MOVEMENT and eqn.primitive is not copy_p for eqn in rest):
        return [], group  # nothing would be left but a copy
    needed = dict.fromkeys(v for eqn in rest for v in eqn.operands() if v in known)
    return list(moved), replace(group, graph=replace(group.graph, invars=tuple(needed), eqns=rest))


def _pallas(group: FusionGroup, outer: FusionGroup, vmem: int) -> Emitted:
    """The kernel of a group; of what is left of `outer` once XLA has moved its inputs, where the two differ."""
    kernel = decompose(lower_loop(group) if group.kind is Kind.LOOP else lower(group), spell.TABLE.has)
    if not kernel.parallel and not kernel.reduced:
        raise Refused("it computes single numbers")
    if any(node.op == "lane" for node in kernel.nodes):
        raise Refused("its lanes read each other's values")
    tiling = Tiling(kernel, vmem)
    backwards = any(node.op == "scan" and node.attr.reverse for node in kernel.nodes)
    count = phases(kernel.sweeps) if tiling.cut_columns else 1
    windows = Windows(tiling, grid_of(tiling, count, backwards), backwards)
    writer: LoopKernel | Rows = (LoopKernel if kernel.loop is not None else Rows)(kernel, tiling, windows)
    writer.write()
    before = _before(group, outer) if outer is not group else Before(tuple(_names(outer)), ())
    text = "\n".join([*comments(outer), *write_call(group.name, before, writer)])
    bytes_moved = sum(windows.moved(w) for w in (*windows.inputs, *windows.outputs))
    return Emitted(text, True, "", windows.grid.extents, tiling.used(), bytes_moved)


def _names(group: FusionGroup) -> list[str]:
    return [f"in{n}" for n in range(len(group.graph.invars))]


def _before(inner: FusionGroup, outer: FusionGroup) -> Before:
    """What XLA does before the kernel: from the arrays that the group reads, those that the kernel reads."""
    arrays = Arrays()
    arrays.names.update((v, f"array{n}") for n, v in enumerate(outer.graph.invars))
    given = tuple(arrays.names[v] for v in outer.graph.invars)
    kept = set(inner.graph.eqns)
    for eqn in outer.graph.eqns:
        if eqn not in kept:
            arrays.eqn(eqn)
    names = zip(_names(inner), inner.graph.invars)
    return Before(given, (*arrays.lines, *(f"    {name} = {arrays.names[v]}" for name, v in names)))


def comments(group: FusionGroup) -> list[str]:
    """The user's lines that the group comes from."""
    return [f"# {line}" for line in list(dict.fromkeys(str(s) for s in group.sources if s.file))[:12]]
