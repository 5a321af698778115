"""Which dimensions of what runs in libraries can be split together: of convolutions, windows, transforms, factorisations, sorts.

Each rule names dimensions along which the operation does the same to every element, or adds. What has no rule is computed
whole by every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ir.primitive import Primitive
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.factorisations import eig_p, geqrf_p, hessenberg_p, lu_p, schur_p, tridiagonal_p
from fuser.ops.family import CALLS
from fuser.ops.fft import fft_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.ops.reduce_window import (
    reduce_window_max_p,
    reduce_window_min_p,
    reduce_window_p,
    reduce_window_sum_p,
    select_and_gather_add_p,
    select_and_scatter_add_p,
)
from fuser.ops.sorting import sort_p, top_k_p
from fuser.ops.triangular import triangular_solve_p
from fuser.parallel.indexed_links import Places

GROUPS = ("feature_group_count", "batch_group_count")
Found = Iterator[tuple[Places, Places, str | None]]


def library_links(eqn: Eqn, parts: int) -> Found:
    """(dimensions of operands, dimensions of results, reduction) that are split together."""
    if eqn.primitive in CALLS:
        return _along(eqn, range(eqn.outvars[0].aval.ndim))
    if eqn.primitive is conv_general_dilated_p:
        return _convolution(eqn, parts)
    rule = _RULES.get(eqn.primitive)
    return iter(()) if rule is None else rule(eqn)


def _along(eqn: Eqn, dims: Any) -> Found:
    """These dimensions of all operands and results; scalar operands are the same for all."""
    for d in dims:
        yield tuple((n, d) for n, v in enumerate(eqn.invars) if v.aval.shape), _all(eqn.outvars, d), None


def _all(values: Any, dim: int) -> Places:
    return tuple((n, dim) for n in range(len(values)))


def _convolution(eqn: Eqn, parts: int) -> Found:
    """The batch, the features made, and the features read, which are added up; of groups, whole ones."""
    lhs, rhs, out = eqn.params["dimension_numbers"]
    groups = [eqn.params[name] for name in GROUPS]
    if groups[1] == 1:
        yield ((0, lhs[0]),), ((0, out[0]),), None
    if groups == [1, 1]:
        yield ((1, rhs[0]),), ((0, out[1]),), None
    for own, count in zip((lhs[1], lhs[0]), groups):
        if count > 1 and count % parts == 0:
            yield ((0, own), (1, rhs[0])), ((0, out[1]),), None
    if groups[0] == 1:
        yield ((0, lhs[1]), (1, rhs[1])), (), "sum"


def local_groups(eqn: Eqn, lhs: tuple[int, ...]) -> dict[str, int]:
    """The numbers of groups in a part of a convolution whose operand has this shape."""
    spec, whole = eqn.params["dimension_numbers"][0], eqn.invars[0].aval.shape
    found = {}
    for name, d in zip(GROUPS, (spec[1], spec[0])):
        count = eqn.params[name]
        found[name] = count * lhs[d] // whole[d] if count > 1 else count
    return found


def _windows(eqn: Eqn) -> Found:
    """The dimensions along which windows are single elements."""
    params = eqn.params
    plain = {"window_dimensions": 1, "window_strides": 1, "padding": (0, 0), "base_dilation": 1, "window_dilation": 1}
    dims = range(len(params["window_dimensions"]))
    return _along(eqn, [d for d in dims if all(params[k][d] == one for k, one in plain.items() if k in params)])


def _stacks(eqn: Eqn) -> Found:
    """Of stacks of matrices, the dimensions before the last two."""
    return _along(eqn, range(eqn.invars[0].aval.ndim - 2))


def _transform(eqn: Eqn) -> Found:
    return _along(eqn, range(eqn.invars[0].aval.ndim - len(eqn.params["fft_lengths"])))


def _rows(eqn: Eqn) -> Found:
    """Every dimension but the one that is sorted."""
    rank, (axis,) = eqn.invars[0].aval.ndim, [eqn.params[k] for k in ("dimension", "axis") if k in eqn.params]
    return _along(eqn, [d for d in range(rank) if d != (rank - 1 if axis is None else axis)])


_RULES: dict[Primitive, Callable[[Eqn], Found]] = {
    fft_p: _transform,
    sort_p: _rows,
    top_k_p: _rows,
    triangular_solve_p: _stacks,
    **dict.fromkeys(
        (cholesky_p, qr_p, eigh_p, svd_p, lu_p, eig_p, schur_p, hessenberg_p, geqrf_p, tridiagonal_p), _stacks
    ),
    **dict.fromkeys(
        (
            reduce_window_p, reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p, select_and_gather_add_p,
            select_and_scatter_add_p,
        ),
        _windows,
    ),
}  # fmt: skip
