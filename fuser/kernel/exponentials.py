"""Exponentials of differences that a form may compute in one step, and those of which only sums are read. Kernel → a fact of each exponential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuser.ir.scalar import Scalar
from fuser.ir.types import bfloat16, is_inexact
from fuser.kernel.kernel import Kernel
from fuser.kernel.readers import readers
from fuser.kernel.safe_divisors import relative


@dataclass(frozen=True, eq=False)
class Exponential:
    """Of exp: the `difference` of an element and a row's number, both of them bfloat16 exactly, that it is of, where it is; whether it is `summed`:
    relative to its row's maximum, and read by sums alone, in which what is below 2**-126 is nothing beside 1."""

    difference: Scalar | None
    summed: bool


def exponentials(kernel: Kernel) -> dict[Scalar, Exponential]:
    """What is known of each exponential of a kernel's elements."""
    body = {node for sweep in kernel.sweeps for node in sweep.body}
    users = readers(kernel)
    found = {}
    for node in (node for node in kernel.nodes if node.op == "exp" and node in body):
        (argument,) = node.args
        apart = argument.op == "sub" and argument.args[1] not in body and all(map(_narrow, argument.args))
        summed = relative(node) and _only_summed(node, users)
        found[node] = Exponential(argument if apart else None, summed)
    return found


def absorbed(kernel: Kernel, found: Mapping[Scalar, Exponential]) -> set[Scalar]:
    """The differences that nothing but these exponentials reads."""
    users = readers(kernel)
    differences = {fact.difference for fact in found.values() if fact.difference is not None}
    return {d for d in differences if all(u is not None and u in found and found[u].difference is d for u in users[d])}


def _only_summed(node: Scalar, users: Mapping[Scalar, list[Scalar | None]]) -> bool:
    for user in users.get(node, []):
        if user is None or not (
            (user.op == "reduction" and user.attr.reduction == "sum")
            or (user.op == "cast" and is_inexact(user.dtype) and _only_summed(user, users))
        ):
            return False
    return True


def _narrow(node: Scalar) -> bool:
    """Whether a number is a bfloat16 exactly, not one that is kept with more digits."""
    if node.dtype != bfloat16:
        return False
    if node.op in ("load", "const", "cast"):
        return True
    if node.op == "reduction":
        return node.attr.reduction in ("max", "min") and _narrow(node.args[0])
    parts = node.args[1:] if node.op == "select" else node.args
    return node.op in ("select", "max", "min", "neg", "abs") and all(map(_narrow, parts))
