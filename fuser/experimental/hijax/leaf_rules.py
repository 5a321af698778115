"""The rules of a VJPHiPrimitive on leaves, checked: what `call_hi_primitive` runs (ops/hi_primitive)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.experimental.hijax.accumulators import NullAccum, ValAccum
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.values import convert
from fuser.ops.hi_primitive import AxisData, Linearization, Values
from fuser.trace import tree
from fuser.trace.cells import is_ref
from fuser.trace.core import EVALUATION, current, type_of
from fuser.trace.tangent import Undefined, Zero, differentiable, float0
from fuser.transforms.arguments import leaf_values
from fuser.transforms.custom_function import residual_leaves, taken_tangent
from fuser.transforms.vmap import prefix


def is_zero(value: Any) -> bool:
    """Whether a value among tangents or cotangents is a symbolic zero."""
    return isinstance(value, Zero)


def zero_of(aval: ArrayType) -> Zero:
    """The symbolic tangent of a value of this type: of dtype float0 where such values have none."""
    return Zero(aval if differentiable(aval) else aval.update(dtype=float0))


class LeafRules:
    """What `call_hi_primitive` asks of a primitive."""

    def __init__(self, prim: Any, transposes: bool) -> None:
        self.prim = prim
        self.name = type(prim).__name__
        self.in_avals: list[ArrayType] = prim.in_avals_flat
        self.out_avals: list[ArrayType] = prim.out_avals_flat
        self.transposes = transposes

    def arguments(self, leaves: Sequence[Any]) -> Any:
        """The arguments of these leaves."""
        return tree.unflatten(self.prim.in_tree, leaves)

    def operands(self, args: Any) -> list[Any]:
        """The leaves of arguments; TypeError where they have not the types of `in_avals`."""
        leaves, structure = tree.flatten(args)
        if structure != self.prim.in_tree:
            raise TypeError(
                f"{self.name} takes arguments with the tree of its in_avals, {self.prim.in_tree}, got {structure} ({current_source().short})"
            )
        values = leaf_values(leaves, f"the arguments of {self.name}")
        self._check(values, self.in_avals, "takes arguments", "in_avals")
        return values

    def results(self, result: Any, rule: str) -> list[Any]:
        """The leaves of a rule's results; TypeError where they have not the types of `out_aval`."""
        leaves, structure = tree.flatten(result)
        if structure != self.prim.out_tree:
            raise TypeError(
                f"{self.name}.{rule} must return a result with the tree of its out_aval, {self.prim.out_tree}, got {structure} "
                f"({current_source().short})"
            )
        values = leaf_values(leaves, f"the result of {self.name}.{rule}")
        self._check(values, self.out_avals, f"must return results of {rule}", "out_aval")
        return values

    def _check(self, values: Sequence[Any], avals: Sequence[ArrayType], what: str, field: str) -> None:
        for value, aval in zip(values, avals):
            found = type_of(value)
            if not is_ref(value) and (found.shape, found.dtype) != (aval.shape, aval.dtype):
                raise TypeError(
                    f"input type mismatch for {self.prim}: {self.name} {what} of the types of its {field}, got {found.str_long()} for "
                    f"{aval.str_long()}; make the primitive for the types that it is called with ({current_source().short})"
                    if field == "in_avals"
                    else f"{self.name} {what} of the types of its {field}, got {found.str_long()} for {aval.str_long()} "
                    f"({current_source().short})"
                )

    def expand(self, *operands: Any) -> list[Any]:
        values = self.results(self.prim.expand(*self.arguments(operands)), "expand")
        if current() is EVALUATION:
            return values
        return [v if is_ref(v) else convert(v, a.dtype, a.weak_type) for v, a in zip(values, self.out_avals)]

    def jvp(self, primals: Values, tangents: Values) -> tuple[list[Any], list[Any]]:
        given = [zero_of(a) if type(t) is Zero else t for t, a in zip(tangents, self.in_avals)]
        result = self.prim.jvp(self.arguments(primals), self.arguments(given))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(
                f"{self.name}.jvp must return a pair (result, tangent), got {result!r} ({current_source().short})"
            )
        return self.results(result[0], "jvp"), self.tangents(result[1], "jvp")

    def tangents(self, result: Any, rule: str) -> list[Any]:
        """The tangent of each result, Zero for float0; TypeError where it is none."""
        leaves, structure = tree.flatten(result, is_zero)
        if structure != self.prim.out_tree:
            raise TypeError(
                f"{self.name}.{rule} must return tangents with the tree of its out_aval, {self.prim.out_tree}, got {structure} "
                f"({current_source().short})"
            )
        return [self._tangent(leaf, aval, rule) for leaf, aval in zip(leaves, self.out_avals)]

    def _tangent(self, leaf: Any, aval: ArrayType, rule: str) -> Any:
        if is_zero(leaf) or getattr(leaf, "dtype", None) == float0 or not differentiable(aval):
            return Zero(aval)
        tangent = taken_tangent(leaf)
        found = type_of(tangent)
        if (found.shape, found.dtype) != (aval.shape, aval.dtype):
            raise TypeError(
                f"{self.name}.{rule} must return tangents of the types of its out_aval, got {found.str_long()} for {aval.str_long()} "
                f"({current_source().short})"
            )
        return tangent

    def forward(self, primals: Values, nonzeros: Sequence[bool]) -> Linearization:
        """`vjp_fwd`; the map is from residuals and cotangents to the cotangents of all arguments."""
        return self._linearization("vjp_fwd", primals, nonzeros, self._backward)

    def linear(self, primals: Values, nonzeros: Sequence[bool]) -> Linearization:
        """`lin`; the map is from residuals and tangents of all arguments to tangents."""
        return self._linearization("lin", primals, nonzeros, self._pushforward)

    def _linearization(
        self, rule: str, primals: Values, nonzeros: Sequence[bool], made: Callable[..., Any]
    ) -> Linearization:
        nzs_in = self.arguments([bool(nz) for nz in nonzeros])
        result = getattr(self.prim, rule)(nzs_in, *self.arguments(primals))
        if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
            raise TypeError(
                f"{self.name}.{rule} must return (result, residuals) or (result, residuals, which results have a tangent), got "
                f"{result!r} ({current_source().short})"
            )
        outs = self.results(result[0], rule)
        leaves, structure = tree.flatten(result[1])
        residuals, merged = residual_leaves(leaves, structure, f"{self.name}.{rule}")
        nzs_out = prefix(result[2], result[0], "nzs_out", rule) if len(result) == 3 else [True] * len(outs)
        return Linearization(outs, residuals, made(merged, nonzeros), [bool(nz) for nz in nzs_out])

    def _backward(self, merged: Callable[..., Any], nonzeros: Sequence[bool]) -> Callable[..., Any]:
        def backward(residuals: Values, cotangents: Values) -> list[Any]:
            given = [zero_of(a) if type(c) is Zero else c for c, a in zip(cotangents, self.out_avals)]
            accums = [(ValAccum if nz else NullAccum)(a) for nz, a in zip(nonzeros, self.in_avals)]
            outgrad = tree.unflatten(self.prim.out_tree, given)
            self.prim.vjp_bwd(merged(residuals), outgrad, *self.arguments(accums))
            return [accum.freeze() for accum in accums]

        return backward

    def _pushforward(self, merged: Callable[..., Any], nonzeros: Sequence[bool]) -> Callable[..., Any]:
        def pushforward(residuals: Values, tangents: Values) -> list[Any]:
            given = [zero_of(a) if type(t) is Zero else t for t, a in zip(tangents, self.in_avals)]
            return self.tangents(self.prim.linearized(merged(residuals), *self.arguments(given)), "linearized")

        return pushforward

    def transpose(self, cotangents: Values, operands: Values) -> list[Any]:
        given = [zero_of(a) if type(c) is Zero else c for c, a in zip(cotangents, self.out_avals)]
        accums = [ValAccum(o.aval) if type(o) is Undefined else o for o in operands]
        self.prim.transpose(tree.unflatten(self.prim.out_tree, given), *self.arguments(accums))
        return [a.freeze() if type(o) is Undefined else None for a, o in zip(accums, operands)]

    def batch(self, axis: AxisData, operands: Values, dims: Sequence[int | None]) -> tuple[list[Any], list[int | None]]:
        result = self.prim.batch(axis, self.arguments(operands), self.arguments(dims))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(
                f"{self.name}.batch must return a pair (result, its batch dimensions), got {result!r} ({current_source().short})"
            )
        leaves, structure = tree.flatten(result[0])
        if structure != self.prim.out_tree:
            raise TypeError(
                f"{self.name}.batch must return a result with the tree of its out_aval, {self.prim.out_tree}, got {structure} "
                f"({current_source().short})"
            )
        values = leaf_values(leaves, f"the result of {self.name}.batch")
        return values, prefix(result[1], result[0], "dimensions", f"{self.name}.batch")
