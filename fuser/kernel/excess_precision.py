"""Excess precision of terms: a 16-bit sum adds its terms before they are rounded to 16 bits. Kernel → Kernel.

`x.sum()` of such numbers is a sum in float32 of their conversions, converted back. Elsewhere a conversion rounds to what its operand's dtype holds
(`fuser/ops/conversion.py`); between two operations of one kernel float32's digits may remain, and a sum and its own conversions are one operation.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, HALVES
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import Sweeping
from fuser.kernel.readers import readers
from fuser.kernel.substitution import Substitution
from fuser.partition.values import deep_recursion

WIDE = FLOATS[2]


def with_unrounded_sums(kernel: Kernel) -> Kernel:
    """The kernel, in which such sums read their terms before they are rounded; the same kernel where there are none."""
    if kernel.loop is not None:
        return kernel
    users = readers(kernel)
    reductions = [reduction for sweep in kernel.sweeps for reduction in sweep.reductions]
    terms = {reduction: term for reduction in reductions if (term := _term(reduction, users)) is not None}
    if not terms:
        return kernel
    with deep_recursion():
        new = _Unrounded(terms)
        return replace(kernel, sweeps=Sweeping(kernel.reduced).cut(list(map(new.store, kernel.stores))))


class _Unrounded(Substitution):
    def __init__(self, terms: dict[Scalar, Scalar]) -> None:
        super().__init__({})
        self.terms = terms

    def _new(self, node: Scalar) -> Scalar:
        term = self.terms.get(node)
        if term is None:
            return super()._new(node)
        return Scalar(node.op, (Scalar("cast", (self.node(term),), WIDE),), node.dtype, node.attr)


def _term(reduction: Scalar, users: dict[Scalar, list[Scalar | None]]) -> Scalar | None:
    """What a sum adds up, before that is rounded to the 16 bits that the sum has too; None where it is no such sum."""
    if reduction.attr.reduction != "sum" or reduction.dtype != WIDE:
        return None
    (wide,) = reduction.args
    rounded = wide.args[0] if wide.op == "cast" else wide
    exact = rounded.args[0] if rounded.op == "cast" and rounded.dtype in HALVES else rounded
    if exact.op != "cast" or exact.dtype != WIDE or exact.args[0].dtype != rounded.dtype:
        return None
    back = [user is not None and user.op == "cast" and user.dtype == rounded.dtype for user in users[reduction]]
    return exact.args[0] if all(back) else None
