"""The protocol of a backend, and what a backend hands to the runtime.

`emit` is pure: the same text for groups that differ only in sizes. `load` takes all sources of a plan at once, so that a
compiler is started once a program, and gives one function a source, to be called with the group's arrays.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.partition.group import FUSIBLE, FusionGroup, FusionLimits, Kind, Plan
from fuser.partition.structure import structure
from fuser.partition.values import deep_recursion
from fuser.runtime import memory
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.executable import Step

# A loaded kernel: takes the group's inputs, then its outputs to be written.
KernelFunction = Callable[[list[Any]], object]


class Spelt(Protocol):
    """A kernel as data; `str` gives its text."""

    def renamed(self, name: str) -> Spelt:
        """The same kernel under another name."""


@dataclass(frozen=True)
class KernelSource:
    """One generated kernel. `launch` holds what differs between calls of one text: size arguments, grid; and `scalar`,
    a reason and a number of elements, where a processor with vector instructions computes one element after the other.
    """

    name: str
    code: str | Spelt  # the text, or what it is spelt from
    language: str
    params: tuple[str, ...] = ()
    launch: dict[str, Any] = field(default_factory=dict, compare=False)

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
        return replace(self, name=name, code=self.code.renamed(name))


@dataclass(frozen=True)
class Loaded:
    """What `load` gives: one function a source, and what it took."""

    functions: tuple[KernelFunction, ...]
    seconds: float = 0.0
    cached: bool = False
    compiled: int = 0  # kernels that a compiler was run for


class Backend(Protocol):
    """One target. See DESIGN §6."""

    name: str
    platform: str
    limits: FusionLimits

    def supports(self, eqn: Eqn) -> str | None:
        """None, or the reason why the equation cannot be part of a generated kernel; it then runs as a library call."""

    def native(self, group: FusionGroup) -> str | None:
        """None, or the reason why native code cannot run the group, so that a loop around it is driven from Python."""

    def settle(self, group: FusionGroup) -> FusionGroup:
        """With `limits.whole`: the group in the form that it will have, which may be a LIBRARY group with its reason."""

    def whole(self, plan: Plan, loaded: Loaded) -> Callable[..., list[Any]]:
        """With `limits.whole`: the program as one function of its inputs and constants, instead of steps."""

    def emit(self, group: FusionGroup) -> KernelSource:
        """The kernel of an elementwise, reduction or scan group, or of control flow all of whose groups are native."""

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        """Functions for the sources; ToolchainError carries the compiler's own words."""

    def library(self, group: FusionGroup) -> Callable[..., Any]:
        """A function of the group's input arrays that gives its outputs, for a group that is no generated kernel."""

    def constant(self, value: Any) -> Any:
        """An array that the program closed over, where its kernels can read it."""

    def place(self, value: Any) -> Any:
        """An input's memory (ndarray or tensor) where kernels can read it: itself if it is there, else a copy."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype, label: str = "") -> Any:
        """Memory for one output; `label` says in errors whose it is."""

    def joined(self, steps: Sequence[Step], outputs: Sequence[int]) -> Sequence[Step]:
        """The steps that calls run for these: several as one, where that makes their launches cheaper."""


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


def emit_all(groups: Iterable[FusionGroup], backend: Backend) -> Iterator[KernelSource]:
    """The kernels' sources; where names stand in the text alone, groups of one structure are written once."""
    groups = list(groups)
    alike = Alike(groups if backend.limits.names_in_text else ())
    for group in groups:
        yield alike.source(group, backend.emit)


class Alike:
    """Sources of groups, one of those of one structure written, the others renamed."""

    def __init__(self, groups: Iterable[FusionGroup]) -> None:
        self.outline = {g: (g.kind, len(g.graph.eqns), *g.graph.in_avals) for g in groups if g.kind in _PLAIN}
        self.count = Counter(self.outline.values())
        self.known: dict[Hashable, KernelSource] = {}

    def source(self, group: FusionGroup, emit: Callable[..., KernelSource], *how: Hashable) -> KernelSource:
        """What `emit(group, *how)` gives."""
        key = structure(group) if self.count[self.outline.get(group, ())] > 1 else None
        source = self.known.get((key, how)) if key is not None else None
        if source is not None:
            return source.renamed(group.name)
        with deep_recursion():  # a chain of operations, and bodies within bodies
            source = emit(group, *how)
        if key is not None:
            self.known[key, how] = source
        return source


_PLAIN = (*FUSIBLE, Kind.CONTRACTION, Kind.HORIZONTAL)  # kinds without graphs inside


class Host:
    """What the backends that run in this computer's memory share."""

    @staticmethod
    def constant(value: Any) -> Any:
        value = to_numpy(value)
        return np.ascontiguousarray(value).reshape(value.shape)

    @staticmethod
    def place(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value if value.flags.c_contiguous else np.ascontiguousarray(value)
        return (
            to_numpy(Array(value)) if hasattr(value, "data_ptr") else np.asarray(value)
        )  # a deleted array: its own error

    allocate = staticmethod(memory.empty)

    @staticmethod
    def joined(steps: Sequence[Step], outputs: Sequence[int]) -> Sequence[Step]:
        return steps


class Stepwise:
    """What the backends share that run a plan step by step."""

    def settle(self, group: FusionGroup) -> FusionGroup:
        return group

    def whole(self, plan: Plan, loaded: Loaded) -> Callable[..., list[Any]]:
        raise NotImplementedError(f"{type(self).__name__} runs plans step by step")


def require_steps(backend: Backend, tool: str) -> None:
    """UnsupportedError from a tool that looks at each step, where a backend's compiler takes the program whole."""
    if backend.limits.whole:
        raise UnsupportedError(
            f"{tool} runs programs step by step, and the {backend.name} backend compiles them whole; "
            "use it on another backend, such as FUSER_BACKEND=c"
        )
