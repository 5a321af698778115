"""Explicit sharding: how results lie whose operands' types say how those lie along the Explicit axes of a mesh.

Split dimensions go along the links of an equation, the same by which programs are divided. Where no one layout follows, that
is an error with the way out; within `resolving()` it is left to the compiler: in functions that are told how their result
is to lie (`out_sharding`), and for cotangents, which lie as their primals do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from fuser.config import config
from fuser.errors import ShardingTypeError, UnsupportedError
from fuser.ir.graph import Eqn, Var, graphs_in
from fuser.ir.primitive import Fusion, Movement, Primitive
from fuser.ir.references import AbstractRef
from fuser.ir.types import ArrayType, layout_rule
from fuser.ops.callback import debug_callback_p, io_callback_p
from fuser.ops.elementwise import add_any_p, add_p, div_p, mul_p, select_n_p, sub_p
from fuser.ops.movement import reshape_p, split_p
from fuser.ops.scatter import scatter_add_p
from fuser.ops.sharding import inspect_sharding_p, sharding_constraint_p
from fuser.ops.unreduced import PLAIN
from fuser.parallel.links import SCATTERS, Link, links
from fuser.parallel.mesh import AxisType, extent, get_abstract_mesh
from fuser.parallel.sharding import NamedSharding, unchecked
from fuser.parallel.spec import Axes, PartitionSpec, names
from fuser.trace.batch import axis_names, manual_axes
from fuser.trace.core import type_of
from fuser.trace.explicit import Openness, openness, rules

FREE = PartitionSpec.UNCONSTRAINED
_STAY = (Movement.SLICE, Movement.UPDATE, Movement.PAD, Movement.JOIN, Movement.GATHER)


def typed_results(primitive: Primitive, result: Any, avals: tuple[ArrayType, ...], params: dict[str, Any]) -> Any:
    """The primitive's output type with how it lies; graphs among the params and constraints say it themselves."""
    if primitive is sharding_constraint_p or primitive in PLAIN or any(True for _ in graphs_in(params)):
        return result
    outs = result if primitive.multiple_results else (result,)
    if any(type(a) is AbstractRef for a in (*avals, *outs)):
        return result  # what reads and writes a Ref has the Ref's layout
    eqn = Eqn(primitive, tuple(Var(_seen(a)) for a in avals), params, tuple(map(Var, outs)))
    if all(v.aval.explicit is None for v in eqn.invars):
        return result
    _check_context(eqn)
    typed = tuple(_with(o, s) for o, s in zip(outs, _Typing(eqn).shardings()))
    return typed if primitive.multiple_results else typed[0]


def _with(aval: ArrayType, sharding: Any) -> ArrayType:
    return ArrayType(aval.shape, aval.dtype, aval.weak_type, aval.vma, sharding)


def _check_context(eqn: Eqn) -> None:
    """ValueError where the mesh that `set_mesh` or `use_abstract_mesh` has brought into scope is not that of the operands."""
    if openness() is not Openness.STRICT or not config.meshes or manual_axes():
        return
    scope, follows = config.meshes[-1]
    context = scope.abstract_mesh
    found = next(v.aval.explicit.mesh.abstract_mesh for v in eqn.invars if v.aval.explicit is not None)
    if (follows or scope is context) and not context.empty and context != found:
        raise ValueError(
            f"For primitive {eqn.primitive.name}, context mesh {context} should match the aval mesh {found} of "
            f"{', '.join(shown(v.aval) for v in eqn.invars)}; reshard them to the mesh in scope, or use auto_axes or explicit_axes"
        )


def _seen(aval: ArrayType) -> ArrayType:
    """The type within a shard_map of a value from outside of it: it says nothing of the axes that are divided by hand."""
    manual, own = manual_axes(), aval.explicit
    if not manual or own is None or manual <= set(own.mesh.manual_axes):
        return aval
    return _with(aval, _without(own, manual, own.mesh, {}))


def _without(own: NamedSharding, manual: Collection[Any], mesh: Any, sets: dict[str, Any]) -> NamedSharding | None:
    """What a type says of one device's part: a layout without the axes that are divided by hand; None where that is nothing."""
    mesh = mesh.update_axis_types(dict.fromkeys((n for n in mesh.axis_names if n in manual), AxisType.Manual))
    if not mesh.explicit_axes and not any(sets.values()):
        return None
    entries = [e if e is FREE else tuple(n for n in names(e) if n not in manual) or None for e in own.spec.partitions]
    return unchecked(mesh, PartitionSpec(*entries, **sets))


def _mesh(primitive: Primitive, avals: Sequence[ArrayType]) -> Any:
    """The one mesh of the operands."""
    meshes = [a.explicit.mesh for a in avals if a.explicit is not None]
    for other in meshes[1:]:
        if other != meshes[0]:
            raise ShardingTypeError(
                f"Mesh for all inputs should be equal. Got one mesh: {meshes[0]} and another mesh: {other}, in {primitive.name}; "
                "reshard one of them"
            )
    return meshes[0]


class _Typing:
    """One equation: which axes each dimension of its results has so far."""

    def __init__(self, eqn: Eqn) -> None:
        self.eqn = eqn
        self.avals = [v.aval for v in eqn.invars]
        self.mesh = _mesh(eqn.primitive, self.avals)
        self.entries: list[list[Any]] = [[None] * v.aval.ndim for v in eqn.outvars]
        self.open = any(FREE in a.explicit.spec.partitions for a in self.avals if a.explicit is not None)
        self.ended: dict[tuple[int, int], Axes] = {}  # split dimensions of operands that a reduction ends

    def shardings(self) -> list[NamedSharding | None]:
        """How each result lies; None where its type says nothing of that."""
        for number, aval in enumerate(self.avals):
            if aval.explicit is None or self.eqn.primitive in (io_callback_p, debug_callback_p, inspect_sharding_p):
                continue  # a call of the host takes whole arrays, and gives such
            if self.eqn.primitive is reshape_p and self.eqn.params.get("dimensions") is None:
                self.reshaped(aval)
                continue
            for dim, entry in enumerate(aval.explicit.spec.partitions):
                if axes := names(entry):
                    self.follow(number, dim, axes)
        self.check_contraction()
        self.check_distinct()
        if self.open:
            self.entries = [[FREE if e is None else e for e in entries] for entries in self.entries]
        unreduced, reduced = self.unreduced(), self.reduced()
        found = []
        for entries, var in zip(self.entries, self.eqn.outvars):
            used = {n for e in entries for n in names(e)} | var.aval.vma
            sets = {"unreduced": unreduced - used, "reduced": reduced - used - unreduced}
            silent = not self.mesh.explicit_axes and not any(sets.values())
            found.append(None if silent else unchecked(self.mesh, PartitionSpec(*entries, **sets)))
        return found

    def follow(self, number: int, dim: int, axes: Axes) -> None:
        """Let the axes of an operand's dimension go to the results."""
        link = self.link(number, dim, axes)
        if link is None or (openness() is Openness.STRICT and self.indexed(link)):
            self.stay(number, dim, axes)
        elif link.reduction is not None:
            self.ended[number, dim] = axes
        else:
            for result, d in link.results:
                self.put(result, d, axes)

    def indexed(self, link: Link) -> bool:
        """Whether the indices of a gather or scatter lie so and what they index does not."""
        places = {n for n, _ in link.operands}
        return (
            (self.eqn.primitive in SCATTERS or self.eqn.primitive.movement is Movement.GATHER)
            and 1 in places
            and 0 not in places
        )

    def link(self, number: int, dim: int, axes: Axes) -> Link | None:
        size = self.avals[number].shape[dim]
        parts = extent(self.mesh, axes)
        parts = size if parts == 1 else parts  # along one device, as along many
        for link in links(self.eqn, parts):
            if (number, dim) in link.operands and link.indexed is None:
                return link
        return None

    def stay(self, number: int, dim: int, axes: Axes) -> None:
        """Where no part of a result needs one part of the operand alone, a dimension that remains may lie as it did."""
        primitive, aval = self.eqn.primitive, self.avals[number]
        if primitive.fusion is Fusion.REDUCE:  # the dimension ends here
            return
        whole = all(v.aval.shape[: dim + 1] == aval.shape[: dim + 1] for v in self.eqn.outvars)
        if primitive.fusion in (Fusion.LIBRARY, Fusion.ELEMENTWISE) and whole:
            places = [(n, dim) for n in range(len(self.eqn.outvars))]
        elif primitive is split_p or primitive.movement in _STAY or primitive.movement is Movement.MOVE:
            places = [(n, dim) for n, v in enumerate(self.eqn.outvars) if v.aval.ndim == aval.ndim]
        else:
            places = []
        fits = all(self.eqn.outvars[n].aval.shape[d] % extent(self.mesh, axes) == 0 for n, d in places)
        if places and fits and (number == 0 or primitive.movement is Movement.JOIN):
            for result, d in places:
                self.put(result, d, axes)
        elif extent(self.mesh, axes) > 1:
            self.ambiguous(self.lost(number, dim, axes))

    def lost(self, number: int, dim: int, axes: Axes) -> str:
        name, aval = self.eqn.primitive.name, self.avals[number]
        if self.eqn.primitive is split_p:
            return (
                f"split on sharded dims is not supported: dimension {dim} of {shown(aval)} lies along {_listed(axes)}"
            )
        if self.eqn.primitive.fusion is Fusion.SCAN:
            return f"Input should be unsharded over the axis being reduced: {name} goes along dimension {dim} of {shown(aval)}"
        return (
            f"{name} of {', '.join(map(shown, self.avals))} gives no result that lies along {_listed(axes)}, as dimension {dim} of operand "
            f"{number} does"
        )

    def put(self, result: int, dim: int, axes: Axes) -> None:
        known = self.entries[result][dim]
        entry = axes[0] if len(axes) == 1 else axes
        if known is None:
            self.entries[result][dim] = entry
        elif known != entry and known is not FREE:
            specs = ", ".join(str(a.explicit.spec) for a in self.avals if a.explicit is not None)
            self.ambiguous(f"{self.eqn.primitive.name} got incompatible shardings for broadcasting: {specs}")
            self.entries[result][dim] = FREE

    def ambiguous(self, message: str) -> None:
        """ShardingTypeError, except where the compiler is to decide."""
        if openness() is Openness.STRICT:
            raise ShardingTypeError(
                f"{message}; reshard the operands, give `out_sharding` to a function that takes it, or use auto_axes"
            )
        self.open = True

    def check_contraction(self) -> None:
        """Both operands of a contraction split where it sums: the result could be summed whole, or left in parts."""
        if not self.ended:
            return
        self.open |= openness() is Openness.OPEN
        if self.eqn.primitive.fusion is Fusion.DOT and len({number for number, _ in self.ended}) == 2:
            specs = [self.avals[n].explicit.spec for n in (0, 1)]
            self.ambiguous(
                "Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please specify the "
                f"output sharding via the `out_sharding` parameter. Got lhs spec={specs[0]} and rhs spec={specs[1]}"
            )

    def check_distinct(self) -> None:
        """An axis can split one dimension of a result only."""
        for entries in self.entries:
            seen: set[Any] = set()
            for dim, entry in enumerate(entries):
                if seen & set(names(entry)):
                    self.ambiguous(
                        f"{self.eqn.primitive.name} operation with inputs: {', '.join(map(shown, self.avals))} produces an illegally "
                        f"sharded result: {PartitionSpec(*entries)} names an axis twice"
                    )
                    entries[dim] = FREE
                seen |= set(names(entries[dim]))

    def reshaped(self, aval: ArrayType) -> None:
        """Axes of a reshaped value: those that split the outer part of some dimensions split that of what these become."""
        shape = self.eqn.outvars[0].aval.shape
        for before, after in groups(aval.shape, shape):
            axes, fits = self.outer(aval, before, merged=sum(shape[d] != 1 for d in after) == 1)
            for d in after:
                taken = 0
                while taken < len(axes) and shape[d] % extent(self.mesh, axes[: taken + 1]) == 0:
                    taken += 1
                if taken:
                    self.put(0, d, axes[:taken])
                fits = fits and (taken == len(axes) or extent(self.mesh, axes[:taken]) == shape[d])
                axes = axes[taken:]
            if not fits or extent(self.mesh, axes) > 1:
                self.ambiguous(
                    f"reshape of {shown(aval)} to {shape} splits or merges dimensions that lie along axes of the mesh, and no "
                    "layout follows for the result. The input should be fully replicated along them"
                )

    def outer(self, aval: ArrayType, dims: Sequence[int], merged: bool) -> tuple[Axes, bool]:
        """The axes that split these dimensions together, and whether they split only the outermost part of them.

        Of dimensions that are merged into one they split that, though other parts of it, unless one that is whole stands before.
        """
        axes: Axes = ()
        full = fits = True  # whether what stands before is split into single elements
        for d in dims:
            own = names(aval.explicit.spec.partitions[d])
            fits = fits and (full or extent(self.mesh, own) == 1)
            axes += own
            full = full and (extent(self.mesh, own) == aval.shape[d] or (merged and bool(own)))
        return axes, fits

    # Sums that are not completed.

    def sets(self, what: str) -> list[frozenset[Any]]:
        return [getattr(a.explicit.spec, what) if a.explicit is not None else frozenset() for a in self.avals]

    def reduced(self) -> frozenset[Any]:
        """The axes along which a result is the same, and its cotangent a sum."""
        own = self.sets("reduced")
        together = frozenset[Any]().union(*own)
        known = [s | (a.vma & together) for s, a in zip(own, self.avals) if (a.explicit or manual_axes()) and a.shape]
        mixed = self.eqn.primitive.fusion is Fusion.ELEMENTWISE and any(s != together for s in known)
        if together and mixed and not any(self.sets("unreduced")):
            self.ambiguous(
                "Inputs cannot be replicated on the same axes that another input is reduced on. Got input types: "
                f"{', '.join(map(shown, self.avals))} and reduced spec: {set(together)}"
            )
        return together

    def unreduced(self) -> frozenset[Any]:
        """The axes along which devices have the terms of a result's sum: only of what is linear."""
        own, primitive = self.sets("unreduced"), self.eqn.primitive
        together = frozenset[Any]().union(*own)
        if not together:
            return together
        if primitive.collect is not None and together & set(axis_names(self.eqn.params)):
            raise ValueError(
                f"{primitive.name} cannot accept args which are unreduced. Got {', '.join(map(shown, self.avals))}; psum and "
                "psum_scatter complete the sum"
            )
        if primitive in (add_p, add_any_p, sub_p, select_n_p) or primitive.movement in _STAY:
            values = own[1:] if primitive is select_n_p else own[:1] if primitive.movement is Movement.SLICE else own
            if any(s != together for s in values) and openness() is Openness.STRICT:
                raise ShardingTypeError(
                    f"{primitive.name} of {', '.join(map(shown, self.avals))}: all operands should be unreduced along the same "
                    "mesh axes; reshard them"
                )
        elif primitive is scatter_add_p and own[0] == own[2] == together and not own[1]:
            pass  # a sum of sums
        elif primitive is mul_p or (primitive is div_p and not own[1]):
            others = self.sets("reduced")
            if others[0] | others[1] != together or bool(own[0]) == bool(own[1]):
                left, right = ("RHS", "LHS") if own[0] else ("LHS", "RHS")
                raise ShardingTypeError(
                    f"{left} should be reduced along the same axes {right} is unreduced on. Got "
                    f"{', '.join(map(shown, self.avals))}; reshard it with P(reduced=...)"
                )
        elif not primitive.linear and primitive.movement is None and primitive.name != "reduce_sum":
            raise UnsupportedError(
                f"unreduced rule for {primitive.name} is not implemented: it is not linear, and {', '.join(map(shown, self.avals))} "
                "is a sum of which each device has a term; reshard it first"
            )
        return together


def groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions of two shapes of one size, in the smallest runs of equal size, side by side."""
    i = j = 0
    while i < len(before) or j < len(after):
        first, second = [i] * (i < len(before)), [j] * (j < len(after))
        i, j = i + len(first), j + len(second)
        size = lambda shape, dims: math.prod(shape[d] for d in dims)
        while size(before, first) != size(after, second) or (not first and i < len(before)):
            if size(before, first) < size(after, second) and i < len(before):
                first.append(i)
                i += 1
            elif j < len(after):
                second.append(j)
                j += 1
            else:
                first.append(i)
                i += 1
        yield first, second


def shown(aval: ArrayType) -> str:
    """A type and how it lies."""
    return str(aval) if aval.explicit is None else f"{aval} as {aval.explicit.spec}"


def _listed(axes: Axes) -> str:
    return ", ".join(map(repr, axes))


# Functions that are told how their results lie, and cotangents.


def as_cotangent(cotangent: Any, aval: ArrayType) -> Any:
    """A cotangent laid out as those of values of this type are."""
    found = type_of(cotangent).explicit
    wanted = aval.explicit.cotangent()
    if found == wanted:
        return cotangent
    if manual_axes() and (type_of(cotangent).mat[1:] != (wanted.spec.unreduced, wanted.spec.reduced)):
        return cotangent
    return sharding_constraint_p.bind(cotangent, sharding=wanted)


def lying(aval: ArrayType) -> NamedSharding:
    """How values of this type lie, as far as types say it: split along Explicit axes only, over the mesh in scope where nothing is said."""
    if aval.explicit is None:
        return unchecked(get_abstract_mesh(), PartitionSpec(*[None] * aval.ndim))
    return aval.explicit.with_entries([None if e is FREE else e for e in aval.explicit.spec.partitions])


def with_split(value: Any, dim: int, mesh: Any, entry: Any) -> Any:
    """A value whose dimension `dim` lies as an entry of a spec says."""
    entries = [None] * type_of(value).ndim
    entries[dim] = entry
    return sharding_constraint_p.bind(value, sharding=unchecked(mesh, PartitionSpec(*entries)))


def with_sets(
    aval: ArrayType, dim: int | None, result: ArrayType, unreduced: frozenset[Any], reduced: frozenset[Any]
) -> NamedSharding | None:
    """How a collective's result lies, with these sets and dimension `dim` of its own or its operand's."""
    own = aval.explicit
    mesh = get_abstract_mesh() if own is None else own.mesh
    if not (unreduced or reduced) and (own is None or not mesh.explicit_axes):
        return None
    entries = [None] * aval.ndim if own is None else list(own.spec.partitions)
    if dim is not None and result.ndim > aval.ndim:
        entries.insert(dim, None)
    elif dim is not None and result.ndim < aval.ndim:
        del entries[dim]
    return unchecked(mesh, PartitionSpec(*entries, unreduced=unreduced, reduced=reduced))


def local(layout: Any, aval: ArrayType, spec: Any) -> NamedSharding | None:
    """What types say of one device's parts of a value: how they lie along the axes that a shard_map leaves to others."""
    own = aval.explicit
    if own is None:
        return None
    sets = {"unreduced": own.spec.unreduced, "reduced": own.spec.reduced} if layout.check_vma else {}
    return _without(own, manual_axes() | set(layout.manual_axes), layout.mesh.abstract_mesh, sets)


def joined(layout: Any, aval: ArrayType, spec: Any) -> NamedSharding | None:
    """How a result of a shard_map lies whose parts are put together so."""
    around, mesh, own = manual_axes() - set(layout.manual_axes), layout.mesh.abstract_mesh, aval.explicit
    mesh = mesh.update_axis_types(dict.fromkeys((n for n in mesh.axis_names if n in around), AxisType.Manual))
    if not mesh.explicit_axes:
        return None
    inner = [()] * aval.ndim if own is None else map(names, own.spec.partitions)
    entries = [(*(n for n in axes if n in mesh.explicit_axes), *rest) or None for axes, rest in zip(spec, inner)]
    sets = {} if own is None else {"unreduced": own.spec.unreduced, "reduced": own.spec.reduced}
    return unchecked(mesh, PartitionSpec(*entries, **sets))


rules.sets, rules.local, rules.joined = with_sets, local, joined
rules.results, rules.cotangent, rules.split = typed_results, as_cotangent, with_split
layout_rule[:] = [lying]
