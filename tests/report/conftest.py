"""Profiles made by hand, with figures round enough to check in the head."""

from __future__ import annotations

import dataclasses

import pytest

from fuser.report import (
    GraphNode,
    GraphPicture,
    KernelProfile,
    Machine,
    ProgramProfile,
    Refusal,
    SourceLine,
    Stage,
)

SOURCE = """// softmax_rows: rows of x, reduced and scaled in one pass
#include <math.h>
void softmax_rows(const float *restrict x, float *restrict out, long rows, long columns) {
    #pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const float *line = x + row * columns;
        float largest = -INFINITY, total = 0.0f;
        for (long column = 0; column < columns; column++)
            largest = fmaxf(largest, line[column]);
        for (long column = 0; column < columns; column++)
            total += expf(line[column] - largest);   /* the sum of row */
        for (long column = 0; column < columns; column++)
            out[row * columns + column] = expf(line[column] - largest) / total;
    }
}
"""

MACHINE = Machine("Example CPU", 2, 40e9, 200e9, "c", (("python", "3.12.1"), ("numpy", "2.2.0"), ("gcc", "12.2.0")))


def _kernel(
    name: str, kind: str, ops: tuple[str, ...], moved: int, flops: int, median: float, **others
) -> KernelProfile:
    line = SourceLine("attention.py:14 (attend)", "    scores = np.exp(x - x.max(axis=1, keepdims=True))")
    figures = {
        "lines": (line,), "bytes_ideal": moved, "min_seconds": 0.9 * median, "compile_seconds": 0.031,
        "cache_hit": False, "language": "c", "text": SOURCE,
    }  # fmt: skip
    figures |= others
    return KernelProfile(
        name=name, kind=kind, ops=ops, bytes_moved=moved, flops=flops, median_seconds=median, **figures
    )


KERNELS = (
    _kernel("scale_bias", "elementwise", ("mul", "mul", "add"), 80_000_000, 30_000_000, 2.5e-3, cache_hit=True),
    _kernel(
        "matmul_gelu", "contraction", ("dot_general", "erf", "mul", "add", "mul"), 96_000_000, 1_600_000_000, 10e-3,
        lines=(
            SourceLine("attention.py:11 (attend)", "    hidden = x @ weights"),
            SourceLine("activation.py:5 (gelu)", "    return 0.5 * x * (1 + erf(x / np.sqrt(2)))"),
        ),
    ),
    _kernel("softmax_rows", "reduction", ("reduce_max", "sub", "exp", "reduce_sum", "div"), 160_000_000, 120_000_000, 5e-3, bytes_ideal=80_000_000),
    _kernel("transpose_copy", "elementwise", ("transpose",), 40_000_000, 0, 2e-3),
    _kernel("sort", "library", ("sort",), 40_000_000, 0, 20e-3, lines=(), language="", text=""),
)  # fmt: skip


def _graph() -> GraphPicture:
    rows = (
        ("x", "input", -1), ("weights", "input", -1), ("bias", "input", -1),
        ("mul", "mul", 0), ("mul", "mul", 0), ("add", "add", 0),
        ("dot_general", "dot_general", 1), ("erf", "erf", 1), ("mul", "mul", 1), ("add", "add", 1), ("mul", "mul", 1),
        ("reduce_max", "reduce_max", 2), ("sub", "sub", 2), ("exp", "exp", 2), ("reduce_sum", "reduce_sum", 2), ("div", "div", 2),
        ("transpose", "transpose", 3), ("sort", "sort", 4), ("output 0", "output", -1), ("output 1", "output", -1),
    )  # fmt: skip
    nodes = tuple(
        GraphNode(id, label, primitive, "f32[4096,2048]", group, "attention.py:14 (attend)")
        for id, (label, primitive, group) in enumerate(rows)
    )
    edges = (
        (0, 3), (3, 4), (4, 5), (2, 5), (5, 6), (1, 6), (6, 7), (6, 8), (7, 9), (9, 10), (8, 10), (10, 11), (10, 12),
        (11, 12), (12, 13), (13, 14), (13, 15), (14, 15), (15, 16), (15, 17), (16, 18), (17, 19),
    )  # fmt: skip
    return GraphPicture(nodes, edges)


def example() -> ProgramProfile:
    """Five kernels of four kinds, one with bytes to spare, one without source, two without arithmetic."""
    return ProgramProfile(
        name="attend",
        machine=MACHINE,
        stages=(
            Stage("trace", 0.004), Stage("optimise", 0.003), Stage("partition", 0.001), Stage("emit", 0.002), Stage("load", 0.09),
        ),
        kernels=KERNELS,
        refused=(
            Refusal("scale_bias", "matmul_gelu", "a contraction reads each element of its operand many times"),
            Refusal("matmul_gelu", "softmax_rows", "the row sum needs all columns, which one tile does not hold"),
            Refusal("softmax_rows", "sort", "sort is a library call"),
        ),
        launches=5,
        repeats=20,
        median_seconds=40e-3,
        min_seconds=38e-3,
        peak_bytes=128_000_000,
        planned_bytes=416_000_000,
        ideal_bytes=336_000_000,
        graph=_graph(),
        notes=("sort: runs in NumPy, because the c backend has no sort yet",),
    )  # fmt: skip


@pytest.fixture
def profile() -> ProgramProfile:
    return example()


@pytest.fixture
def bare(profile: ProgramProfile) -> ProgramProfile:
    """A program without kernels on a machine of which nothing is measured."""
    machine = Machine("Example CPU", 0, 0.0, 0.0, "reference")
    return dataclasses.replace(
        profile, machine=machine, stages=(), kernels=(), refused=(), launches=0, median_seconds=0.0, min_seconds=0.0,
        peak_bytes=0, planned_bytes=0, ideal_bytes=0, graph=GraphPicture(), notes=(),
    )  # fmt: skip


@pytest.fixture
def hostile(profile: ProgramProfile) -> ProgramProfile:
    """The example with an element smuggled into each of its texts."""
    evil = '</title><script>alert("x")</script><img src=http://x.test/>&'

    def spoil(value):
        if isinstance(value, str):
            return value + evil
        if isinstance(value, tuple):
            return tuple(spoil(entry) for entry in value)
        if dataclasses.is_dataclass(value):
            return type(value)(**{field.name: spoil(getattr(value, field.name)) for field in dataclasses.fields(value)})
        return value

    return spoil(profile)
