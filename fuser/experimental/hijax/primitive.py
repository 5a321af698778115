"""`VJPHiPrimitive`: a primitive of the user's own on arrays, by its implementation and a rule for each transform.

A subclass's `__init__` sets `in_avals` (a tuple with the tree of types of each argument), `out_aval` (that of the result) and
`params` (a dict of hashable values, which become attributes), and calls `super().__init__()`. Calling the instance applies it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from fuser.errors import AbsentError
from fuser.experimental.hijax.accumulators import GradAccum
from fuser.experimental.hijax.leaf_rules import LeafRules, is_zero
from fuser.frames import hide
from fuser.ir.references import AbstractRef
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.calls import Batching, batched_bwd, outer_type
from fuser.ops.hi_primitive import AxisData, call_hi_primitive_p
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.transforms.vmap import prefix


class VJPHiPrimitive:
    """A primitive with an implementation (`expand`) and the rules that the transforms which are used need.

    Rules compute the result by calling the primitive itself (`self(...)`), so that they hold for derivatives of
    derivatives. A transform without its rule raises NotImplementedError; arguments or results that have not the types that
    the instance was made for raise TypeError.
    """

    in_avals: tuple[Any, ...]
    out_aval: Any
    params: dict[str, Hashable]
    effects: Any = frozenset()

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"subclass __init__ should set `self.{name}` ({current_source().short})")
        kind, base = type(self), VJPHiPrimitive
        if kind.vjp_bwd is not base.vjp_bwd and kind.vjp_bwd_retval is not base.vjp_bwd_retval:
            raise AttributeError(
                f"subclass {kind} should not override both `vjp_bwd` and `vjp_bwd_retval` ({current_source().short})"
            )
        found, self.in_tree = tree.flatten(self.in_avals)
        self.in_avals_flat = [_array_type(a, kind.__name__, "in_avals") for a in found]
        found, self.out_tree = tree.flatten(self.out_aval)
        self.out_avals_flat = [_array_type(a, kind.__name__, "out_aval") for a in found]
        self.__dict__.update(self.params)
        self.leaf_rules = LeafRules(self, kind.transpose is not base.transpose)
        self.check(*self.in_avals)

    def check(self, *arg_tys: Any) -> None:
        """Raise what is wrong with the types of the arguments; nothing by default."""

    def __call__(self, *args: Any) -> Any:
        operands = self.leaf_rules.operands(args)
        params = {"name": self.leaf_rules.name, "call_jaxpr": self.leaf_rules.expand, "num_consts": 0, "_prim": self}
        try:
            return tree.unflatten(self.out_tree, call_hi_primitive_p.bind(*operands, **params))
        except Exception as error:
            raise hide(error)  # noqa: B904

    def expand(self, *args: Any) -> Any:
        """The result by operations on arrays: what runs, and what `jit` compiles."""
        raise NotImplementedError(f"subclass {type(self)} must implement `expand`")

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        """`(result, residuals)`, for reverse mode; perhaps with a third part, which results have a tangent.

        `nzs_in` says which arguments are differentiated. Residuals are any tree.
        """
        raise NotImplementedError(
            f"for grad support, subclass {type(self)} must implement `vjp_fwd`, or derive its reverse-mode rules from its jvp or "
            "lin rules by setting `vjp_fwd, vjp_bwd_retval = vjp_from_jvp` (or `= vjp_from_lin`)"
        )

    def vjp_bwd(self, res: Any, outgrad: Any, /, *arg_accums: Any) -> None:
        """Add the cotangent of each argument to its accumulator; `outgrad` holds `Zero` for what has no effect."""
        grads = self.vjp_bwd_retval(res, outgrad)
        for accum, value in zip(tree.leaves(arg_accums), self._cotangents(grads)):
            if isinstance(accum, GradAccum):
                accum.accum(value)

    def _cotangents(self, grads: Any) -> list[Any]:
        """What `vjp_bwd_retval` returned, for each leaf of the arguments; None and Zero stand for whole trees."""
        count, name = len(self.in_avals), type(self).__name__
        grads = tuple(grads) if isinstance(grads, list) else grads
        if not isinstance(grads, tuple) or len(grads) != count:
            raise TypeError(
                f"{name}.vjp_bwd_retval must return a tuple with one cotangent for each of its {count} arguments, got {grads!r}; return "
                f"None for an argument without one ({current_source().short})"
            )
        leaf = lambda value: value is None or is_zero(value)
        try:
            return tree.broadcast_prefix(grads, tree.unflatten(self.in_tree, self.in_avals_flat), leaf)
        except ValueError:
            raise TypeError(
                f"{name}.vjp_bwd_retval must return cotangents with the tree of the arguments, {self.in_tree}, got "
                f"{tree.structure(grads, leaf)} ({current_source().short})"
            ) from None

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        """A tuple with one cotangent an argument, None for zero."""
        raise NotImplementedError(
            f"for grad support, subclass {type(self)} must implement `vjp_bwd` or `vjp_bwd_retval`, or derive its reverse-mode rules "
            "by setting `vjp_fwd, vjp_bwd_retval = vjp_from_jvp` (or `= vjp_from_lin`)"
        )

    def jvp(self, primals: Any, tangents: Any) -> Any:
        """`(result, tangent)`, for forward mode; tangents of what is constant are `Zero`."""
        raise NotImplementedError(f"for jvp support, subclass {type(self)} must implement `jvp`")

    def lin(self, nzs_in: Any, *primals: Any) -> Any:
        """`(result, residuals)`, for `linearize`."""
        raise NotImplementedError(
            f"for linearize support, subclass {type(self)} must implement `lin` and `linearized`, or derive them from its `jvp` rule "
            "by setting `lin, linearized = linearize_from_jvp`"
        )

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        """The tangent of the result, from the residuals of `lin`."""
        raise NotImplementedError(
            f"for linearize support, subclass {type(self)} must implement `lin` and `linearized`, or derive them from its `jvp` rule "
            "by setting `lin, linearized = linearize_from_jvp`"
        )

    def transpose(self, out_ct: Any, *maybe_accums: Any) -> None:
        """Add cotangents to the accumulators among the arguments, in which the primitive is linear.

        Without this rule what `expand` does is transposed.
        """
        raise NotImplementedError(f"for transpose support, subclass {type(self)} must implement `transpose`")

    def batch(self, axis_data: Any, args: Any, dims: Any) -> tuple[Any, Any]:
        """`(result, its batch dimensions)` of arguments with the batch at `dims` (None for what has none)."""
        out_dim = self.batch_dim_rule(axis_data, dims)
        return VmapOf(self, axis_data, dims, out_dim)(*args), out_dim

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        """Where the result has the batch; all other rules are batched by themselves."""
        raise NotImplementedError(f"for vmap support, subclass {type(self)} must implement `batch` or `batch_dim_rule`")

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.params}]"

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self.params.items()), frozenset(self.effects)))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, VJPHiPrimitive):
            return False
        return self.params == other.params and self.effects == other.effects


def _array_type(aval: Any, name: str, field: str) -> Any:
    """A type among those that a subclass sets, as an ArrayType."""
    if isinstance(aval, (ArrayType, AbstractRef)):
        return aval
    if not (hasattr(aval, "shape") and hasattr(aval, "dtype")):
        raise AbsentError(
            f"{name}.{field} must be a tree of types of arrays (fuser.typeof(x)), got {aval!r}: values under fuser's transforms are arrays; "
            f"instead: pytrees of arrays ({current_source().short})"
        )
    return type_of(aval) if hasattr(aval, "__array__") else ArrayType(tuple(aval.shape), aval.dtype)


class VmapOf(VJPHiPrimitive):
    """A primitive over a batch, whose rules are the primitive's own, batched."""

    def __init__(self, prim: VJPHiPrimitive, axis_data: AxisData, in_dims: Any, out_dim: Any) -> None:
        self._in_dims = prefix(in_dims, prim.in_avals, "in_dims", "VmapOf")
        self._out_dims = prefix(out_dim, prim.out_aval, "out_dim", "VmapOf")
        self._rules, self._axis = prim.leaf_rules, axis_data
        outer = lambda avals, dims: [outer_type(a, d, axis_data.size) for a, d in zip(avals, dims)]
        self.in_avals = tree.unflatten(prim.in_tree, outer(prim.in_avals_flat, self._in_dims))
        self.out_aval = tree.unflatten(prim.out_tree, outer(prim.out_avals_flat, self._out_dims))
        self.params = {"prim": prim, "axis_data": axis_data, "in_dims": in_dims, "out_dim": out_dim}
        super().__init__()

    def _results(self, values: Any, found: Any, rule: str) -> Any:
        """The tree of results (or tangents) with the batch where `out_dim` says that it is."""
        batching = Batching(self._axis, self._in_dims)  # type: ignore[arg-type]
        for value, dim, wanted in zip(values, found, self._out_dims):
            if dim is not None and wanted is None and not is_zero(value):
                raise ValueError(
                    f"vmap has mapped output but out_axes is None: {rule} of {self._rules.name} differs from lane to lane in a result "
                    f"that batch_dim_rule says is the same for all ({current_source().short})"
                )
        placed = [batching.in_place(v, f, w) for v, f, w in zip(values, found, self._out_dims)]
        return tree.unflatten(self.out_tree, placed)

    def _run(self, function: Any, values: Any, dims: Any) -> tuple[list[Any], list[Any]]:
        return Batching(self._axis, dims).run(function, values, dims)  # type: ignore[arg-type]

    def expand(self, *args: Any) -> Any:
        values, found = self._run(self._rules.expand, tree.leaves(args), self._in_dims)
        return self._results(values, found, "expand")

    def jvp(self, primals: Any, tangents: Any) -> Any:
        count = len(self._in_dims)

        def both(*inputs: Any) -> list[Any]:
            outs, moved = self._rules.jvp(inputs[:count], inputs[count:])
            return [*outs, *moved]

        given = [*tree.leaves(primals), *tree.leaves(tangents, is_zero)]
        values, found = self._run(both, given, [*self._in_dims, *self._in_dims])
        half = len(self._out_dims)
        return self._results(values[:half], found[:half], "jvp"), self._results(values[half:], found[half:], "jvp")

    def _linearization(self, rule: Any, nzs_in: Any, args: Any) -> Any:
        made: list[Any] = []

        def function(*primals: Any) -> list[Any]:
            found = rule(primals, tree.leaves(nzs_in))
            made[:] = [found]
            return [*found.outs, *found.residuals]

        values, found = self._run(function, tree.leaves(args), self._in_dims)
        count = len(self._out_dims)
        outs = self._results(values[:count], found[:count], rule.__name__)
        residuals = _Residuals(values[count:], (made[0].map, tuple(found[count:])))
        return outs, residuals, tree.unflatten(self.out_tree, made[0].nonzeros)

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        return self._linearization(self._rules.forward, nzs_in, args)

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        backward, dims = res.map
        batching = Batching(self._axis, self._in_dims)  # type: ignore[arg-type]
        function = batched_bwd(batching, backward, dims, self._out_dims, self._in_dims)
        return tree.unflatten(self.in_tree, function(res.values, tree.leaves(outgrad, is_zero)))

    def lin(self, nzs_in: Any, *primals: Any) -> Any:
        return self._linearization(self._rules.linear, nzs_in, primals)

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        push, dims = residuals.map
        flat = lambda *inputs: push(inputs[: len(dims)], inputs[len(dims) :])
        given = [*residuals.values, *tree.leaves(tangents, is_zero)]
        values, found = self._run(flat, given, [*dims, *self._in_dims])
        return self._results(values, found, "linearized")

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        given = prefix(dims, self.in_avals, "in_dims", "VmapOf")
        inner = [d if d is None or own is None else d - (own < d) for d, own in zip(given, self._in_dims)]
        prim = self._rules.prim
        wanted = prim.batch_dim_rule(axis_data, tree.unflatten(prim.in_tree, inner))
        found = prefix(wanted, prim.out_aval, "out_dim", "VmapOf")
        outer = [d if d is None or own is None else d + (own < d) for d, own in zip(found, self._out_dims)]
        return tree.unflatten(self.out_tree, outer)


@tree.register_pytree_node_class
class _Residuals:
    """Residuals of a batched rule: values, and the map that takes them with where they have their batch."""

    def __init__(self, values: Any, map: Any) -> None:
        self.values, self.map = values, map

    def tree_flatten(self) -> tuple[Any, Any]:
        return tuple(self.values), self.map

    @classmethod
    def tree_unflatten(cls, map: Any, values: Any) -> _Residuals:
        return cls(values, map)
