"""Collectives and casts between what types say of a value along the axes of a mesh: unreduced, reduced, varying or the same for all.

An unreduced value is a sum of which each device has a term. A reduced one is the same for all devices, and its cotangent is
unreduced. Each primitive here is another one's transpose:

    unreduced_psum            unreduced -> the same     preduced             the same -> reduced, computes nothing
    unreduced_reduce_scatter  unreduced -> varying      all_gather_reduced   varying -> reduced
    vary_unreduced_cast       varying -> unreduced      reduced_vary_cast    reduced -> varying, neither computes anything

`all_gather_invariant` is an all_gather whose result is known to be the same for all. A device's program has the collectives
of `PLAIN` in their places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.ops import collective as C
from fuser.ops.collective import Axes, collective
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.movement import squeeze_p
from fuser.runtime.array import Array
from fuser.trace.batch import axis_names, checked_axes
from fuser.trace.explicit import rules
from fuser.trace.hoisting import number

TypeRule = Callable[..., ArrayType]
PLAIN: dict[
    Primitive, Primitive | None
] = {}  # what each of them is where types do not matter; None for what computes nothing


def _typed(base: TypeRule, leaves: str | None, enters: str | None) -> TypeRule:
    """The type rule of `base` with the collective's axes taken out of one set of the type and put into another."""

    def rule(x: ArrayType, **params: Any) -> ArrayType:
        axes, result = frozenset(axis_names(params)), base(x, **params)
        sets = {name: getattr(x.mat, name) for name in ("unreduced", "reduced")}
        if leaves is not None:
            sets[leaves] -= axes
        if enters is not None:
            sets[enters] |= axes
        return ArrayType(result.shape, x.dtype, x.weak_type, x.vma, rules.sets(x, params.get("axis"), result, **sets))

    return rule


def _like(
    plain: Primitive,
    name: str,
    varying: Callable[..., Axes],
    transpose: Callable[..., Any],
    leaves: str | None = None,
    enters: str | None = None,
) -> Primitive:
    """A primitive that does as `plain` does, with other types."""
    counted = ("axis",) if plain in (C.all_gather_p, C.psum_scatter_p) else ()
    primitive: Primitive = collective(
        name,
        type=_typed(plain.rule("type"), leaves, enters),
        eval=plain.rule("eval"),
        sends=plain.sends,
        rounds=plain.rounds,
        collect=plain.rule("collect"),
        varying=varying,
        linear=True,
        batch=C.shifted(lambda: primitive, *counted) if counted else C.passed(lambda: primitive),
        transpose=transpose,
    )
    PLAIN[primitive] = None if plain is C.pvary_p else plain
    return primitive


def _by(primitive: Callable[[], Primitive]) -> Callable[..., Any]:
    """The transpose rule that applies another primitive with the same params."""
    return lambda ct, x, **params: (primitive().bind(ct, **params),)


def _as_before(varying: Axes, /, **params: Any) -> Axes:
    return varying


def _own_part(ct: Any, x: Any, axis_name: Any, axis: int, axis_size: int, **params: Any) -> tuple[Any]:
    """The device's own element along the dimension that was gathered."""
    zero, shape = number(Array(np.asarray(0, np.int32))), ct.shape
    if set(axis_names({"axes": axis_name})) <= checked_axes():
        ct = C.pvary_p.bind(ct, axes=axis_name)
    starts = [C.axis_index_p.bind(axis_name=axis_name) if d == axis else zero for d in range(len(shape))]
    sizes = tuple(1 if d == axis else e for d, e in enumerate(shape))
    return (squeeze_p.bind(dynamic_slice_p.bind(ct, *starts, slice_sizes=sizes), dimensions=(axis,)),)


unreduced_psum_p: Primitive = _like(C.psum_p, "unreduced_psum", _as_before, _by(lambda: preduced_p), leaves="unreduced")
preduced_p: Primitive = _like(C.pvary_p, "preduced", _as_before, _by(lambda: unreduced_psum_p), enters="reduced")
vary_unreduced_cast_p: Primitive = _like(
    C.pvary_p, "vary_unreduced_cast", C.nowhere, _by(lambda: reduced_vary_cast_p), enters="unreduced"
)
reduced_vary_cast_p: Primitive = _like(
    C.pvary_p, "reduced_vary_cast", C.everywhere, _by(lambda: vary_unreduced_cast_p), leaves="reduced"
)
unreduced_reduce_scatter_p: Primitive = _like(
    C.psum_scatter_p,
    "unreduced_reduce_scatter",
    C.everywhere,
    _by(lambda: all_gather_reduced_p),
    leaves="unreduced",
)
all_gather_reduced_p: Primitive = _like(
    C.all_gather_p, "all_gather_reduced", C.nowhere, _by(lambda: unreduced_reduce_scatter_p), enters="reduced"
)
all_gather_invariant_p: Primitive = _like(C.all_gather_p, "all_gather_invariant", C.nowhere, _own_part)
