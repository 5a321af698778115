"""The report of a program that is not run: what its plan says, for a backend whose compiler takes programs whole.

In: a traced program. Out: a `ProgramProfile` without times (`timed` is false), which needs no device: kernels with their
bytes, operations and on-chip memory, and every refused merge.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.api.jitted import Lowered, Traced, cost_analysis
from fuser.backends.base import KernelSource
from fuser.partition.buffers import temporary_bytes
from fuser.partition.explain import moved_bytes
from fuser.partition.group import FusionGroup, Plan, kernel_groups
from fuser.report.data import KernelProfile, Machine, ProgramProfile, Refusal, Stage
from fuser.report.lines import user_lines
from fuser.report.picture import picture


def planned(traced: Traced, trace_seconds: float, input_names: Sequence[str]) -> ProgramProfile:
    """What is known of a program before it is compiled."""
    lowered: Lowered = traced.lower()
    plan, backend = lowered.plan, traced._backend
    sources = dict(zip(kernel_groups(plan, backend.limits), lowered.sources, strict=True))
    kernels = tuple(_kernel(group, sources.get(group)) for group in plan.groups)
    seconds = {"trace": trace_seconds, **lowered.lowering.seconds}
    return ProgramProfile(
        name=plan.graph.name,
        machine=Machine(f"a {backend.memory.platform.upper()} (nothing was run)", 0, 0.0, 0.0, backend.name),
        stages=tuple(Stage(name, taken) for name, taken in seconds.items()),
        kernels=kernels,
        refused=tuple(Refusal(d.first, d.second, d.reason) for d in dict.fromkeys(plan.decisions)),
        launches=len(kernels),
        repeats=0,
        median_seconds=0.0,
        min_seconds=0.0,
        peak_bytes=_peak(plan),
        planned_bytes=sum(kernel.bytes_moved for kernel in kernels),
        ideal_bytes=int(cost_analysis(plan)["optimal bytes"]),
        graph=picture(plan, list(input_names)),
        notes=(
            f"Nothing was run: the {backend.name} backend's compiler takes programs whole, so that their kernels cannot be "
            "timed one by one. These are the figures of the plan.",
            *(f"{group.name} is no generated kernel: {group.reason}." for group in plan.groups if group.reason),
            *(f"{group.name}: {group.refusal}." for group in plan.groups if group.refusal),
        ),
    )


def _kernel(group: FusionGroup, source: KernelSource | None) -> KernelProfile:
    """A step; a kernel whose blocks are planned moves what they fetch and write."""
    blocks = source.launch.get("bytes", 0) if source is not None else 0
    return KernelProfile(
        name=group.name, kind=group.kind.value, lines=user_lines(group.sources), ops=group.ops,
        bytes_ideal=group.ideal_bytes, bytes_moved=max(blocks, moved_bytes(group)), flops=group.flops,
        median_seconds=0.0, min_seconds=0.0, compile_seconds=0.0, cache_hit=False,
        language=source.language if source else "", text=source.text if source else "", vmem=group.vmem,
    )  # fmt: skip


def _peak(plan: Plan) -> int:
    """Bytes of inputs, results, and the values between steps that are needed at once."""
    graph = plan.graph
    return sum(v.aval.nbytes for v in (*graph.invars, *graph.constvars, *plan.outputs)) + temporary_bytes(plan)
