"""`custom_partitioning`: a function with a division among devices of the user's own.

In a divided program its operands and results are laid out as a sharding rule, or functions of shardings, say; then `partition` is asked once
how they are to lie, and for the function of one device, which takes the call's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuser.api.shapes import ShapeDtypeStruct
from fuser.errors import UnexpectedTracerError
from fuser.frames import hide
from fuser.ir.graph import Eqn
from fuser.ir.source import current_source
from fuser.ops.custom_partitioning import custom_partitioning_p
from fuser.ops.shard_map import Spec
from fuser.parallel.mesh import mesh_in_scope
from fuser.parallel.other_axes import in_axes_of
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.sharding_rule import SdyShardingRule, sharding_rule
from fuser.parallel.spec import spec_of
from fuser.trace import tree
from fuser.trace.body import close
from fuser.trace.core import type_of
from fuser.trace.stage import stage
from fuser.transforms.arguments import leaf_values, name_of
from fuser.transforms.custom_function import Call, CustomFunction

DIVIDED = frozenset({custom_partitioning_p})  # calls that stay calls until a program has been divided


class custom_partitioning(CustomFunction):
    """A function whose division among the devices of a mesh you define: decorate it, then `f.def_partition(partition, ...)`.

    Arguments at `static_argnums` are Python values, which the functions of `def_partition` get first.
    """

    kind = "custom_partitioning"

    def __init__(self, fun: Callable[..., Any], static_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, tuple(static_argnums))
        self.partition: Callable[..., Any] | None = None
        self.infer_sharding_from_operands: Callable[..., Any] | None = None
        self.propagate_user_sharding: Callable[..., Any] | None = None
        self.sharding_rule: Any = None

    def def_partition(
        self,
        partition: Callable[..., Any],
        infer_sharding_from_operands: Callable[..., Any] | None = None,
        propagate_user_sharding: Callable[..., Any] | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> Callable[..., Any]:
        """Set how the function is divided, and return `partition`.

        `partition(*static, mesh, arg_shapes, result_shape)` gets trees of ShapeDtypeStructs with shardings, and returns the mesh, the function of one
        device, and the shardings of the result and of the arguments. Which layouts it is asked about follows from `sharding_rule` ("i j, j k -> i k", see
        parallel/sharding_rule.py, an SdyShardingRule, or a function of the mesh, operands and results that gives one); without it from
        `infer_sharding_from_operands(*static, mesh, arg_shapes, result_shape)` and
        `propagate_user_sharding(*static, mesh, result_shape)`. Shardings are NamedShardings always, so `decode_shardings` says nothing.
        """
        self.partition = partition
        self.infer_sharding_from_operands, self.propagate_user_sharding = (
            infer_sharding_from_operands,
            propagate_user_sharding,
        )
        factors = {
            "reduction_factors": reduction_factors,
            "need_replication_factors": need_replication_factors,
            "permutation_factors": permutation_factors,
        }
        self.sharding_rule = _rule(sharding_rule, factors, factor_sizes)
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.partition is None:
            raise AttributeError(
                f"the custom_partitioning function {name_of(self.fun)} has no partition; define one with def_partition "
                f"({current_source().short})"
            )
        call = Call(self.fun, self._positional(args, kwargs), self.nondiff_argnums, self.kind)
        if call.places:
            raise UnexpectedTracerError(
                f"a static argument of the custom_partitioning function {call.name} is traced ({current_source().short}); pass a Python value, "
                "or leave it out of static_argnums"
            )
        operands = call.operands()
        try:
            graph, consts = close(stage(call.function, [type_of(v) for v in operands], call.name))
            own = _Partitioning(self, call, tuple(call.static_args(())), graph.out_avals)
            outs = custom_partitioning_p.bind(*consts, *operands, call=graph, num_consts=len(consts), partitioning=own)
        except Exception as error:
            raise hide(error)  # noqa: B904
        return call.result(outs)


def _rule(rule: Any, factors: dict[str, tuple[str, ...]], sizes: dict[str, int]) -> Any:
    if isinstance(rule, str):
        return sharding_rule(rule, factors, sizes)
    unread = [name for name, value in (*factors.items(), *sizes.items()) if value]
    if unread:
        raise ValueError(
            f"Unknown keyword arguments: {', '.join(unread)}, which go with a sharding rule that is a text ({current_source().short}); put them into "
            "the SdyShardingRule"
        )
    return rule


@dataclass(frozen=True, eq=False)
class _Partitioning:
    """One call's partitioning: the user's functions on the trees of its arguments and results."""

    own: custom_partitioning
    call: Call
    static: tuple[Any, ...]
    out_avals: Sequence[Any]
    rules: dict[Any, SdyShardingRule | None] = field(default_factory=dict)  # by mesh
    implied = True  # texts of graphs leave it out

    def __str__(self) -> str:
        return self.call.name

    def rule(self, eqn: Eqn) -> SdyShardingRule | None:
        """The sharding rule, if there is one."""
        found, mesh = self.own.sharding_rule, mesh_in_scope()
        if found is None or isinstance(found, SdyShardingRule):
            return found
        if mesh not in self.rules:
            own = eqn.invars[eqn.params["num_consts"] :]
            structs = [[ShapeDtypeStruct.of(v.aval, None) for v in values] for values in (own, eqn.outvars)]
            given = found(*self.static, mesh, *structs)
            given, sizes = given if isinstance(given, (tuple, list)) and len(given) == 2 else (given, {})
            self.rules[mesh] = _rule(given, {}, dict(sizes))
        return self.rules[mesh]

    def arguments(self, eqn: Eqn, mesh: Any, specs: Sequence[Spec]) -> Any:
        """The tree of the arguments that lie so."""
        own = zip(eqn.invars[eqn.params["num_consts"] :], specs[eqn.params["num_consts"] :])
        return tree.unflatten(self.call.in_tree, [_struct(v.aval, mesh, s) for v, s in own])

    def results(self, eqn: Eqn, mesh: Any, specs: Sequence[Spec] | None) -> Any:
        """The tree of the results, which lie so where that is said."""
        given = [None] * len(eqn.outvars) if specs is None else specs
        return tree.unflatten(self.call.out_tree, [_struct(v.aval, mesh, s) for v, s in zip(eqn.outvars, given)])

    def specs(self, shardings: Any, structure: Any, avals: Sequence[Any], mesh: Any, what: str) -> list[Spec]:
        """How values lie by a tree of shardings."""
        leaves = tree.leaves(shardings, is_leaf=lambda s: s is None)
        if len(leaves) != structure.num_leaves or not all(isinstance(s, NamedSharding) for s in leaves):
            raise ValueError(
                f"Custom Partitioning rules must return Sharding. {what} of {self.call.name} are to be {structure.num_leaves} NamedShardings, got "
                f"{shardings} ({current_source().short})"
            )
        return [in_axes_of(s, mesh).axes(a.ndim) for s, a in zip(leaves, avals)]


def _struct(aval: Any, mesh: Any, spec: Spec | None) -> ShapeDtypeStruct:
    return ShapeDtypeStruct.of(aval, None if spec is None else NamedSharding(mesh, spec_of(spec)))


def offered(eqn: Eqn, layouts: Any, forwards: bool) -> bool:
    """Let the axes go as the user's functions of shardings say, where there is no rule; whether any did."""
    own: _Partitioning = eqn.params["partitioning"]
    mesh, user = layouts.mesh, own.own
    results = lambda specs: own.results(eqn, mesh, specs)
    if forwards and user.infer_sharding_from_operands is not None:
        given = own.arguments(eqn, mesh, [layouts.of(v) for v in eqn.invars])
        found = user.infer_sharding_from_operands(*own.static, mesh, given, results(None))
    elif not forwards and user.propagate_user_sharding is not None:
        found = user.propagate_user_sharding(*own.static, mesh, results([layouts.of(v) for v in eqn.outvars]))
    else:
        return False
    specs = own.specs(found, own.call.out_tree, [v.aval for v in eqn.outvars], mesh, "results")
    reason = f"as custom_partitioning at {eqn.source.short} says"
    pairs = [(v, d, axes) for v, spec in zip(eqn.outvars, specs) for d, axes in enumerate(spec) if axes]
    return sum(layouts.offer(v, d, axes, reason) for v, d, axes in pairs) > 0


def partitioned(parts: Any, eqn: Eqn) -> None:
    """The call as the user's function of one device, on operands laid out as `partition` asks."""
    own: _Partitioning = eqn.params["partitioning"]
    mesh, count = parts.mesh, eqn.params["num_consts"]
    given = own.arguments(eqn, mesh, [parts.get(v)[1] for v in eqn.invars])
    wanted = own.results(eqn, mesh, [parts.layouts.of(v) for v in eqn.outvars])
    assert own.own.partition is not None
    _, function, result_shardings, arg_shardings = own.own.partition(*own.static, mesh, given, wanted)
    operands, avals = eqn.invars[count:], [v.aval for v in eqn.invars[count:]]
    in_specs = own.specs(arg_shardings, own.call.in_tree, avals, mesh, "arguments")
    out_specs = own.specs(result_shardings, own.call.out_tree, [v.aval for v in eqn.outvars], mesh, "results")
    values = [parts.taken(v, s, "custom_partitioning takes it so") for v, s in zip(operands, in_specs)]
    leaves = tree.leaves(function(*tree.unflatten(own.call.in_tree, values)))
    results = leaf_values(leaves, f"the result of {own.call.name} on one device")
    local = [parts.part(v, s) for v, s in zip(eqn.outvars, out_specs)]
    found = [type_of(r) for r in results]
    if [(a.shape, a.dtype) for a in found] != [(a.shape, a.dtype) for a in local]:
        raise ValueError(
            f"Mismatch in result shapes. {own.call.name} on one device returns {', '.join(map(str, found))}, and the parts that its partition says are "
            f"{', '.join(map(str, local))} ({eqn.source.short})"
        )
    for var, value, spec in zip(eqn.outvars, results, out_specs):
        parts.put(var, value, spec)
