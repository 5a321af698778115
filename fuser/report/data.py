"""The profile of one program, as data: what was compiled, what each kernel cost, what was not fused and why.

In: figures that `profile.py` collects. Out: frozen dataclasses that every renderer of this folder reads and none
changes. Units are seconds, bytes, FLOP, bytes per second and FLOP per second; what can be derived is a property.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the program ran. `copy_bandwidth` and `peak_flops` are measured there; 0 means not measured."""

    name: str
    cores: int
    copy_bandwidth: float
    peak_flops: float
    backend: str
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def ridge(self) -> float:
        """FLOP per byte above which arithmetic, not memory, is the limit; 0 when one of the two is not measured."""
        return self.peak_flops / self.copy_bandwidth if self.copy_bandwidth > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of compiling (trace, optimise, partition, emit, load) and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Two things that could not share a kernel, and why."""

    first: str
    second: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program: `where` is `mlp.py:12 (loss)`, `text` the code on it, empty when unknown."""

    where: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One step of the program: what it computes, the bytes and FLOP it needs, and the time it took per call."""

    name: str
    kind: str
    lines: tuple[SourceLine, ...]
    ops: tuple[str, ...]
    bytes_ideal: int
    bytes_moved: int
    flops: int
    median_seconds: float
    min_seconds: float
    compile_seconds: float
    cache_hit: bool
    language: str = ""
    text: str = ""
    vmem: int = 0  # bytes of on-chip memory that its blocks take, where they are planned
    estimated_seconds: float = 0.0  # what the cost model says; 0 where it says nothing

    @property
    def generated(self) -> bool:
        """Whether fuser generated this kernel; if not, the step calls a library, and nothing is compiled for it."""
        return bool(self.text)

    @property
    def strays(self) -> float:
        """How many times longer even the best run takes than was estimated, or how many times shorter the median; 1 without an
        estimate, and where it lies between the two, as on a busy machine."""
        if self.estimated_seconds <= 0 or self.median_seconds <= 0:
            return 1.0
        ratio = min(max(self.estimated_seconds, self.min_seconds), self.median_seconds) / self.estimated_seconds
        return max(ratio, 1 / ratio)

    @property
    def achieved_bandwidth(self) -> float:
        """Bytes moved per second, by the median time."""
        return self.bytes_moved / self.median_seconds if self.median_seconds > 0 else 0.0

    @property
    def achieved_flops(self) -> float:
        """FLOP per second, by the median time."""
        return self.flops / self.median_seconds if self.median_seconds > 0 else 0.0

    @property
    def arithmetic_intensity(self) -> float:
        """FLOP per byte moved."""
        return self.flops / self.bytes_moved if self.bytes_moved > 0 else 0.0

    def fraction_of_bandwidth(self, machine: Machine) -> float:
        """The achieved bandwidth over the machine's copy bandwidth; above 1 when the arrays sit in a cache."""
        return self.achieved_bandwidth / machine.copy_bandwidth if machine.copy_bandwidth > 0 else 0.0

    def limit(self, machine: Machine) -> str:
        """`arithmetic` when the FLOP alone take longer than moving the bytes at full speed, else `memory`."""
        return "arithmetic" if 0 < machine.ridge < self.arithmetic_intensity else "memory"

    def limit_seconds(self, machine: Machine) -> float:
        """The least time the machine allows: ideal bytes at copy bandwidth or FLOP at peak, whichever is longer."""
        memory = self.bytes_ideal / machine.copy_bandwidth if machine.copy_bandwidth > 0 else 0.0
        arithmetic = self.flops / machine.peak_flops if machine.peak_flops > 0 else 0.0
        return max(memory, arithmetic)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An input, equation or output of the graph; `group` is the index of its kernel, or -1 where it has none."""

    id: int
    label: str
    primitive: str
    type: str
    group: int = -1
    line: str = ""


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """The optimised graph for drawing: `edges` are pairs of node ids, from producer to consumer."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        ids = {node.id for node in self.nodes}
        if len(ids) < len(self.nodes):
            raise ValueError("two nodes of a graph picture have the same id; give each its own")
        for edge in self.edges:
            if not ids.issuperset(edge):
                raise ValueError(f"edge {edge} of a graph picture ends at no node; the nodes are {sorted(ids)}")


@dataclass(frozen=True, slots=True)
class ProgramProfile:
    """One profiled program. Print it, show it in a notebook, or `save` it as HTML, JSON, Chrome trace or text.

    `median_seconds` and `min_seconds` are of a whole call over `repeats` runs; `planned_bytes` is what its kernels
    move together, `ideal_bytes` what any program must move: each input and each result once. With 0 repeats nothing was
    run, times are 0, and the report is of the plan.
    """

    name: str
    machine: Machine
    stages: tuple[Stage, ...]
    kernels: tuple[KernelProfile, ...]
    refused: tuple[Refusal, ...]
    launches: int
    repeats: int
    median_seconds: float
    min_seconds: float
    peak_bytes: int
    planned_bytes: int
    ideal_bytes: int
    graph: GraphPicture = GraphPicture()
    notes: tuple[str, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether the program was run."""
        return self.repeats > 0

    @property
    def operations(self) -> int:
        """How many operations the kernels do together."""
        return sum(len(kernel.ops) for kernel in self.kernels)

    @property
    def compile_seconds(self) -> float:
        """All stages of compiling together."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def kernel_seconds(self) -> float:
        """The kernels' median times together."""
        return sum(kernel.median_seconds for kernel in self.kernels)

    @property
    def between_seconds(self) -> float:
        """What a call takes beyond its kernels: argument checks, launches and Python."""
        return max(0.0, self.median_seconds - self.kernel_seconds)

    @property
    def achieved_bandwidth(self) -> float:
        """Planned bytes per second of a whole call."""
        return self.planned_bytes / self.median_seconds if self.median_seconds > 0 else 0.0

    @property
    def fraction_of_bandwidth(self) -> float:
        """The achieved bandwidth over the machine's copy bandwidth."""
        return self.achieved_bandwidth / self.machine.copy_bandwidth if self.machine.copy_bandwidth > 0 else 0.0

    def text(self, width: int = 120, colour: bool = False) -> str:
        """The report as text of at most `width` columns, with ANSI colours if `colour`."""
        from fuser.report.text import text

        return text(self, width, colour)

    def to_json(self) -> str:
        """The report as JSON of the schema that `fuser.report.from_json` reads."""
        from fuser.report.serialise import to_json

        return to_json(self)

    def chrome_trace(self) -> str:
        """Compiling and one call as a trace for chrome://tracing or ui.perfetto.dev (JSON)."""
        from fuser.report.chrome_trace import chrome_trace

        return chrome_trace(self)

    def html(self) -> str:
        """The report as one self-contained page, which loads nothing."""
        from fuser.report.html import page

        return page(self)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the form that the suffix names: .html, .trace.json, .json or .txt; returns the path."""
        path = pathlib.Path(path)
        writers = {".trace.json": self.chrome_trace, ".json": self.to_json, ".html": self.html, ".txt": self.text}
        for suffix, write in writers.items():
            if path.name.endswith(suffix):
                path.write_text(write(), encoding="utf-8", errors="replace")
                return path
        raise ValueError(
            f"a report is saved as {', '.join(writers)}, not as {path.name!r}; choose one of these suffixes"
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from fuser.report.html import notebook

        return notebook(self)
