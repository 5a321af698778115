"""What the partition hands on: FusionGroups in order, the refused merges with their reasons, and the buffers.

A group's `layout` says which loop axis runs along each dimension of a value; lowering starts from the layout of the
outputs and follows the same index maps that decided the group was legal.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fuser.ir.cost import lowered
from fuser.ir.graph import Eqn, Graph, Operand, Var, graphs_in
from fuser.ir.index import Axis
from fuser.ir.primitive import Control, Fusion, Primitive
from fuser.ir.scalar import LEAVES
from fuser.ir.source import Source
from fuser.ir.target import CORE, Target
from fuser.ir.types import ArrayType
from fuser.ops.window_write import write_window_p
from fuser.partition.in_place_updates import LoopBuffers


class Kind(enum.Enum):
    """What kind of kernel a group becomes."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    CONTRACTION = "contraction"
    LOOP = "loop"
    HORIZONTAL = "horizontal"
    LIBRARY = "library"
    CONTROL = "control"


FUSIBLE = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN)
Layout = tuple[Axis | None, ...]  # one entry a dimension; None for a dimension of extent 1


@dataclass(frozen=True)
class FusionLimits:
    """A backend's declared capacity: data, no callbacks."""

    max_params: int = 64  # arrays that one kernel may read
    max_ops: int = 600  # scalar operations in one kernel
    max_expressions: int = 1200  # the same, each as often as there are indices at which it is computed
    max_vectors: int = 400  # the same, each as often as vectors of the kernel's narrowest numbers need it
    max_results: int = 32  # arrays that one kernel may write
    target: Target = CORE  # the machine, for what merges cost and save
    estimates: bool = (
        False  # the backend says how long a group's kernel takes (`seconds`), by which kernels are taken apart
    )
    control: bool = False  # bodies of loops and branches are planned; without, they are evaluated whole
    # Loops around kernels are no kernels: the device runs them, or Python does where the backend's `driven` says why; else native code calls kernels.
    driven: bool = False
    host_steps: bool = False  # native loops call Python for the steps that only it has
    gemv_as_sums: bool = False  # no units multiply a matrix of 32 bits and a vector faster than a sum reads them
    dots: bool = False  # contractions take prologues and epilogues into their kernel
    in_place_epilogues: bool = (
        False  # those write each element of a result once they have read the same element of other arrays
    )
    attention: bool = False  # a product, a reduction of its rows and a product of these share a kernel
    # Rows and columns of a product's result that read an operand's element once, so that it may be computed there; 0: before.
    product_tile: tuple[int, int] = (0, 0)
    strided_dots: bool = False  # those kernels read operands by strides alone
    names_in_text: bool = False  # a kernel's name stands in its text alone: groups of one structure are written once
    calls: frozenset[Primitive] = (
        frozenset()
    )  # primitives outside of kernels that native functions serve; they read dense operands
    library_calls: frozenset[Primitive] = frozenset()  # primitives that a library computes of dense operands
    column_solves: bool = False  # that library takes columns, and solves faster for a matrix on their left
    optional_results: frozenset[Primitive] = frozenset()  # those of `calls` that leave out results that nobody reads
    calls_in_place: frozenset[Primitive] = (
        frozenset()
    )  # those of `calls` that change their first operand, where it lies in the result's memory
    window_writes: bool = False  # kernels write a part of an array that is there, and nothing else of it
    carries_in_place: bool = False  # loops in native code do so with what they carry
    column_sums: int = 0  # the longest row along which a kernel of whole rows sums columns too
    pieces: bool = False  # kernels have a loop for each piece of a concatenation
    update_frames: bool = False  # kernels write a value into a larger array, and copy what lies around it
    subgroups: bool = False  # lanes of a loop that are few enough to run together may read each other's values
    natives: frozenset[Primitive] = frozenset()  # primitives made of others that the backend has a form of its own for
    whole: bool = False  # one compiler takes the whole program: all groups are emitted, and control flow is its own
    vmem: int = 0  # bytes of on-chip memory for the blocks of one kernel, where blocks are planned; 0 = they are not
    arena: bool = False  # the temporaries of one call lie in one block of memory
    horizontal_parts: int = 0  # small kernels that one launch may hold
    horizontal_bytes: int = (
        1 << 16
    )  # bytes, and operations, that take no longer than a launch: a kernel with less is small
    horizontal_params: int = 0  # arrays that one such launch may have; 0 = any number
    horizontal_forms: int = 0  # kernels of one such launch that differ by more than extents; 0 = any number
    horizontal_kinds: tuple[Kind, ...] = FUSIBLE  # of the kernels that one launch may hold
    horizontal_chains: bool = False  # kernels of one launch may read what earlier ones of it wrote
    concurrent_meetings: bool = False  # what devices send each other runs beside the kernels that do not wait for it


@dataclass(frozen=True)
class Refusal:
    """What a backend's `emit` gives for a group that it has no kernel for: it becomes a library step, and explain() says why."""

    reason: str


@dataclass(frozen=True, eq=False)
class FusionGroup:
    """One kernel to be: its equations as a graph of its own, its parallel and its reduced axes."""

    kind: Kind
    graph: Graph
    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    name: str
    sources: tuple[Source, ...]
    layout: dict[Var, Layout] = field(default_factory=dict)
    reason: str = ""  # of a LIBRARY or CONTROL group: why it is no kernel of the backend
    refusal: str = (
        ""  # of a CONTROL group: why it is not one kernel with its loop inside; of a kernel: what is done before it
    )
    vmem: int = 0  # bytes of on-chip memory that its blocks take, where blocks are planned
    emitted: Any = None  # the KernelSource, where the plan rests on whether the backend has one
    parts: tuple[FusionGroup, ...] = ()  # of a HORIZONTAL: the small kernels that share its launch, in order
    bodies: tuple[Plan, ...] = ()  # of a CONTROL group: test and body, the body, or the branches
    enqueued: bool = False  # of a CONTROL group: no kernel, but a part of the device's program with those of its bodies
    buffers: LoopBuffers | None = None  # of a loop in native code: where its carries lie

    @property
    def ideal_bytes(self) -> int:
        """Bytes that any implementation must move: each input and output once; of arrays of which a window is written that alone."""
        writes = [eqn for eqn in self.graph.eqns if eqn.primitive is write_window_p]
        beside = sum(2 * eqn.invars[0].aval.nbytes - eqn.invars[1].aval.nbytes for eqn in writes)
        return sum(v.aval.nbytes for v in (*self.graph.invars, *self.graph.outvars)) - beside

    @property
    def flops(self) -> int:
        """Floating-point operations by count: one an element of each arithmetic equation, 2·k an element of a product."""
        return sum(_flops(eqn) for eqn in self.graph.eqns)

    @property
    def ops(self) -> tuple[str, ...]:
        """Names of the primitives inside, in order; those of a loop's body too, where it is part of the kernel."""
        return tuple(eqn.primitive.name for eqn in self.eqns)

    @property
    def inner(self) -> tuple[FusionGroup, ...]:
        """The groups inside: the parts of a horizontal group, or those of the bodies of control flow."""
        return (*self.parts, *(group for plan in self.bodies for group in plan.groups))

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        """The equations that the group's kernel computes; a loop is followed by those of its body, an
        attention by what it is made of."""
        return tuple(inner_eqns(self.graph.eqns)) if self.kind in (Kind.LOOP, Kind.CONTRACTION) else self.graph.eqns


_GENERATED = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN, Kind.LOOP, Kind.HORIZONTAL)


def generated(group: FusionGroup, limits: FusionLimits) -> bool:
    """Whether the group's text is generated, rather than that it is a library call or a loop driven from Python."""
    if limits.whole:
        return True
    if group.kind is Kind.CONTROL:
        return bool(group.bodies) and not group.reason and not group.enqueued
    if group.kind is Kind.LIBRARY:
        return not group.reason
    return group.kind in _GENERATED or (group.kind is Kind.CONTRACTION and limits.dots and not group.reason)


def kernel_groups(plan: Plan, limits: FusionLimits) -> Iterator[FusionGroup]:
    """The groups that become kernels, those in the bodies of loops that are driven from Python among them."""
    for group in plan.groups:
        if generated(group, limits):
            yield group
        else:
            for body in group.bodies:
                yield from kernel_groups(body, limits)


def inner_eqns(eqns: Iterable[Eqn]) -> Iterator[Eqn]:
    """The equations, and behind each those of the graphs that it holds."""
    for eqn in eqns:
        yield eqn
        for graph in graphs_in(eqn.params):
            yield from inner_eqns(graph.eqns)


def _flops(eqn: Eqn) -> int:
    fusion, out = eqn.primitive.fusion, eqn.outvars[0].aval
    if fusion is Fusion.CONTROL:
        return _flops_of_control(eqn)
    if fusion is Fusion.DOT and "graph" in eqn.params:
        return sum(map(_flops, eqn.params["graph"].eqns))
    if fusion is Fusion.DOT:
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * out.size * math.prod(eqn.invars[0].aval.shape[d] for d in contracted)
    if fusion in (Fusion.REDUCE, Fusion.SCAN):
        return eqn.invars[0].aval.size
    copied = eqn.primitive.lower is not None and fusion is Fusion.ELEMENTWISE and lowered(eqn).op in LEAVES
    return out.size if fusion is Fusion.ELEMENTWISE and not copied else 0


def _flops_of_control(eqn: Eqn) -> int:
    """Of all steps of a scan, of one step of a while loop, and of the dearest branch."""
    counts = [sum(_flops(inner) for inner in graph.eqns) for graph in graphs_in(eqn.params)]
    if eqn.primitive.control is Control.SCAN:
        return int(eqn.params["length"]) * counts[0]
    return max(counts) if eqn.primitive.control is Control.COND else sum(counts)


@dataclass(frozen=True)
class Decision:
    """A refused merge: the two things (as names a person can find) and the reason."""

    first: str
    second: str
    reason: str


@dataclass(frozen=True)
class Slot:
    """A buffer of the plan: its type, and the steps between which it lives (−1: an input; ≥ number of groups: an output)."""

    index: int
    aval: ArrayType
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Plan:
    """The program as groups in order. `inputs`, `reads`, `writes` and `outputs` are slot numbers."""

    graph: Graph
    groups: tuple[FusionGroup, ...]
    decisions: tuple[Decision, ...]
    slots: tuple[Slot, ...]
    slot_of: dict[Var, int]
    outputs: tuple[Operand, ...]
    aliases: dict[Var, Var] = field(default_factory=dict)  # outputs that are another value in another shape
    reuse: dict[int, int] = field(
        default_factory=dict
    )  # written slot: dying slot whose memory it takes (inputs: if donated)
    offsets: dict[int, int] = field(default_factory=dict)  # slot: bytes into the arena; others have memory of their own
    arena: int = 0  # bytes of the block that holds the temporaries of one call
    backend: str = ""

    @property
    def kernels(self) -> tuple[FusionGroup, ...]:
        """The groups in order, the parts of a horizontal group each for itself."""
        return tuple(kernel for group in self.groups for kernel in group.parts or (group,))

    def explain(self) -> str:
        """What fused, what did not and why, in the user's source lines."""
        from fuser.partition.explain import explain

        return explain(self)

    def __str__(self) -> str:
        from fuser.partition.explain import show

        return show(self)
