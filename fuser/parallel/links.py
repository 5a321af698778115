"""Which dimensions of an equation's operands and results can be split together: its rule of sharding, from its index maps.

The rule of a movement is found by lowering it once for a result whose dimension is split into so many parts, with the part's
number as an unknown: where the unknown moves the index into an operand by exactly that operand's part, and occurs nowhere
else, each device finds what it needs in its own part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ir.index import ZERO, Affine, Axis, Computed, Div
from fuser.ir.primitive import Fusion, Movement
from fuser.ir.scalar import Scalar
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.custom_partitioning import custom_partitioning_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p, reshape_p, slice_p
from fuser.parallel.indexed_links import gather_links, scatter_links
from fuser.parallel.library_links import library_links, local_groups
from fuser.parallel.owners import SCATTERS, owned
from fuser.parallel.uneven import part_size

Dims = tuple[tuple[int, int], ...]  # (number of an operand or result, dimension)


@dataclass(frozen=True)
class Link:
    """Dimensions that are split alike. With `reduction` they end in the operands: each device has a share of the results, which
    are to be reduced so over the devices. `indexed` is the dimension of the first operand at whose computed places each device
    reads or writes in its own part (owners.py)."""

    operands: Dims
    results: Dims = ()
    reduction: str | None = None
    indexed: int | None = None


@functools.lru_cache(maxsize=4096)
def links(eqn: Eqn, parts: int) -> tuple[Link, ...]:
    """The dimensions that can be split into `parts`. What is in no link is taken whole by every device."""
    found = _RULES.get(eqn.primitive.fusion, _nothing)(eqn, parts)
    owners = (Link(*each) for each in owned(eqn, parts))
    return tuple(link for link in (*found, *owners) if _fits(eqn, link, parts))


def _fits(eqn: Eqn, link: Link, parts: int) -> bool:
    """Whether the parts divide all of a link's dimensions, or all have the same extent and the same padding."""
    extents = [eqn.invars[o].aval.shape[d] for o, d in link.operands]
    extents += [eqn.outvars[r].aval.shape[d] for r, d in link.results]
    if not all(extents):
        return False
    return all(e % parts == 0 for e in extents) or (len(set(extents)) == 1 and _takes_padding(eqn))


def _takes_padding(eqn: Eqn) -> bool:
    """Whether padding in operands only makes padding in results; as indices it might be out of bounds."""
    return eqn.primitive.fusion is not Fusion.LIBRARY and eqn.primitive.movement is not Movement.GATHER


def _nothing(eqn: Eqn, parts: int) -> Iterator[Link]:
    return iter(())


def _elementwise(eqn: Eqn, parts: int) -> Iterator[Link]:
    shape = eqn.outvars[0].aval.shape
    if any(v.aval.shape not in ((), shape) for v in (*eqn.invars, *eqn.outvars)):
        return
    for d in range(len(shape)):
        operands = tuple((n, d) for n, v in enumerate(eqn.invars) if v.aval.shape)
        yield Link(operands, tuple((n, d) for n in range(len(eqn.outvars))))


_REDUCTIONS = {"sum": "sum", "max": "max", "min": "min", "and": "min", "or": "max"}


def _reduce(eqn: Eqn, parts: int) -> Iterator[Link]:
    reduction, axes = eqn.primitive.rule("lower")(**eqn.params)
    kept = [d for d in range(eqn.invars[0].aval.ndim) if d not in axes]
    for result, d in enumerate(kept):
        yield Link(_all(eqn.invars, d), _all(eqn.outvars, result))
    if reduction in _REDUCTIONS and len(eqn.outvars) == 1:
        for d in axes:
            yield Link(_all(eqn.invars, d), reduction=_REDUCTIONS[reduction])


def _all(values: Any, dim: int) -> Dims:
    return tuple((n, dim) for n in range(len(values)))


def _scan(eqn: Eqn, parts: int) -> Iterator[Link]:
    _, axis, *_ = eqn.primitive.rule("lower")(**eqn.params)
    for d in range(eqn.outvars[0].aval.ndim):
        if d != axis:
            yield Link(_all(eqn.invars, d), _all(eqn.outvars, d))


def _dot(eqn: Eqn, parts: int) -> Iterator[Link]:
    (contracted, batch) = eqn.params["dimension_numbers"]
    count = len(batch[0])
    for n, (a, b) in enumerate(zip(*batch)):
        yield Link(((0, a), (1, b)), ((0, n),))
    for a, b in zip(*contracted):
        yield Link(((0, a), (1, b)), reduction="sum")
    place = count
    for number in (0, 1):
        for d in range(eqn.invars[number].aval.ndim):
            if d not in contracted[number] and d not in batch[number]:
                yield Link(((number, d),), ((0, place),))
                place += 1


def _movement(eqn: Eqn, parts: int) -> Iterator[Link]:
    if eqn.primitive.movement is Movement.GATHER and "slice_sizes" in eqn.params and len(eqn.invars) == 2:
        yield from (Link(*found) for found in gather_links(eqn))
        return
    shape = eqn.outvars[0].aval.shape
    for d, extent in enumerate(shape):
        alike = all(v.aval.shape[d : d + 1] == (extent,) for v in eqn.outvars)
        if alike and extent:
            operands = _read_in_parts(eqn, d, parts)
            if operands is not None:
                yield Link(operands, _all(eqn.outvars, d))


def _read_in_parts(eqn: Eqn, dim: int, parts: int) -> Dims | None:
    """The operands' dimensions that are split with the results' dimension; None where a part needs more than its own."""
    moved: dict[int, dict[int, int]] = {}
    part, extent = Axis(parts), eqn.outvars[0].aval.shape[dim]
    fine = True

    def read(number: int, index: tuple[Affine, ...], mask: Scalar | None = None) -> Scalar:
        nonlocal fine
        aval = eqn.invars[number].aval
        found: dict[int, int] = {}
        for d, place in enumerate(index):
            if _inside(place, part):
                fine = False
            elif step := place.coefficient(part):
                own = aval.shape[d]
                fine = fine and (step * parts == own or (own == extent and step == part_size(own, parts)))
                found[d] = step
        fine = fine and len(found) <= 1 and moved.setdefault(number, found) == found and not _depends(mask, part)
        return Scalar("element", (), aval.dtype, number)

    for output, var in enumerate(eqn.outvars):
        index = []
        for d, size in enumerate(var.aval.shape):
            local = part_size(size, parts) if d == dim else size
            place = Affine.of(Axis(local)) if local > 1 else ZERO
            index.append(place + Affine.of(part) * local if d == dim else place)
        extra = {"output": output} if eqn.primitive.multiple_results else {}
        value = eqn.primitive.rule("lower")(read, tuple(index), *(v.aval for v in eqn.invars), **eqn.params, **extra)
        fine = fine and not _depends(value, part)
    return tuple((n, d) for n, found in moved.items() for d in found) if fine else None


def _inside(place: Affine, part: Axis) -> bool:
    """Whether the part's number takes part in a division or a computed position."""
    for atom in place.atoms:
        if isinstance(atom, Div) and (atom.base.coefficient(part) or _inside(atom.base, part)):
            return True
        if isinstance(atom, Computed) and _depends(atom.value, part):
            return True
    return False


def _depends(value: Any, part: Axis) -> bool:
    """Whether an expression depends on the part's number."""
    if not isinstance(value, Scalar):
        return False
    seen, stack = set[int](), [value]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node.attr, Affine) and (node.attr.coefficient(part) or _inside(node.attr, part)):
            return True
        stack.extend(node.args)
    return False


def _library(eqn: Eqn, parts: int) -> Iterator[Link]:
    """Of what runs in libraries: collectives keep dimensions, and scatters write each device's own updates."""
    if eqn.primitive.collect is not None and eqn.invars:
        for d, result in enumerate(_kept(eqn)):
            if result is not None:
                yield Link(((0, d),), ((0, result),))
    elif eqn.primitive in SCATTERS:
        yield from (Link(*found) for found in scatter_links(eqn))
    else:
        yield from (Link(*found) for found in library_links(eqn, parts))


def _kept(eqn: Eqn) -> list[int | None]:
    """For each dimension of a collective's operand which one of its result it is; None where it is exchanged."""
    rank, params = eqn.invars[0].aval.ndim, eqn.params
    gone = params.get("split_axis", params.get("axis") if eqn.outvars[0].aval.ndim < rank else None)
    new = params.get("concat_axis", params.get("axis") if eqn.outvars[0].aval.ndim > rank else None)
    rest = [d for d in range(rank) if d != gone]
    place = {d: n + (new is not None and n >= new) for n, d in enumerate(rest)}
    return [place.get(d) for d in range(rank)]


def _control(eqn: Eqn, parts: int) -> Iterator[Link]:
    """A carry comes out as it goes in; a call whose division is the user's has a rule of its own."""
    if eqn.primitive is custom_partitioning_p:
        yield from _ruled(eqn, parts)
        return
    params = eqn.params
    first = (
        params["num_consts"]
        if "num_consts" in params
        else params.get("cond_nconsts", 0) + params.get("body_nconsts", 0)
    )
    count = params["num_carry"] if "num_carry" in params else len(eqn.outvars) if "body_nconsts" in params else 0
    for n in range(count):
        for d in range(eqn.outvars[n].aval.ndim):
            yield Link(((first + n, d),), ((n, d),))


def _ruled(eqn: Eqn, parts: int) -> Iterator[Link]:
    """What the sharding rule of a custom_partitioning lets be split alike."""
    count, rule = eqn.params["num_consts"], eqn.params["partitioning"].rule(eqn)
    if rule is not None:
        shapes = [[v.aval.shape for v in values] for values in (eqn.invars[count:], eqn.outvars)]
        for operands, results in rule.together(*shapes, parts):
            yield Link(tuple((n + count, d) for n, d in operands), results)


_RULES = {
    Fusion.CONTROL: _control,
    Fusion.LIBRARY: _library,
    Fusion.ELEMENTWISE: _elementwise,
    Fusion.MOVEMENT: _movement,
    Fusion.REDUCE: _reduce,
    Fusion.SCAN: _scan,
    Fusion.DOT: _dot,
}


def local_params(eqn: Eqn, operands: list[tuple[int, ...]], results: list[tuple[int, ...]]) -> dict[str, Any]:
    """The equation's params for operands and results of these shapes of parts."""
    params = dict(eqn.params)
    if eqn.primitive is broadcast_in_dim_p or eqn.primitive is iota_p:
        params["shape"] = results[0]
    elif eqn.primitive is reshape_p:
        params["new_sizes"] = results[0]
    elif eqn.primitive is slice_p:
        whole = eqn.invars[0].aval.shape
        limits = zip(params["limit_indices"], operands[0], whole)
        params["limit_indices"] = tuple(limit if part == extent else part for limit, part, extent in limits)
    elif eqn.primitive is conv_general_dilated_p:
        params |= local_groups(eqn, operands[0])
    elif "slice_sizes" in params:
        whole = eqn.invars[0].aval.shape
        sizes = zip(params["slice_sizes"], operands[0], whole)
        params["slice_sizes"] = tuple(part if size == extent else size for size, part, extent in sizes)
    return params
