"""What an equation costs an element, in additions: enough to say what is cheaper to compute again than to load.

The cost is that of the operations in the primitive's lowered expression, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ir.index import Affine, Axis
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.scalar import COSTS, LEAVES, Scalar
from fuser.ir.target import Target
from fuser.ir.types import ArrayType


def cost(eqn: Eqn, target: Target | None = None) -> int:
    """Additions an element that one equation is worth, on a target or about; 1 of what only moves elements or combines
    them."""
    if not _computed(eqn.primitive):
        return 1
    params = tuple((name, _hashable(eqn.params[name])) for name in sorted(eqn.params))
    avals = tuple(v.aval for v in eqn.invars)
    try:
        return _cost(eqn.primitive, params, avals, eqn.outvars[0].aval, target)
    except TypeError:  # a param that has no hash
        return _cost.__wrapped__(eqn.primitive, params, avals, eqn.outvars[0].aval, target)


def element_seconds(eqn: Eqn, target: Target) -> float:
    """Seconds that an element of an equation takes on a target, as one of a vector."""
    width = max(v.aval.dtype.itemsize for v in (*eqn.invars, *eqn.outvars))
    return cost(eqn, target) * max(width, 4) / 4 / target.operations


def seconds(eqn: Eqn, target: Target) -> float:
    """Seconds that computing all elements of an equation takes, or combining those of its operands."""
    return element_seconds(eqn, target) * max(v.aval.size for v in (*eqn.invars, *eqn.outvars))


def operations(eqn: Eqn) -> int:
    """Vector operations that one equation is written in, about: conversions into fewer numbers test for each end."""
    before, after = eqn.invars[0].aval.dtype if eqn.invars else None, eqn.outvars[0].aval.dtype
    if before is None or before == after or eqn.primitive.fusion is not Fusion.ELEMENTWISE or len(eqn.invars) > 1:
        return 1
    root = lowered(eqn)
    if root.op != "cast" or root.args[0].op != "input" or (before.kind != "f" and after.kind != "f"):
        return 1
    return 8 if after.kind in "iu" or min(before.itemsize, after.itemsize) < 4 else 1


def lowered(eqn: Eqn) -> Scalar:
    """The expression of one element of an elementwise equation's result."""
    return _lowered(eqn.primitive, eqn.params, tuple(v.aval for v in eqn.invars), eqn.outvars[0].aval)


def _computed(primitive: Primitive) -> bool:
    """Whether elements are computed from those of the operands: random bits are, though one key makes many."""
    moved = primitive.fusion is Fusion.MOVEMENT and primitive.movement is None
    return primitive.lower is not None and (primitive.fusion is Fusion.ELEMENTWISE or moved)


@lru_cache(maxsize=4096)
def _cost(
    primitive: Primitive,
    params: tuple[tuple[str, Any], ...],
    avals: tuple[ArrayType, ...],
    out: ArrayType,
    target: Target | None,
) -> int:
    used = nodes(_lowered(primitive, dict(params), avals, out))
    costs = COSTS if target is None else target.costs
    return max(1, round(sum(costs.get(kind(node), 1) for node in used if node.op not in LEAVES)))


def kind(node: Scalar) -> str:
    """The name that targets have a cost for: integers are divided, and made of floats, in another time than floats are."""
    if node.op in ("div", "rem", "mul", "pow") and node.dtype.kind in "iu":
        by_constant = node.op in ("div", "rem") and node.args[1].op == "const"
        return f"int_{node.op}" if not by_constant else "int_div_const"
    if node.op == "cast" and node.dtype.kind != node.args[0].dtype.kind:
        return "cast_int" if node.dtype.kind in "iu" and node.args[0].dtype.kind == "f" else "cast"
    return node.op


def _lowered(primitive: Primitive, params: dict[str, Any], avals: tuple[ArrayType, ...], out: ArrayType) -> Scalar:
    rule = primitive.rule("lower")
    operands = [Scalar("input", (), aval.dtype, number) for number, aval in enumerate(avals)]
    if primitive.fusion is Fusion.ELEMENTWISE:
        return rule(*operands, **params)  # type: ignore[no-any-return]
    index = tuple(Affine.of(Axis(extent)) for extent in out.shape)
    return rule(lambda number, inner, mask=None: operands[number], index, *avals, **params)  # type: ignore[no-any-return]


def nodes(root: Scalar) -> Iterator[Scalar]:
    """The nodes of an expression, each once."""
    seen, stack = {root}, [root]
    while stack:
        node = stack.pop()
        yield node
        fresh = [arg for arg in dict.fromkeys(node.args) if arg not in seen]
        seen.update(fresh)
        stack += fresh


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
