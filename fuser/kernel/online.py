"""Online reductions: sums of exponentials relative to a row's maximum run in the sweep that finds the maximum. Kernel → Kernel.

While the maximum is not known, the exponentials are relative to the largest element so far, and the sum is rescaled when a larger
one comes: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). For rows that no registers hold, this saves a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.operands import operands, within_sweep
from fuser.partition.values import deep_recursion


@dataclass(frozen=True, eq=False)
class Online:
    """How a sum is relative to a maximum of its own sweep: each element has the factor exp(… − shift), the `exponential`.

    `chain` are the row's nodes from the maximum to the shift, in order; `elements` the body's nodes that need the shift.
    """

    maximum: Scalar
    shift: Scalar
    exponential: Scalar
    chain: tuple[Scalar, ...]
    elements: tuple[Scalar, ...]

    @property
    def base(self) -> Scalar:
        return self.maximum


def online(kernel: Kernel) -> tuple[Kernel, dict[Scalar, Online]]:
    """The kernel with each such sum in the sweep of its maximum, behind it; and of each of these sums how it is relative."""
    if sum(bool(sweep.reductions) for sweep in kernel.sweeps) < 2:
        return kernel, {}
    with deep_recursion():
        return _moved(kernel)


def _moved(kernel: Kernel) -> tuple[Kernel, dict[Scalar, Online]]:
    uses = Dependence(kernel)
    reductions = [reduction for sweep in kernel.sweeps for reduction in sweep.reductions]
    found = {r: relative for r in reductions if (relative := uses.relative(r)) is not None}
    return (beside(kernel, found), found) if found else (kernel, {})


class Relative(Protocol):
    """How a reduction is relative to another one, its base; `chain` are the row's nodes from that to what elements need."""

    @property
    def base(self) -> Scalar: ...

    @property
    def chain(self) -> tuple[Scalar, ...]: ...


def beside(kernel: Kernel, found: Mapping[Scalar, Relative]) -> Kernel:
    """The kernel with each reduction that is `found` relative in the sweep of its base, behind that."""
    sweeps = list(kernel.sweeps)
    home = {reduction: number for number, sweep in enumerate(sweeps) for reduction in sweep.reductions}
    for reduction, relative in found.items():
        number, first = home[reduction], home[relative.base]
        sweeps[number] = _without(sweeps[number], reduction)
        sweeps[first] = _with(sweeps[first], kernel.sweeps[number], reduction, relative)
    return replace(kernel, sweeps=_merged(sweeps))


def _merged(sweeps: list[Sweep]) -> tuple[Sweep, ...]:
    """Sweeps of which those that run over nothing do what they do at the beginning of the next one."""
    found: list[Sweep] = []
    for sweep in sweeps:
        if found and not found[-1].loops:
            before = found.pop()
            row = tuple(dict.fromkeys((*before.row, *sweep.row)))
            sweep = replace(sweep, row=row, row_stores=(*before.row_stores, *sweep.row_stores))
        found.append(sweep)
    return tuple(found)


def _without(sweep: Sweep, reduction: Scalar) -> Sweep:
    return replace(sweep, reductions=tuple(r for r in sweep.reductions if r is not reduction))


def _with(sweep: Sweep, old: Sweep, reduction: Scalar, relative: Relative) -> Sweep:
    """The sweep with a reduction of an `old` one behind its own, and what that needs."""
    body, row = dict.fromkeys(sweep.body), dict.fromkeys(sweep.row)
    needed = within_sweep([reduction.args[0]])
    body |= dict.fromkeys(node for node in old.body if node in needed)
    row |= dict.fromkeys(node for node in old.row if node in needed and node not in relative.chain)
    return replace(sweep, row=tuple(row), body=tuple(body), reductions=(*sweep.reductions, reduction))


class Dependence:
    """On which reductions the nodes of a kernel depend, and which sums are relative to a maximum."""

    def __init__(self, kernel: Kernel) -> None:
        self.varying = {node for sweep in kernel.sweeps for node in sweep.body}
        self.body = [*dict.fromkeys(node for sweep in kernel.sweeps for node in sweep.body)]
        self.row = [*dict.fromkeys(node for sweep in kernel.sweeps for node in sweep.row)]
        self.known: dict[Scalar, frozenset[Scalar]] = {}
        self.factors: dict[Scalar, Scalar | None] = {}

    def of(self, node: Scalar) -> frozenset[Scalar]:
        """The reductions that a node is made of, not those that these are made of."""
        if node not in self.known:
            parts = (frozenset((n,)) if n.op == "reduction" else self.of(n) for n in operands(node))
            self.known[node] = frozenset().union(*parts)
        return self.known[node]

    def relative(self, reduction: Scalar) -> Online | None:
        """How a reduction is relative to a maximum; None where it is not."""
        if not reduction.attr.compensated or reduction.attr.accumulator.kind == "c":
            return None
        exponential = self._factor(reduction.args[0])
        if exponential is None:
            return None
        number, shift = exponential.args[0].args
        maximum = self._maximum(shift)
        alone = self.of(reduction.args[0]) == {maximum}
        if maximum is None or not alone or uncast(maximum.args[0]) is not uncast(number):
            return None
        shifting, summed = within_sweep([shift]), within_sweep([reduction.args[0]])
        chain = tuple(n for n in self.row if n.op != "reduction" and n in shifting and maximum in self.of(n))
        elements = tuple(n for n in self.body if n in summed and maximum in self.of(n))
        return Online(maximum, shift, exponential, chain, elements)

    def _factor(self, node: Scalar) -> Scalar | None:
        """The exponential exp(number − row's value) that a number has as its one factor made of a maximum; None without one."""
        if node not in self.factors:
            self.factors[node] = self._found_factor(node)
        return self.factors[node]

    def _found_factor(self, node: Scalar) -> Scalar | None:
        if node.op == "exp" and (difference := node.args[0]).op == "sub" and difference.args[1] not in self.varying:
            number, shift = difference.args
            return node if self._maximum(shift) is not None and not self._shares(number, shift) else None
        operand = self._multiplied(node)
        found = None if operand is None else self._factor(operand)
        if found is None or node.args.count(operand) > 1:
            return None
        shift = found.args[0].args[1]
        return None if any(self._shares(n, shift) for n in node.args if n is not operand) else found

    def _multiplied(self, node: Scalar) -> Scalar | None:
        """The operand in which a node is linear, and which may hold the exponential; a choice of 0 is none, as in a row of −∞
        it decides which of the exponentials, all nan, are summed."""
        if node.op == "cast" and is_inexact(node.args[0].dtype) and is_inexact(node.dtype):
            return node.args[0]
        if node.op in ("neg", "div"):
            return node.args[0]
        if node.op == "mul":
            return next((n for n in node.args if self._factor(n) is not None), None)
        return None

    def _shares(self, node: Scalar, shift: Scalar) -> bool:
        """Whether a node is made of a reduction that the shift is made of."""
        return node is shift or bool(self.reductions(node) & self.reductions(shift))

    def reductions(self, node: Scalar) -> frozenset[Scalar]:
        return frozenset((node,)) if node.op == "reduction" else self.of(node)

    def _maximum(self, shift: Scalar) -> Scalar | None:
        """The maximum that a shift is, but where a choice replaces it (by 0 where it is infinite)."""
        found = shift
        while found.op != "reduction":
            if found.op == "cast" and is_inexact(found.args[0].dtype) and is_inexact(found.dtype):
                found = found.args[0]
            elif found.op == "select" and any(n.op == "const" for n in found.args[1:]):
                found = next((n for n in found.args[1:] if n.op != "const"), found.args[1])
            else:
                return None
        alone = self.reductions(shift) == {found}
        return found if alone and found.attr.reduction == "max" and is_inexact(found.dtype) else None


def uncast(node: Scalar) -> Scalar:
    while node.op == "cast" and is_inexact(node.args[0].dtype) and is_inexact(node.dtype):
        node = node.args[0]
    return node
