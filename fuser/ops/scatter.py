"""Scatter and its accumulating forms: windows of updates written, or combined, at computed indices of an operand.

They run as library calls and apply updates in order, so of several that write one element the last stays. Derivatives
are those of JAX: a max or min shares its tangent equally among operand and updates that attain it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ALL_DTYPES, COMPLEX, FLOATS, INTEGERS, ArrayType, bfloat16
from fuser.ops.dimension_numbers import scatter_fault
from fuser.ops.elementwise import add_p, eq_p, select_n_p
from fuser.ops.expansions import scattering as expansion
from fuser.ops.family import linear_in, sample
from fuser.ops.indexing import (
    CASES,
    GatherScatterMode,
    ScatterDimensionNumbers,
    as_gather,
    batched_numbers,
    check_numbers,
    gather_p,
    gather_type,
    one_window_a_row,
    positions_of,
    window_sizes,
)
from fuser.ops.movement import broadcast_in_dim_p, iota_p, operand_type, reshaped
from fuser.ops.scatter_rows import COMBINED
from fuser.trace.batch import moved, size_of
from fuser.trace.core import type_of
from fuser.trace.tangent import all_zero, full, instantiate, zero_like, zeros


def _scatter_type(name: str, x: ArrayType, indices: ArrayType, updates: ArrayType, dimension_numbers: Any) -> ArrayType:
    fault = scatter_fault(x, indices, updates, dimension_numbers)
    if fault:
        raise TypeRuleError(f"{fault} In {name} of {updates} into {x} by {indices}")
    check_numbers(name, x, indices, as_gather(dimension_numbers))
    if x.dtype != updates.dtype:
        raise TypeRuleError(
            f"{name} needs an operand and updates of one dtype, got {x} and {updates}; convert one of them first"
        )
    return ArrayType(x.shape, x.dtype, x.weak_type and updates.weak_type)


def _scatter_eval(
    accumulate: np.ufunc | None,
    operand: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    numbers: Any,
    mode: Any,
    wraps: tuple[int, ...] = (),
) -> np.ndarray:
    if wraps:  # what is added to negative components of a start, where the partition has left that to the scatter
        indices = np.where(indices < 0, indices + np.asarray(wraps, indices.dtype), indices)
    narrow = operand.dtype in (FLOATS[0], bfloat16) and accumulate is not None
    out = np.array(operand, np.float32 if narrow else operand.dtype, order="C")  # its flat view is written to
    if updates.size == 0 or operand.size == 0:
        return out.astype(operand.dtype)
    clip = GatherScatterMode.from_any(mode) is GatherScatterMode.CLIP
    sizes = window_sizes(operand, updates, numbers)
    positions, inside = positions_of(operand, indices, as_gather(numbers), sizes, updates.shape, clip)
    flat = np.zeros((1,) * updates.ndim, np.int64)
    for position, extent in zip(positions, operand.shape):
        flat = flat * extent + position
    flat = np.broadcast_to(flat, updates.shape)
    if inside is not None and not inside.all():
        chosen = np.broadcast_to(inside, updates.shape)
        flat, updates = flat[chosen], updates[chosen]
    values = updates.reshape(-1).astype(out.dtype)
    if accumulate is None:
        out.reshape(-1)[flat.reshape(-1)] = values  # the last of several updates of one element stays
    else:
        accumulate.at(out.reshape(-1), flat.reshape(-1), values)
    return S.convert(out, operand.dtype)


def _read(x: Any, indices: Any, updates: Any, params: dict[str, Any]) -> Any:
    """The gather of the windows that a scatter with these params writes; 0 where they are out of bounds."""
    numbers = params["dimension_numbers"]
    return gather_p.bind(
        x,
        indices,
        dimension_numbers=as_gather(numbers),
        slice_sizes=tuple(window_sizes(x, updates, numbers)),
        indices_are_sorted=params["indices_are_sorted"],
        unique_indices=params["unique_indices"],
        mode=params["mode"],
        fill_value=0,
    )


def _distinct(indices: Any, params: dict[str, Any]) -> bool:
    """Whether no two updates are for one element."""
    return params["unique_indices"] or one_window_a_row(as_gather(params["dimension_numbers"]), indices.shape)


def _filled(x: Any, value: Any) -> Any:
    """An array like `x` with one value everywhere."""
    return full(type_of(x).update(weak_type=False), value)


def _zero(x: Any) -> Any:
    return full(type_of(x).update(shape=(), weak_type=False), 0)


# Derivatives: scatter writes, scatter-add is linear, scatter-mul is linear in each operand, max and min choose.


def _scatter_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    """The tangents of what stays: where updates meet, those whose number a scatter of numbers leaves."""
    operand, indices, updates = primals
    out = scatter_p.bind(*primals, **params)
    if all_zero(tangents):
        return out, zero_like(out)
    t, _, t_updates = (instantiate(v) if n != 1 else None for n, v in enumerate(tangents))
    if _distinct(indices, params):
        return out, scatter_p.bind(t, indices, t_updates, **{**params, "unique_indices": True})
    windows = params["dimension_numbers"].update_window_dims
    shape = tuple(1 if d in windows else e for d, e in enumerate(updates.shape))
    count = math.prod(shape)
    integer = ArrayType((), np.dtype("int32" if count < 2**31 else "int64"))
    line = add_p.bind(iota_p.bind(dtype=integer.dtype, shape=(count,), dimension=0), full(integer, 1))
    numbers = broadcast_in_dim_p.bind(
        reshaped(line, shape), shape=updates.shape, broadcast_dimensions=tuple(range(updates.ndim))
    )
    winners = scatter_p.bind(full(integer.update(shape=operand.shape), 0), indices, numbers, **params)
    untouched = eq_p.bind(winners, full(integer, 0))
    stays = eq_p.bind(numbers, _read(winners, indices, updates, params))
    kept = select_n_p.bind(untouched, _zero(t), t)
    return out, scatter_add_p.bind(kept, indices, select_n_p.bind(stays, _zero(t), t_updates), **params)


def _scatter_transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, None, Any]:
    if not _distinct(indices, params):
        raise NotImplementedError(
            "the transpose of scatter needs indices that are known to be distinct; pass unique_indices=True"
        )
    aval = operand_type(updates)
    cleared = scatter_p.bind(ct, indices, zeros(aval), **params) if linear_in(operand) else None
    return cleared, None, _read(ct, indices, aval, params) if linear_in(updates) else None


def _add_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    out = scatter_add_p.bind(*primals, **params)
    if all_zero(tangents):
        return out, zero_like(out)
    return out, scatter_add_p.bind(instantiate(tangents[0]), primals[1], instantiate(tangents[2]), **params)


def _add_transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, None, Any]:
    read = _read(ct, indices, updates.aval, params) if linear_in(updates) else None
    return ct if linear_in(operand) else None, None, read


def _mul_jvp_updates(t: Any, x: Any, indices: Any, updates: Any, out: Any, **params: Any) -> Any:
    _require_distinct(indices, params)
    return x * scatter_add_p.bind(zeros(type_of(x).update(weak_type=False)), indices, t, **params)


def _mul_transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, None, Any]:
    if linear_in(operand):
        return scatter_mul_p.bind(ct, indices, updates, **params), None, None
    _require_distinct(indices, params)
    return None, None, _read(ct * operand, indices, updates.aval, params)


def _require_distinct(indices: Any, params: dict[str, Any]) -> None:
    if not _distinct(indices, params):
        raise NotImplementedError(
            "the derivative of scatter-mul by its updates needs indices that are known to be distinct; "
            "pass unique_indices=True"
        )


def _extreme_jvp(primitive_of: Any) -> Any:
    """The rule of scatter-max or scatter-min: an element's tangent is the mean of those that attain the extreme."""

    def rule(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        operand, indices, updates = primals
        out = primitive_of().bind(*primals, **params)
        if all_zero(tangents):
            return out, zero_like(out)
        t, t_updates = instantiate(tangents[0]), instantiate(tangents[2])
        one, none = _filled(updates, 1), _filled(updates, 0)
        reached = _read(out, indices, updates, params)
        wins = eq_p.bind(updates, reached)
        retained = eq_p.bind(_read(operand, indices, updates, params), reached)

        def count(values: Any) -> Any:
            added = scatter_add_p.bind(zeros(type_of(operand).update(weak_type=False)), indices, values, **params)
            return _read(added, indices, updates, params)

        winners = count(select_n_p.bind(wins, none, one))
        share = one / select_n_p.bind(retained, winners, winners + one)
        from_operand = (select_n_p.bind(retained, none, share) - one) / count(one)
        change = _read(t, indices, updates, params) * from_operand + t_updates * select_n_p.bind(wins, none, share)
        return out, scatter_add_p.bind(t, indices, change, **params)

    return rule


def _batch(primitive: Primitive) -> Any:
    """The batch rule of a scatter: everything but the indices is repeated where it is not batched."""

    def rule(operands: Any, dims: Any, dimension_numbers: Any, **params: Any) -> tuple[Any, int]:
        size = size_of(operands, dims)
        operand, updates = (moved(operands[n], dims[n], 0, size) for n in (0, 2))
        numbers = batched_numbers(dimension_numbers, True, dims[1] is not None)
        indices = moved(operands[1], dims[1], 0)
        return primitive.bind(operand, indices, updates, dimension_numbers=numbers, **params), 0

    return rule


def _scatter(name: str, reduction: str, dtypes: Sequence[np.dtype], jvp: Any, transpose: Any = None) -> Primitive:
    """A primitive that writes (or combines) windows of updates at computed indices, in the order given."""
    accumulate = COMBINED[reduction]

    def infer(x: ArrayType, indices: ArrayType, updates: ArrayType, dimension_numbers: Any, **params: Any) -> ArrayType:
        return _scatter_type(name, x, indices, updates, dimension_numbers)

    def evaluate(
        operand: np.ndarray,
        indices: np.ndarray,
        updates: np.ndarray,
        dimension_numbers: Any,
        mode: Any = None,
        wraps: tuple[int, ...] = (),
        **params: Any,
    ) -> np.ndarray:
        return _scatter_eval(accumulate, operand, indices, updates, dimension_numbers, mode, wraps)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for number, (shape, indices, numbers, sizes) in enumerate(CASES * 2):
            dtype = dtypes[number % len(dtypes)]
            aval = gather_type(
                ArrayType(shape, dtype),
                ArrayType(indices, np.dtype("int32")),
                dimension_numbers=numbers,
                slice_sizes=sizes,
            )
            params = {
                "dimension_numbers": ScatterDimensionNumbers(*numbers),
                "indices_are_sorted": False,
                "unique_indices": False,
                "mode": list(GatherScatterMode)[number % 3],
                "update_jaxpr": None,
                "update_consts": (),
            }
            places = rng.integers(-2, 9, indices).astype(np.int32)
            yield (sample(rng, shape, dtype), places, sample(rng, aval.shape, dtype)), params

    primitive = Primitive(
        name,
        Fusion.LIBRARY,
        type=infer,
        eval=evaluate,
        jvp=jvp,
        transpose=transpose,
        samples=samples,
        expand=expansion.scatter(reduction),
    )
    primitive.batch = _batch(primitive)
    return register(primitive)


_ANY = (*INTEGERS, *FLOATS, *COMPLEX)
scatter_p: Primitive = _scatter("scatter", "replace", ALL_DTYPES, _scatter_jvp, _scatter_transpose)
scatter_add_p: Primitive = _scatter("scatter-add", "sum", _ANY, _add_jvp, _add_transpose)
scatter_mul_p: Primitive = _scatter(
    "scatter-mul",
    "prod",
    _ANY,
    (
        lambda t, x, indices, updates, out, **params: scatter_mul_p.bind(t, indices, updates, **params),
        None,
        _mul_jvp_updates,
    ),
    _mul_transpose,
)
scatter_min_p: Primitive = _scatter("scatter-min", "min", _ANY, _extreme_jvp(lambda: scatter_min_p))
scatter_max_p: Primitive = _scatter("scatter-max", "max", _ANY, _extreme_jvp(lambda: scatter_max_p))
SCATTERS = (scatter_p, scatter_add_p, scatter_mul_p, scatter_min_p, scatter_max_p)
