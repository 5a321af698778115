"""The C backend: what its kernels take, their text, and how they are compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fuser.backends.base import HOST, HOST_LIBRARIES, Alike, KernelSource, Loaded, unsupported
from fuser.backends.c import spell, team_size
from fuser.backends.c.compilation import translation_units
from fuser.backends.c.compilation.horizontal import emit_horizontal
from fuser.backends.c.control_flow import interrupt, thread_tuning
from fuser.backends.c.control_flow.driver import INCLUDES, emit_control
from fuser.backends.c.emit import emit_kernel
from fuser.backends.c.library import gemm_epilogue, library_calls
from fuser.backends.c.schedules import masking, transposes
from fuser.backends.c.target import TARGET, like
from fuser.backends.link import Stepwise
from fuser.ir.cost import lowered
from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Fusion
from fuser.ir.target import Target
from fuser.ir.types import SMALL, is_complex, is_key, short_dtype
from fuser.kernel.cost import estimate
from fuser.kernel.lower import lower, results
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FusionGroup, FusionLimits, Kind, Refusal
from fuser.runtime import toolchain
from fuser.runtime.core import native


class C(Stepwise):
    """C on the CPU."""

    name = "c"
    memory = HOST
    limits = FusionLimits(
        estimates=True,
        control=True,
        dots=True,
        in_place_epilogues=True,
        strided_dots=True,
        names_in_text=True,
        pieces=True,
        update_frames=True,
        subgroups=True,
        arena=True,
        calls=library_calls.CALLS,
        optional_results=library_calls.OPTIONAL_RESULTS,
        calls_in_place=library_calls.IN_PLACE,
        carries_in_place=True,
        natives=HOST_LIBRARIES,
        horizontal_parts=256,
        horizontal_bytes=1 << 17,
        horizontal_chains=True,
        host_steps=native is not None,
        target=TARGET,
    )

    @property
    def machine(self) -> Target:
        """A core of this machine."""
        return like(toolchain.processor())

    def supports(self, eqn: Eqn) -> str | None:
        if eqn.primitive.fusion is Fusion.DOT:
            return gemm_epilogue.refusal(eqn)
        if (reason := unsupported(eqn, "runs in a library")) is not None:
            return reason
        for var in (*eqn.invars, *eqn.outvars):
            dtype = var.aval.dtype
            if dtype in SMALL:
                return f"{short_dtype(dtype)} is converted by ml_dtypes"
            if is_key(dtype) and dtype not in spell.TYPES:
                return f"{short_dtype(dtype)} is no number of 64 bits"
        if is_complex(eqn.invars[0].aval.dtype if eqn.invars else eqn.outvars[0].aval.dtype):
            return _complex_reason(eqn)
        return None

    def seconds(self, group: FusionGroup, since: Mapping[Var, float] | None = None) -> float | None:
        """What the group's kernel takes, by the cost model. `since`: bytes that are touched between two uses of its arrays, where those
        are more than its own."""
        arrays = [*group.graph.invars, *results(group)]
        apart = None if since is None else [since.get(v, 0.0) for v in arrays]
        found = estimate(lower(group), self.limits.target, since=apart)
        return None if found is None else found.seconds

    def emit(self, group: FusionGroup, threads: bool = True, alike: Alike | None = None) -> KernelSource | Refusal:
        """The group's function; without `threads` it runs on the thread that calls it and never starts a team. `alike` has
        the groups in the bodies of the loops around it."""
        if group.kind is Kind.HORIZONTAL:
            return emit_horizontal(group, self.emit)
        if group.kind is Kind.CONTROL:
            known = Alike(_within(group)) if alike is None else alike
            return emit_control(
                group,
                lambda inner, several: known.source(inner, self.emit, threads and several, known),
                lambda inner: self._library(inner, self.memory),
            )
        if group.kind is Kind.CONTRACTION:
            return gemm_epilogue.emit_product(group, alike is not None)
        if group.kind is Kind.LIBRARY:
            reason = library_calls.call_blocker(group)
            return library_calls.emit_call(group) if reason is None else Refusal(reason)
        kernel = lower_loop(group) if group.kind is Kind.LOOP else lower(group)
        module, launch, schedule = emit_kernel(kernel, threads, self.asked)
        return KernelSource(
            group.name, module, "c", tuple(p.name for p in kernel.params), launch, schedules={group.name: schedule}
        )

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        return translation_units.load(sources, translation_unit)


def _within(group: FusionGroup) -> Iterator[FusionGroup]:
    """The groups in the bodies of a loop or a branch, and in theirs."""
    for body in group.bodies:
        for part in body.groups:
            yield part
            yield from _within(part)


_FLOOR_DIV = "static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }"


def translation_unit(text: str, used: Counter[str]) -> str:
    """A C file of these kernels and loops, which name `used`: with what they include, declare and call."""
    before = [spell.header(used), transposes.helpers(used)]
    team = [interrupt.TEAM] if used["omp_get_thread_num"] else []
    before += [interrupt.HELPERS] if interrupt.interruptible(used) else team
    before += [INCLUDES] if used["memcpy"] or used["function"] else []
    before += [_FLOOR_DIV] if used["floor_div"] else []
    before += [masking.HELPERS] if used["within"] or used["padded"] else []
    tuning = used[thread_tuning.TEAM_SIZE.name] or used[thread_tuning.TUNER.name]
    before += [toolchain.THREADS] if used["fuser_threads"] or tuning else []
    before += [team_size.HELPERS] if used[team_size.TEAM_FOR.name] else []
    before += [thread_tuning.HELPERS] if tuning else []
    return "\n\n".join([*filter(None, before), text]) + "\n"


def _complex_reason(eqn: Eqn) -> str | None:
    """Why an equation of complex numbers is not generated: C has no loops for them that multiply or that scan, and no
    functions but those of `spell`."""
    primitive = eqn.primitive
    combined = primitive.rule("lower")(**eqn.params)[0] if primitive.fusion in (Fusion.REDUCE, Fusion.SCAN) else None
    if combined == ("prod" if primitive.fusion is Fusion.REDUCE else "sum"):
        return f"complex {primitive} takes several operations"  # `legalise.complex_reductions` writes them
    missing = primitive.fusion is Fusion.ELEMENTWISE and lowered(eqn).op in spell.INEXACT_COMPLEX
    return f"complex {primitive} runs in NumPy" if primitive.fusion is Fusion.SCAN or missing else None


BACKEND = C()
