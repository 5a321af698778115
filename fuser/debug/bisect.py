"""The search for a guilty merge: which of the partition's merges changes a result.

In: a function and its arguments (or a graph and its arrays). The program runs with its first n merges allowed, as
FUSER_FUEL=n does, and n is halved until the merge that turns right results into wrong ones is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuser import backends
from fuser.api.jitted import jit
from fuser.backends.base import Backend
from fuser.compile import Lowering, load, lower
from fuser.config import config
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.text import show
from fuser.ir.types import is_inexact
from fuser.lax.values import as_value
from fuser.partition.axes import is_view
from fuser.partition.group import FusionGroup
from fuser.trace import tree

Agree = Callable[[np.ndarray, np.ndarray], bool]


@dataclass(frozen=True)
class GuiltyMerge:
    """The merge number `number` (from 1; 0 where results are wrong without any) and the groups that it made one.

    `before` are the groups' graphs, `after` the merged one, `kernel` its text, and `output` the first wrong result.
    """

    number: int
    output: int
    before: tuple[Graph, ...]
    after: Graph | None
    kernel: str

    def __str__(self) -> str:
        if self.after is None:
            return f"result {self.output} is wrong without any merge: a kernel of one equation, or a pass, is at fault"
        parts = "\n".join(show(graph) for graph in self.before)
        return (
            f"result {self.output} goes wrong with merge {self.number} (FUSER_FUEL={self.number - 1} is right, "
            f"FUSER_FUEL={self.number} is not), which makes one kernel of\n{parts}\n{self.kernel}"
        )


def bisect(
    function: Callable[..., Any], *args: Any, backend: str = "c", agree: Agree | None = None
) -> GuiltyMerge | None:
    """The first merge with which `function(*args)` differs from the reference backend; None where it never does."""
    arrays = [np.ascontiguousarray(np.asarray(as_value(leaf))).reshape(np.shape(leaf)) for leaf in tree.leaves(args)]
    return bisect_graph(jit(function).trace(*args).graph, arrays, backends.get(backend), agree)


def bisect_graph(
    graph: Graph, arrays: Sequence[np.ndarray], backend: Backend, agree: Agree | None = None
) -> GuiltyMerge | None:
    """The same for a graph; `agree(found, expected)` says what counts as equal."""
    expected = evaluate(graph, arrays)
    compare = agree or agreement

    def wrong(fuel: int) -> int | None:
        found = run(graph, arrays, backend, fuel)[1]
        return next((n for n, (x, y) in enumerate(zip(found, expected)) if not compare(x, y)), None)

    low, high = 0, len(graph.eqns) + len(graph.outvars)
    output = wrong(high)
    if output is None:
        return None
    first = wrong(0)
    if first is not None:
        return GuiltyMerge(0, first, (), None, "")
    while high - low > 1:
        middle = (low + high) // 2
        found = wrong(middle)
        low, high, output = (middle, high, output) if found is None else (low, middle, found)
    return _describe(high, output, run(graph, arrays, backend, low)[0], run(graph, arrays, backend, high)[0])


def run(graph: Graph, arrays: Sequence[np.ndarray], backend: Backend, fuel: int) -> tuple[Lowering, list[np.ndarray]]:
    """The program with `fuel` merges allowed (−1: all), and its results."""
    with config.using(fuel=fuel):
        program = load(lower(graph, backend), backend)
    plan = program.lowering.plan
    found = [np.asarray(r) for r in program.executable(*arrays)]
    return program.lowering, [x.reshape(v.aval.shape) for x, v in zip(found, plan.outputs)]


def agreement(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two results are alike: exactly for integers, to half of the digits for floats."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if not is_inexact(found.dtype):
        return bool(np.array_equal(found, expected))
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    x, y = found.astype(wide), expected.astype(wide)
    tolerance = float(ml_dtypes.finfo(found.real.dtype if found.dtype.kind == "c" else found.dtype).eps) ** 0.5
    with np.errstate(all="ignore"):
        size = float(np.abs(y[np.isfinite(y)]).max(initial=0))
        return bool(np.isclose(x, y, rtol=tolerance, atol=tolerance * size, equal_nan=True).all())


def _describe(number: int, output: int, before: Lowering, after: Lowering) -> GuiltyMerge:
    """The group that `after` has and `before` has not, and the groups of `before` that it is made of."""
    old, new = _members(before), _members(after)
    made = next(members for members in new if members not in old)
    parts = tuple(group.graph for members, group in old.items() if members <= made)
    group = new[made]
    text = next((s.text for s in after.sources if s.name == group.name), "")
    return GuiltyMerge(number, output, parts, group.graph, text)


def _members(lowering: Lowering) -> dict[frozenset[int], FusionGroup]:
    """Each group by the positions of its equations; views, which groups share, are left out."""
    plan = lowering.plan
    position = {eqn.outvars[0]: n for n, eqn in enumerate(plan.graph.eqns)}
    return {frozenset(position[eqn.outvars[0]] for eqn in g.graph.eqns if not is_view(eqn)): g for g in plan.groups}
