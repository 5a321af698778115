"""Rows of updates combined into rows of an operand, at targets that may repeat: what scatters are made of on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import FLOATS, ArrayType, bfloat16
from fuser.ops import elementwise as el
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p, reshaped
from fuser.trace.batch import moved, size_of

WORD, INDEX = np.dtype("uint32"), np.dtype("int32")
# What a negative index is: no row; the row so far from the end; the first row.
NEGATIVE = ("beyond", "from the end", "first")
COMBINED: dict[str, np.ufunc | None] = {
    "replace": None,
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _type(
    operand: ArrayType,
    targets: ArrayType,
    updates: ArrayType,
    reduction: str,
    unique: bool,
    negative: str = "beyond",
    in_place: bool = False,
) -> ArrayType:
    rows = operand.ndim == updates.ndim == 2 and operand.shape[1] == updates.shape[1]
    if (
        not rows
        or updates.shape[0] not in (1, targets.size)
        or targets.ndim != 1
        or targets.dtype not in (WORD, INDEX)
        or (targets.dtype == WORD and negative != "beyond")
        or negative not in NEGATIVE
        or operand.dtype != updates.dtype
        or reduction not in COMBINED
    ):
        raise TypeRuleError(
            f"scatter_rows takes rows, u32 or i32 targets and one row or as many as targets of the same dtype, got {operand}, {targets}, {updates}"
        )
    return ArrayType(operand.shape, operand.dtype, operand.weak_type)


def _eval(
    operand: np.ndarray,
    targets: np.ndarray,
    updates: np.ndarray,
    reduction: str,
    unique: bool,
    negative: str = "beyond",
    in_place: bool = False,
) -> np.ndarray:
    accumulate = COMBINED[reduction]
    narrow = operand.dtype in (FLOATS[0], bfloat16) and accumulate is not None
    out = np.array(operand, np.float32 if narrow else operand.dtype)
    if negative != "beyond":
        targets = np.where(targets < 0, targets + len(operand) if negative == "from the end" else 0, targets)
    inside = (targets >= 0) & (targets < len(operand))
    where, values = targets[inside], np.broadcast_to(updates, (len(targets), out.shape[1]))[inside].astype(out.dtype)
    if accumulate is None:
        out[where] = values  # the last of several updates of one row stays
    else:
        accumulate.at(out, where, values)
    return S.convert(out, operand.dtype)


def _batch(operands: Any, dims: Any, **params: Any) -> tuple[Any, int]:
    """The rows of all members of the batch as those of one operand, and targets that count on from member to member."""
    size = size_of(operands, dims)
    operand, targets, updates = (moved(x, d, 0, size) for x, d in zip(operands, dims))
    rows, width = operand.shape[1:]
    params.pop("in_place", None)
    targets = _words(targets, rows, params.pop("negative", "beyond"))
    shape, count = targets.shape, targets.shape[1]
    if updates.shape[1] != count:
        updates = broadcast_in_dim_p.bind(updates, shape=(size, count, width), broadcast_dimensions=(0, 1, 2))
    filled = lambda value: broadcast_in_dim_p.bind(np.asarray(value, WORD), shape=shape, broadcast_dimensions=())
    first = el.mul_p.bind(iota_p.bind(dtype=WORD, shape=shape, dimension=0), filled(rows))
    inside = el.lt_p.bind(targets, filled(rows))
    targets = el.select_n_p.bind(inside, filled(rows * size), el.add_p.bind(targets, first))
    joined = scatter_rows_p.bind(
        reshaped(operand, (size * rows, width)),
        reshaped(targets, (size * count,)),
        reshaped(updates, (size * count, width)),
        **params,
    )
    return reshaped(joined, (size, rows, width)), 0


def _words(targets: Any, rows: int, negative: str) -> Any:
    """Targets as words."""
    if targets.dtype == WORD:
        return targets
    filled = lambda value: broadcast_in_dim_p.bind(
        np.asarray(value, INDEX), shape=targets.shape, broadcast_dimensions=()
    )
    if negative == "from the end":
        wrapped = el.add_p.bind(targets, filled(rows))
        targets = el.select_n_p.bind(el.lt_p.bind(targets, filled(0)), targets, wrapped)
    if negative == "first":
        targets = el.max_p.bind(targets, filled(0))
    return convert_element_type_p.bind(targets, new_dtype=WORD, weak_type=False)


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    kinds = [(d, r) for d in ("float32", "int64", "float16", "uint8") for r in COMBINED]
    shapes = [(7, 40, 1), (3, 2500, 1), (50, 30, 5), (4, 300, 70), (9, 5, 1)]
    for number, (dtype, reduction) in enumerate(kinds):
        rows, count, width = shapes[number % len(shapes)]
        x, u = ((1 + 0.01 * rng.normal(size=(n, width))).astype(dtype) for n in (rows, count))
        yield (x, rng.integers(0, rows + 2, count).astype(WORD), u), {"reduction": reduction, "unique": False}
    for reduction in ("replace", "sum", "min", "max"):  # one row for all targets
        x, u = (rng.normal(size=(n, 3)).astype(np.float32) for n in (10, 1))
        yield (x, rng.integers(0, 12, 700).astype(WORD), u), {"reduction": reduction, "unique": False}
    for number, negative in enumerate(("beyond", "from the end", "first") * 2):  # indices as they are
        x, u = (rng.normal(size=(n, 1 + 2 * (number > 2))).astype(np.float32) for n in (10, 1 if number > 2 else 700))
        indices = rng.integers(-12, 12, 700).astype(INDEX)
        for reduction in ("sum", "replace", "prod")[: 3 - number // 3]:
            yield (x, indices, u), {"reduction": reduction, "unique": False, "negative": negative}
    targets = rng.permutation(12)[:8].astype(WORD)
    for reduction in COMBINED:
        x, u = (rng.normal(size=(n, 3)).astype(np.float32) for n in (10, 8))
        yield (x, targets, u), {"reduction": reduction, "unique": True}
    for reduction, count in (("sum", 3), ("replace", 5), ("max", 1)):  # a few of many rows
        x, u = (rng.normal(size=(n, 4)).astype(np.float32) for n in (2500, count))
        indices = rng.integers(0, 2500, 5).astype(INDEX)[: max(count, 4)]
        if count in (1, len(indices)):
            yield (x, indices, u), {"reduction": reduction, "unique": False, "negative": "beyond", "in_place": True}


# Each row of updates, or the one for all targets, goes to the row of the operand that its target says, by the reduction, or to none where that is beyond the end;
# with `unique` no two that count go to one row; `in_place`: the result may well lie in the operand's memory, so that other rows cost nothing.
scatter_rows_p: Primitive = register(
    Primitive("scatter_rows", Fusion.LIBRARY, type=_type, eval=_eval, batch=_batch, samples=_samples)
)
