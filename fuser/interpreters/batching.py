"""jax.interpreters.batching's names: batch rules of primitives, as a mapping.

A rule is `rule(operands, dims, **params) -> (out, dim)`, lists for several results; a dim is None for what is not batched. It
is the primitive's own field `batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.interpreters.ad import Rules
from fuser.ir.primitive import Primitive
from fuser.ops.family import batch_elementwise
from fuser.trace.batch import moved

__all__ = ["bdim_at_front", "broadcast", "defbroadcasting", "defreducer", "defvectorized", "primitive_batchers"]

primitive_batchers = Rules("batch", lambda primitive: primitive.batch)


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
