"""`jacfwd`, `jacrev` (= `jacobian`) and `hessian`: a derivative applied to each unit vector at once, by batching."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import lax
from fuser.frames import hide
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType, float0, is_complex
from fuser.ops.conversion import convert_element_type_p
from fuser.trace import tree
from fuser.trace.batch import batch, moved
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.linearize import linearize
from fuser.trace.tangent import instantiate
from fuser.transforms.arguments import check_callable, check_input, check_output, checked_argnums, flat


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun` by forward mode: one pushforward for all input directions.

    The tree of the result with, at each leaf, the tree of the argument; a leaf has the result's shape, then the input's.
    """
    check_callable(fun, "jacfwd")

    @functools.wraps(fun)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_argnums(argnums, len(args), "jacfwd", fun)
        function, leaves = flat(fun, args, kwargs, numbers, has_aux)
        avals = [type_of(v) for v in leaves]
        for aval in avals:
            check_input(aval, "jacfwd", holomorphic, False)
            if is_complex(aval.dtype) and not holomorphic:
                raise TypeError(
                    "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
                    f"{aval.dtype.name}; pass holomorphic=True for a holomorphic function ({current_source().short})"
                )
        values: list[Any] = []

        def push(*tangents: Any) -> list[Any]:
            outs, found = jvp(function, leaves, tangents)
            values[:] = outs
            return [instantiate(t) for t in found[: function.count]]

        size = sum(a.size for a in avals)
        try:
            columns, dims = batch(push, _basis(avals), [0] * len(avals), size)
        except Exception as error:
            raise hide(error)  # noqa: B904
        columns = [moved(c, d, type_of(c).ndim - (d is not None), size) for c, d in zip(columns, dims)]
        for column in columns:
            if holomorphic:
                check_output(type_of(column), "jacfwd", holomorphic)
        parts = [[_block(part, aval, False) for part, aval in zip(_parts(c, avals, -1), avals)] for c in columns]
        jacobian = tree.unflatten(function.out_tree, [_argument(function, p, argnums) for p in parts])
        return (jacobian, function.aux(values)) if has_aux else jacobian

    return jacobian_of


def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun` by reverse mode: one pullback for all output directions; see `jacfwd`."""
    check_callable(fun, "jacrev")

    @functools.wraps(fun)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_argnums(argnums, len(args), "jacrev", fun)
        function, leaves = flat(fun, args, kwargs, numbers, has_aux)
        for leaf in leaves:
            check_input(type_of(leaf), "jacrev", holomorphic, allow_int)
        try:
            outs, linear = linearize(function, leaves, lambda: function.count)
            avals = [type_of(o) for o in outs[: function.count]]
            for aval in avals:
                check_output(aval, "jacrev", holomorphic)
            size = sum(a.size for a in avals)
            pull = lambda *cotangents: [instantiate(c) for c in linear.pullback(cotangents)]
            rows, dims = batch(pull, _basis(avals), [0] * len(avals), size)
        except Exception as error:
            raise hide(error)  # noqa: B904
        rows = [r if type(r) is np.ndarray else moved(r, d, 0, size) for r, d in zip(rows, dims)]
        blocks = [_blocks(r, avals) for r in rows]
        jacobian = tree.unflatten(
            function.out_tree, [_argument(function, [b[n] for b in blocks], argnums) for n in range(len(avals))]
        )
        return (jacobian, function.aux(outs)) if has_aux else jacobian

    return jacobian_of


jacobian = jacrev


def hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """The matrix of second derivatives: forward mode over reverse mode."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def _argument(function: Any, leaves: Sequence[Any], argnums: Any) -> Any:
    found = tree.unflatten(function.in_tree, leaves)
    return found if isinstance(argnums, Sequence) else found[0]


def _basis(avals: Sequence[ArrayType]) -> list[Any]:
    """For each type, the unit vectors of all of them together: (total, *shape)."""
    total, start, result = sum(a.size for a in avals), 0, []
    for aval in avals:
        shape = (total, aval.size)
        rows = lax.broadcasted_iota(np.dtype("int32"), shape, 0)
        columns = lax.broadcasted_iota(np.dtype("int32"), shape, 1)
        same = lax.eq(rows, lax.add(columns, np.int32(start)))
        unit = convert_element_type_p.bind(same, new_dtype=aval.dtype, weak_type=aval.weak_type)
        result.append(lax.reshape(unit, (total, *aval.shape)))
        start += aval.size
    return result


def _parts(value: Any, avals: Sequence[ArrayType], axis: int) -> list[Any]:
    """The value cut along `axis` into the basis vectors of each type."""
    axis %= value.ndim
    parts, start = [], 0
    for aval in avals:
        parts.append(lax.slice_in_dim(value, start, start + aval.size, axis=axis))
        start += aval.size
    return parts


def _blocks(rows: Any, avals: Sequence[ArrayType]) -> list[Any]:
    """The rows of a Jacobian, one block for each result; of what has no derivative float0."""
    if rows.dtype == float0:
        return [np.zeros((*aval.shape, *rows.shape), float0) for aval in avals]
    return [_block(part, aval, True) for part, aval in zip(_parts(rows, avals, 0), avals)]


def _block(part: Any, aval: ArrayType, in_front: bool) -> Any:
    """The dimension of the basis vectors as the dimensions of the type that they span."""
    shape = (*aval.shape, *part.shape[1:]) if in_front else (*part.shape[:-1], *aval.shape)
    assert math.prod(shape) == part.size
    return lax.reshape(part, shape)
