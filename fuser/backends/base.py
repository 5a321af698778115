"""The protocol of a backend, and what a backend hands to the runtime.

`emit` is pure: the same text for groups that differ only in sizes. `load` takes all sources of a plan at once, so that a
compiler is started once a program, and gives one function a source, to be called with the group's arrays.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.target import Target
from fuser.kernel.schedule import Schedule
from fuser.ops.factorisations import geqrf_p, hessenberg_p, lu_p, schur_p, tridiagonal_p
from fuser.ops.family import CALLS
from fuser.ops.fft import fft_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.ops.scatter import SCATTERS
from fuser.ops.sorting import sort_p, top_k_p
from fuser.partition.group import FUSIBLE, FusionGroup, FusionLimits, Kind, Plan, Refusal, kernel_groups
from fuser.partition.structure import structure
from fuser.partition.values import deep_recursion
from fuser.runtime import memory
from fuser.runtime.array import Array, on_gpu, to_numpy
from fuser.runtime.executable import Executable

# What libraries compute of arrays on the host, though other primitives could: natives of the backends whose arrays lie there.
_FACTORISATIONS = (cholesky_p, qr_p, eigh_p, svd_p, lu_p, geqrf_p, hessenberg_p, schur_p, tridiagonal_p)
HOST_LIBRARIES = frozenset((*CALLS, *_FACTORISATIONS, fft_p, sort_p, top_k_p, *SCATTERS))
# A loaded kernel: takes the group's inputs, then its outputs to be written.
KernelFunction = Callable[[list[Any]], object]


@dataclass(frozen=True)
class KernelSource:
    """One generated kernel. `launch` holds what differs between calls of one text: size arguments, grid; and `scalar`,
    a reason and a number of elements, where a processor with vector instructions computes one element after the other.
    """

    name: str
    code: Any  # the text, or what it is spelt from: `str` gives the text, and `renamed` another name, where names are in the text alone
    language: str
    params: tuple[str, ...] = ()
    launch: dict[str, Any] = field(default_factory=dict, compare=False)
    note: str = ""  # what is done before it, for explain()
    schedules: Mapping[str, Schedule] = field(
        default_factory=dict, compare=False
    )  # how loops run, by the kernel's name

    @functools.cached_property
    def text(self) -> str:
        """The kernel as the target's compiler reads it."""
        return str(self.code)

    @property
    def key(self) -> str:
        """The content address of the text."""
        return hashlib.sha256(f"{self.language}\0{self.text}".encode()).hexdigest()

    def renamed(self, name: str) -> KernelSource:
        """The same kernel under another name."""
        assert not isinstance(self.code, str)
        own = {name if known == self.name else known: schedule for known, schedule in self.schedules.items()}
        return replace(self, name=name, code=self.code.renamed(name), schedules=own)


@dataclass(frozen=True)
class Loaded:
    """What `load` gives: one function a source, and what it took."""

    functions: tuple[KernelFunction, ...]
    seconds: float = 0.0
    cached: bool = False
    compiled: int = 0  # kernels that a compiler was run for


class Memory(Protocol):
    """Where a backend's arrays live."""

    platform: str  # "cpu", "cuda" or "tpu"

    def place(self, value: Any) -> Any:
        """An input's memory (ndarray, tensor or jax.Array) where kernels can read it: itself if it is there, else a copy."""

    def constant(self, value: Any) -> Any:
        """An array that a program closed over, where its kernels can read it."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype, label: str = "") -> Any:
        """Memory for one output; `label` says in errors whose it is."""


class Backend(Protocol):
    """One target: seven names, and `link`, which `link.Stepwise` has for backends that run a plan step by step. With `limits.driven` an
    eighth, `driven(group)`: why Python drives control flow around kernels; empty where the device does."""

    name: str
    limits: FusionLimits
    asked: Schedule  # transforms that the user wants or forbids (`with_schedule`)

    @property
    def memory(self) -> Memory:
        """Where its arrays live."""

    def supports(self, eqn: Eqn) -> str | None:
        """None, or the reason why the equation cannot be part of a generated kernel; it then runs as a library call."""

    def emit(self, group: FusionGroup) -> KernelSource | Refusal:
        """The kernel of a group. Pure: the same text for groups that differ only in sizes.

        Control flow comes with its bodies planned, all of whose groups have a kernel. A LIBRARY group comes where its
        primitive is among `limits.calls`, or with `limits.whole`.
        """

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        """Functions for the sources; ToolchainError carries the compiler's own words."""

    def link(self, plan: Plan, sources: Sequence[KernelSource], loaded: Loaded) -> Executable:
        """What a call runs: steps over the plan's slots, or with `limits.whole` one function."""


def unsupported(eqn: Eqn, elsewhere: str) -> str | None:
    """Why no backend generates the equation, which then `elsewhere` ("runs in a library"); None where one might."""
    out = eqn.outvars[0].aval
    if eqn.primitive.lower is None:
        return f"{eqn.primitive.name} {elsewhere}"
    if out.size == 0:
        return "it has no elements"
    if eqn.primitive.fusion is Fusion.ELEMENTWISE and len(eqn.invars) == 1 and eqn.invars[0].aval.shape != out.shape:
        return "the bitcast changes the number of elements"
    return None


def emit_all(plan: Plan, backend: Backend) -> tuple[Plan, tuple[KernelSource, ...]]:
    """The sources of a plan's kernels, in order; the plan, in which groups that `emit` refused are library steps.

    Where names stand in the text alone, groups of one structure are written once.
    """
    groups = list(kernel_groups(plan, backend.limits))
    alike = Alike(groups if backend.limits.names_in_text else ())
    found = {group: alike.source(group, backend.emit) for group in groups}
    refused = {group: source.reason for group, source in found.items() if isinstance(source, Refusal)}
    sources = tuple(source for group, source in found.items() if group not in refused)
    return (_evaluating(plan, refused) if refused else plan), sources


def _evaluating(plan: Plan, refused: Mapping[FusionGroup, str]) -> Plan:
    """The plan with some groups as library steps."""

    def changed(group: FusionGroup) -> FusionGroup:
        if group in refused:
            return replace(group, kind=Kind.LIBRARY, reason=refused[group])
        return replace(group, bodies=tuple(_evaluating(body, refused) for body in group.bodies))

    return replace(plan, groups=tuple(map(changed, plan.groups)))


def with_schedule(backend: Backend, asked: Schedule) -> Backend:
    """The backend, which makes its kernels with these transforms, or without them."""
    if not asked:
        return backend
    changed = copy.copy(backend)
    changed.asked = asked
    return changed


def require_made(asked: Schedule, sources: Sequence[KernelSource], program: str) -> None:
    """UnsupportedError where no kernel of a program has a transform that was asked for."""
    made = [schedule for source in sources for schedule in source.schedules.values()]
    for name, value in asked.items().items():
        if value is False or value == 0 or any(schedule.has(name, value) for schedule in made):
            continue
        found = (
            "; ".join(f"{n}: {schedule}" for source in sources for n, schedule in source.schedules.items())
            or "it has none"
        )
        raise UnsupportedError(
            f"no kernel of {program} can have {name}={value!r}, which jit(schedule=) asks for. Its kernels: {found}. "
            "Leave the transform out, or ask for it where its condition holds (docs/schedules.md)"
        )


def with_tuning(backend: Backend, needed: bool) -> Backend:
    """The backend, which measures schedules on its device; one that cannot is as it is, or UnsupportedError where that is `needed`."""
    if not hasattr(backend, "tuned"):
        if needed:
            raise UnsupportedError(
                f"tune=True measures schedules on a GPU, and the {backend.name} backend has none to measure; leave tune out, or set "
                "FUSER_TUNE=1, which holds where a backend measures"
            )
        return backend
    changed = copy.copy(backend)
    changed.tuning = True  # type: ignore[attr-defined]
    return changed


def machine_target(backend: Backend) -> Target:
    """What this machine is like, where a backend knows; else what plans count with."""
    return getattr(backend, "machine", backend.limits.target)


def tuned(backend: Backend, plan: Plan, sources: tuple[KernelSource, ...]) -> tuple[KernelSource, ...]:
    """The sources, with measured schedules where the user asks for them and the backend measures."""
    return backend.tuned(plan, sources) if getattr(backend, "tuning", False) else sources  # type: ignore[attr-defined]


class Alike:
    """Sources of groups: of those of one structure one is written, the others are renamed; what the plan holds is kept."""

    def __init__(self, groups: Iterable[FusionGroup]) -> None:
        self.outline = {g: (g.kind, len(g.graph.eqns), *g.graph.in_avals) for g in groups if g.kind in _PLAIN}
        self.count = Counter(self.outline.values())
        self.known: dict[Hashable, Any] = {}

    def source(self, group: FusionGroup, emit: Callable[..., Any], *how: Hashable) -> Any:
        """What `emit(group, *how)` gives."""
        key = structure(group) if self.count[self.outline.get(group, ())] > 1 else None
        source = self.known.get((key, how)) if key is not None else None
        if source is not None:
            return source if isinstance(source, Refusal) else source.renamed(group.name)
        with deep_recursion():  # a chain of operations, and bodies within bodies
            source = group.emitted or emit(group, *how)
        if key is not None:
            self.known[key, how] = source
        return source


_PLAIN = (*FUSIBLE, Kind.CONTRACTION, Kind.HORIZONTAL)  # kinds without graphs inside


class HostMemory:
    """This computer's memory, from the pool of the runtime."""

    platform = "cpu"

    @staticmethod
    def constant(value: Any) -> Any:
        value = to_numpy(value)
        return np.ascontiguousarray(value).reshape(value.shape)

    @staticmethod
    def place(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value if value.flags.c_contiguous else np.ascontiguousarray(value)
        # of a GPU's memory a copy; a deleted array: its own error
        return to_numpy(Array(value)) if on_gpu(value) else np.asarray(value)

    allocate = staticmethod(memory.empty)


HOST = HostMemory()


def require_steps(backend: Backend, tool: str) -> None:
    """UnsupportedError from a tool that looks at each step, where a backend's compiler takes the program whole."""
    if backend.limits.whole:
        raise UnsupportedError(
            f"{tool} runs programs step by step, and the {backend.name} backend compiles them whole; "
            "use it on another backend, such as FUSER_BACKEND=c"
        )
