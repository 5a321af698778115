"""Centred sums of squares: Σ (x − f(Σ x))², of which variances are made, in the sweep that computes Σ x. Kernel → Kernel.

While the centre is not known, each lane's distances are to its own first element; they are moved when it is: Chan, Golub and LeVeque,
"Algorithms for computing the sample variance" (1983). An element of the lane as its pivot bounds what cancels by the lane's length,
whatever the numbers are. For rows that no registers hold, this saves a run.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.online import Dependence, beside, uncast
from fuser.kernel.operands import within_sweep
from fuser.partition.values import deep_recursion


@dataclass(frozen=True, eq=False)
class Centred:
    """How a sum of squares is relative to a sum of its own sweep, its `base`: each element is (number − centre)².

    `chain` are the row's nodes from the base to the centre, in order; `elements` the body's nodes that need the centre.
    """

    base: Scalar
    centre: Scalar
    number: Scalar
    chain: tuple[Scalar, ...]
    elements: tuple[Scalar, ...]


def centred(kernel: Kernel) -> tuple[Kernel, dict[Scalar, Centred]]:
    """The kernel with each such sum in the sweep of its base, behind that; and of each of these sums how it is relative."""
    if sum(bool(sweep.reductions) for sweep in kernel.sweeps) < 2:
        return kernel, {}
    with deep_recursion():
        uses = Dependence(kernel)
        reductions = [reduction for sweep in kernel.sweeps for reduction in sweep.reductions]
        found = {r: relative for r in reductions if (relative := _centred(r, uses)) is not None}
        return (beside(kernel, found), found) if found else (kernel, {})


def _centred(reduction: Scalar, uses: Dependence) -> Centred | None:
    """How a reduction is a sum of squares of distances to what a sum of the same numbers decides; None where it is not."""
    square = uncast(reduction.args[0])
    if not _adds(reduction) or square.op != "mul" or square.args[0] is not square.args[1]:
        return None
    distance = uncast(square.args[0])
    if distance.op != "sub" or distance.args[1] in uses.varying:
        return None
    number, centre = distance.args
    bases = uses.reductions(centre)
    base = next(iter(bases), None)
    if base is None or not _adds(base) or {base} != bases or uses.of(reduction.args[0]) != bases:
        return None
    if uncast(base.args[0]) is not uncast(number) or number not in uses.varying:
        return None
    centring, summed = within_sweep([centre]), within_sweep([reduction.args[0]])
    chain = tuple(n for n in uses.row if n.op != "reduction" and n in centring and base in uses.of(n))
    elements = tuple(n for n in uses.body if n in summed and base in uses.of(n))
    return Centred(base, centre, number, chain, elements)


def _adds(reduction: Scalar) -> bool:
    """Whether it is a sum of real numbers that rounds."""
    return bool(reduction.attr.compensated) and reduction.attr.accumulator.kind != "c"
