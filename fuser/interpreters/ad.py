"""jax.interpreters.ad's names: derivatives of primitives, as mappings from primitives to rules.

A jvp rule is `rule(primals, tangents, **params) -> (out, tangent)` (lists for several results), a transpose rule
`rule(ct, *operands, **params) -> cotangents`; they are the primitive's own fields `jvp` and `transpose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from fuser.gaps import absent
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.ir.types import ArrayType
from fuser.trace import jvp as _jvp
from fuser.trace import tangent as T
from fuser.trace import tree
from fuser.trace.jvp import JVPTrace, JVPTracer
from fuser.trace.tangent import Undefined as UndefinedPrimal
from fuser.trace.tangent import Zero, add_tangents
from fuser.transforms.linear import linearize

__all__ = [
    "JVPTrace", "JVPTracer", "UndefinedPrimal", "Zero", "add_jaxvals", "add_jaxvals_p", "add_tangents", "defbilinear", "defjvp",
    "defjvp2", "deflinear", "deflinear2", "get_primitive_transpose", "instantiate_zeros", "is_undefined_primal", "linearize",
    "primitive_jvps", "primitive_transposes", "zeros_like_aval",
]  # fmt: skip

Rule = Callable[..., Any]
for _kind in (Zero, UndefinedPrimal):  # trees without leaves, as libraries pass them on
    tree.register_pytree_node(
        _kind,
        lambda symbol: ((), symbol.aval),
        lambda aval, _, kind=_kind: kind(aval),  # type: ignore[misc]
    )


class Rules(MutableMapping[Primitive, Rule]):
    """One rule of each primitive: read and written as the primitive's field."""

    def __init__(self, field: str, given: Callable[[Primitive], Rule | None]) -> None:
        self._field, self._given = field, given

    def __getitem__(self, primitive: Primitive) -> Rule:
        rule = self._given(primitive)
        if rule is None:
            raise KeyError(primitive)
        return rule

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        setattr(primitive, self._field, rule)

    def __delitem__(self, primitive: Primitive) -> None:
        setattr(primitive, self._field, None)

    def __iter__(self) -> Iterator[Primitive]:
        return (p for p in REGISTRY.values() if self._given(p) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _jvp_rule(primitive: Primitive) -> Rule | None:
    if primitive.jvp is None and not primitive.linear:
        return None
    return lambda primals, tangents, **params: _jvp.differentiate(primitive, tuple(primals), tuple(tangents), params)


primitive_jvps = Rules("jvp", _jvp_rule)
primitive_transposes = Rules("transpose", lambda primitive: primitive.transpose)
add_jaxvals_p = REGISTRY["add_any"]


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents of one type."""
    return add_jaxvals_p.bind(x, y)


def is_undefined_primal(x: Any) -> bool:
    """Whether `x` is the linear operand that a transpose rule is asked about."""
    return type(x) is UndefinedPrimal


def instantiate_zeros(tangent: Any) -> Any:
    """The tangent as an array, also where it is a symbolic zero."""
    return T.instantiate(tangent)


def zeros_like_aval(aval: ArrayType) -> Any:
    """Zeros of a type."""
    return T.full(aval, 0)


def get_primitive_transpose(p: Primitive) -> Rule:
    """The primitive's transpose rule. NotImplementedError without one."""
    return p.rule("transpose")


def defjvp(primitive: Primitive, *jvprules: Rule | None) -> None:
    """One rule `f(tangent, *operands, **params)` an operand, None where there is no derivative; their results are added."""
    primitive.jvp = tuple(r and (lambda t, *rest, _rule=r, **params: _rule(t, *rest[:-1], **params)) for r in jvprules)


def defjvp2(primitive: Primitive, *jvprules: Rule | None) -> None:
    """One rule `f(tangent, out, *operands, **params)` an operand; their results are added."""
    primitive.jvp = tuple(
        r and (lambda t, *rest, _rule=r, **params: _rule(t, rest[-1], *rest[:-1], **params)) for r in jvprules
    )


def deflinear2(primitive: Primitive, transpose_rule: Rule) -> None:
    """A linear primitive of one operand or several, with `transpose_rule(ct, *operands, **params) -> cotangents`."""
    primitive.linear = True

    def rule(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        if T.all_zero(tangents):
            return out, T.zero_like(out)
        return out, primitive.bind(*map(T.instantiate, tangents), **params)

    primitive.jvp = rule
    primitive.transpose = transpose_rule


def deflinear(primitive: Primitive, transpose_rule: Rule) -> None:
    """As `deflinear2`, where the rule is given the cotangent alone."""
    deflinear2(primitive, lambda ct, *operands, **params: transpose_rule(ct, **params))


def defbilinear(prim: Primitive, lhs_rule: Rule, rhs_rule: Rule) -> None:
    """A product: `lhs_rule(ct, x, y, **params)` is the cotangent of the left operand, `rhs_rule` that of the right one."""
    defjvp(
        prim, lambda t, x, y, **params: prim.bind(t, y, **params), lambda t, x, y, **params: prim.bind(x, t, **params)
    )

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> tuple[Any, Any]:
        if is_undefined_primal(x):
            return lhs_rule(ct, x, y, **params), None
        return None, rhs_rule(ct, x, y, **params)

    prim.transpose = transpose


__getattr__ = absent(__name__)
