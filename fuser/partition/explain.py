"""A Plan in plain words: what became of each line of the user's program, and every refused merge with its reason."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fuser.ir.graph import Eqn, Graph, Var, graphs_in
from fuser.ir.primitive import Control, Fusion
from fuser.ops.attention import attention_p
from fuser.partition.attention_axes import weights_of
from fuser.partition.buffers import least
from fuser.partition.group import FusionGroup, Kind, Plan, Slot

WORDS = {
    Kind.ELEMENTWISE: "one elementwise kernel",
    Kind.REDUCTION: "one reduction kernel",
    Kind.SCAN: "one prefix-scan kernel",
    Kind.CONTRACTION: "a matrix product",
    Kind.LOOP: "one kernel with its loop inside",
    Kind.HORIZONTAL: "small kernels in one launch",
    Kind.LIBRARY: "a library call",
    Kind.CONTROL: "control flow",
}


def size(count: float) -> str:
    """A number of bytes for a person: 16.8 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def show(plan: Plan) -> str:
    """One line a group: name, kind, operations, and the buffers read and written."""
    lines = [
        f"plan of {plan.graph.name} for {plan.backend}: {len(plan.groups)} {'step' if len(plan.groups) == 1 else 'steps'}"
    ]
    for group in plan.groups:
        reads = " ".join(f"%{plan.slot_of[v]}" for v in group.graph.invars)
        writes = " ".join(f"%{plan.slot_of[v]}:{v.aval}{_place(plan, v)}" for v in dict.fromkeys(group.graph.outvars))  # type: ignore[index,arg-type]
        lines.append(f"  {writes} = {group.name} {reads}")
        lines += [textwrap.indent(show(body), "      ") for body in group.bodies]
    results = " ".join(str(v.aval) for v in plan.outputs)
    lines.append(f"  results: {results}")
    if plan.arena:
        lines.append(f"  arena: {plan.arena} bytes")
    return "\n".join(lines)


def explain(plan: Plan) -> str:
    """What fused, what did not and why."""
    total = sum(map(moved_bytes, plan.groups))
    unfused = sum(eqn_bytes(group) for group in plan.groups)
    lines = [
        f"{plan.graph.name}: {sum(map(_operations, plan.groups))} operations became {len(plan.groups)} "
        f"{'step' if len(plan.groups) == 1 else 'steps'} on {plan.backend}, moving {size(total)} instead of {size(unfused)}."
    ]
    for group in plan.groups:
        lines.append(_describe(group))
    temporaries = [slot for slot in plan.slots if slot.start >= 0 and slot.end < len(plan.groups)]
    if temporaries:
        lines.append(_between(plan, temporaries))
    if plan.decisions:
        lines.append("Not fused:")
        lines += [f"  {d.first}  with  {d.second}: {d.reason}" for d in dict.fromkeys(plan.decisions)]
    return "\n".join(lines)


def _operations(group: FusionGroup) -> int:
    """Equations that became the group: of an attention those that it is made of."""
    return sum(len(e.params["graph"].eqns) if e.primitive is attention_p else 1 for e in group.graph.eqns)


def _place(plan: Plan, value: Var) -> str:
    """Where a written value lies, if not in memory of its own: `@64`, 64 bytes into the arena, or `over %3`."""
    slot = plan.slot_of[value]
    if slot in plan.offsets:
        return f" @{plan.offsets[slot]}"
    return f" over %{plan.reuse[slot]}" if slot in plan.reuse else ""


def _between(plan: Plan, temporaries: Sequence[Slot]) -> str:
    """What is written by one step for another, and the memory that it takes."""
    count, shared = len(temporaries), len(plan.offsets)
    text = f"Between steps: {count} value{'' if count == 1 else 's'} of {size(sum(t.aval.nbytes for t in temporaries))}"
    text += f", {size(least(plan, [t.index for t in temporaries]))} at once"
    if shared:
        text += f"; {'all' if shared == count else shared} in one block of {size(plan.arena)}"
    over = sum(plan.slots[source].start >= 0 for source in plan.reuse.values())
    return text + (f"; {over} written over by what is made of {'it' if over == 1 else 'them'}." if over else ".")


def moved_bytes(group: FusionGroup) -> int:
    """Bytes that the group moves as planned: its inputs and outputs once; control flow what the steps of its bodies move,
    of a scan in all iterations, of a while in one, of a cond in the dearest branch."""
    if group.kind is not Kind.CONTROL or not group.bodies:
        return group.ideal_bytes
    inside = [sum(map(moved_bytes, plan.groups)) for plan in group.bodies]
    eqn = group.graph.eqns[-1]
    return max(inside) if eqn.primitive.control is Control.COND else sum(inside) * int(eqn.params.get("length", 1))


def loop_bytes(graph: Graph) -> int:
    """Bytes that the operations inside of the graph's control flow would move one by one."""
    return sum(_bytes(eqn) for eqn in graph.eqns if eqn.primitive.fusion is Fusion.CONTROL)


def eqn_bytes(group: FusionGroup) -> int:
    """Bytes that the group's operations would move one by one; a scan's in all its steps, a while's in one."""
    return sum(map(_bytes, group.graph.eqns))


def _bytes(eqn: Eqn) -> int:
    own = sum(v.aval.nbytes for v in (*eqn.invars, *eqn.outvars))
    if eqn.primitive is attention_p:
        return sum(map(_bytes, eqn.params["graph"].eqns))
    if eqn.primitive.fusion is not Fusion.CONTROL:
        return own
    inside = [sum(map(_bytes, graph.eqns)) for graph in graphs_in(eqn.params)]
    if eqn.primitive.control is Control.COND:
        return max(inside)
    return sum(inside) * eqn.params.get("length", 1)


def _describe(group: FusionGroup, indent: str = "  ") -> str:
    ops = ", ".join(dict.fromkeys(group.ops))
    sources = ", ".join(dict.fromkeys(str(s) for s in group.sources if s.file)) or "no source line"
    why = "; ".join(text for text in (group.reason, group.refusal) if text)
    text = f"{indent}{group.name}: {words(group)}{f' ({why})' if why else ''}: {ops}\n"
    text += f"{indent}    from {sources}; {size(moved_bytes(group))}"
    text += f", in {size(group.vmem)} of vector memory" if group.vmem else ""
    inner = [_describe(g, indent + "    ") for g in group.inner]
    return "\n".join([text, *inner])


def words(group: FusionGroup) -> str:
    """What became of the group, for a person."""
    if group.kind is Kind.HORIZONTAL:
        return f"{len(group.parts)} {WORDS[group.kind]}"
    if group.kind is Kind.LOOP:
        return f"{WORDS[group.kind]}, {_iterations(group)}"
    if (attention := next((e for e in group.graph.eqns if e.primitive is attention_p), None)) is not None:
        weighs = bool(weights_of(attention.params["graph"]))
        return "attention in one kernel" if weighs else "a matrix product and reductions of it in one kernel"
    if group.kind is Kind.CONTROL:
        return f"control flow {'driven from Python' if group.reason else 'on the device' if group.enqueued else 'in native code'}"
    return WORDS[group.kind]


def _iterations(group: FusionGroup) -> str:
    (loop,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.CONTROL)
    length = loop.params.get("length")
    if length is None:
        return "as many iterations as each lane needs, arithmetic counted for one"
    return f"{length} iteration{'' if length == 1 else 's'}"
