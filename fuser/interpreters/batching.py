"""jax.interpreters.batching's names: batch rules of primitives, as a mapping.

A rule is `rule(operands, dims, **params) -> (out, dim)`, lists for several results; a dim is None for what is not batched. It
is the primitive's own field `batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.gaps import absent
from fuser.interpreters.ad import Rule, Rules
from fuser.ir.primitive import Primitive
from fuser.ops.family import batch_elementwise
from fuser.trace.batch import moved, size_of

__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defreducer",
    "defvectorized",
    "primitive_batchers",
]

primitive_batchers = Rules("batch", lambda primitive: primitive.batch)


class AxisRules(Rules):
    """Batch rules that are also given the extent: `rule(axis_size, axis_name, trace, operands, dims, **params) -> (out, dim)`."""

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        primitive.batch = lambda operands, dims, **params: rule(
            size_of(operands, dims), None, None, operands, dims, **params
        )


axis_primitive_batchers = AxisRules("batch", lambda primitive: None)


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """`x` with one dimension more, of extent `sz`, at `axis`."""
    return moved(x, None, axis, sz)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """`x` with its batch dimension in front; repeated there where it has none."""
    return moved(x, bdim, 0, size)


def defvectorized(prim: Primitive) -> None:
    """A primitive of one operand on single elements."""
    prim.batch = lambda operands, dims, **params: (prim.bind(*operands, **params), dims[0])


def defbroadcasting(prim: Primitive) -> None:
    """A primitive of several operands on single elements."""
    prim.batch = batch_elementwise(prim)


def defreducer(prim: Primitive, ident: Any = None) -> None:
    """A primitive of one operand that reduces its dimensions `axes`."""

    def rule(operands: Sequence[Any], dims: Sequence[int], axes: Sequence[int], **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = operands, dims
        shifted = tuple(a + (a >= dim) for a in axes)
        return prim.bind(x, axes=shifted, **params), dim - sum(a < dim for a in shifted)

    prim.batch = rule


__getattr__ = absent(__name__)
