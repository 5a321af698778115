"""Products with BCOO arrays: dot_general of every pair of sparse and dense, elementwise products, and a convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.api.abstract import eval_shape
from fuser.api.shapes import ShapeDtypeStruct
from fuser.experimental.sparse.base import columns, lanes, within
from fuser.experimental.sparse.bcoo import BCOO, bcoo_sum_duplicates, bcoo_update_layout, extract, full_batches
from fuser.experimental.sparse.movement import bcoo_broadcast_in_dim, bcoo_reshape

Dimensions = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def _result(lhs: Any, rhs: Any, numbers: Dimensions, wanted: Any) -> Any:
    """Shape and dtype of the product of dense arrays like these; the errors of lax.dot_general."""
    like = [ShapeDtypeStruct(x.shape, x.dtype) for x in (lhs, rhs)]
    common = dtypes.result_type(lhs.dtype, rhs.dtype)
    product = lambda a, b: lax.dot_general(a.astype(common), b.astype(common), numbers, preferred_element_type=wanted)
    return eval_shape(product, *like)


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Dimensions,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """As lax.dot_general, where one operand or both are BCOO: an array, or a BCOO array of two.

    Contracted are batch and sparse dimensions; NotImplementedError for dense ones, and for sparse ones that are batch dimensions
    of the product.
    """
    ((lhs_c, rhs_c), (lhs_b, rhs_b)) = dimension_numbers
    numbers = ((tuple(lhs_c), tuple(rhs_c)), (tuple(lhs_b), tuple(rhs_b)))
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        return _sparse_sparse(lhs, rhs, numbers, preferred_element_type)
    if isinstance(lhs, BCOO):
        return _sparse_dense(lhs, fnp.asarray(rhs), numbers, preferred_element_type)
    if isinstance(rhs, BCOO):
        lhs = fnp.asarray(lhs)
        found = _sparse_dense(rhs, lhs, (numbers[0][::-1], numbers[1][::-1]), preferred_element_type)
        count = len(numbers[1][0])
        own = rhs.ndim - count - len(numbers[0][1])
        order = [*range(count), *range(count + own, found.ndim), *range(count, count + own)]
        return found.transpose(order)
    return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)


def _check(mat: BCOO, contracting: Sequence[int], batch: Sequence[int]) -> None:
    if any(d >= mat.n_batch + mat.n_sparse for d in (*contracting, *batch)) or mat.n_dense:
        raise NotImplementedError("bcoo_dot_general: operands with dense dimensions; see update_layout")
    if any(d >= mat.n_batch for d in batch):
        raise NotImplementedError(
            "bcoo_dot_general: batch dimensions must be among the batch dimensions of the sparse operand"
        )


def _sparse_dense(lhs: BCOO, rhs: Any, numbers: Dimensions, wanted: Any) -> Any:
    """Rows of the dense operand are gathered, scaled, and added up where the sparse one has its free indices."""
    (lhs_c, rhs_c), (lhs_b, rhs_b) = numbers
    out = _result(lhs, rhs, numbers, wanted)
    _check(lhs, lhs_c, lhs_b)
    n_batch = lhs.n_batch
    data, indices = full_batches(lhs)
    common = dtypes.result_type(lhs.dtype, rhs.dtype)
    data, rhs = data.astype(common), rhs.astype(common)
    summed = [d for d in lhs_c if d < n_batch]
    free = [d for d in range(n_batch) if d not in (*lhs_b, *summed)]
    order = [*lhs_b, *free, *summed]
    data = data.transpose((*order, n_batch))
    indices = indices.transpose((*order, n_batch, n_batch + 1))
    pairs = dict(zip(lhs_c, rhs_c))
    inner = [d for d in lhs_c if d >= n_batch]
    rest = [d for d in range(rhs.ndim) if d not in (*rhs_b, *rhs_c)]
    rhs = rhs.transpose((*rhs_b, *(pairs[d] for d in summed), *(pairs[d] for d in inner), *rest))
    at = [d - n_batch for d in inner]
    others = [k for k in range(lhs.n_sparse) if k not in at]
    kept = tuple(lhs.sparse_shape[k] for k in others)
    rows_shape = tuple(rhs.shape[len(rhs_b) + len(lhs_c) :])

    def one(data: Any, indices: Any, rhs: Any) -> Any:
        index = columns(indices)
        valid = within(indices, lhs.sparse_shape)
        scale = fnp.where(valid, data, 0).reshape(data.shape + (1,) * len(rows_shape))
        rows = rhs.at[tuple(index[k] for k in at)].get(mode="fill", fill_value=0) if at else rhs[None]
        product = (scale * rows).astype(out.dtype)
        if not others:
            return product.sum(0, dtype=out.dtype)
        return fnp.zeros((*kept, *rows_shape), out.dtype).at[tuple(index[k] for k in others)].add(product, mode="drop")

    def shared(data: Any, indices: Any, rhs: Any) -> Any:
        """With the batch dimensions that are contracted, over which is summed."""
        found = lanes(one, len(summed), data, indices, rhs)
        return found.sum(tuple(range(len(summed))), dtype=out.dtype) if summed else found

    def widened(data: Any, indices: Any, rhs: Any) -> Any:
        """With the free batch dimensions, which the dense operand has not."""
        return lanes(shared, len(free), data, indices, rhs.reshape((1,) * len(free) + rhs.shape))

    return lanes(widened, len(lhs_b), data, indices, rhs)


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Dimensions) -> Any:
    """The elements at BCOO indices of the product of two dense arrays."""
    (a_c, b_c), (a_b, b_b) = dimension_numbers
    A, B = map(fnp.asarray, (A, B))
    if A.ndim == B.ndim == 2 and len(a_c) == 1 and not len(a_b) and indices.ndim == 2 and indices.shape[-1] == 2:
        rows, cols = fnp.moveaxis(A, a_c[0], 1), fnp.moveaxis(B, b_c[0], 1)
        i, j = columns(indices)
        left = rows.at[i].get(mode="fill", fill_value=0)
        return (left * cols.at[j].get(mode="fill", fill_value=0)).sum(1)
    product = lax.dot_general(A, B, ((tuple(a_c), tuple(b_c)), (tuple(a_b), tuple(b_b))))
    return extract(indices, product, True)


def _sparse_sparse(lhs: BCOO, rhs: BCOO, numbers: Dimensions, wanted: Any) -> BCOO:
    """Every pair of stored elements whose contracted indices agree."""
    (lhs_c, rhs_c), (lhs_b, rhs_b) = numbers
    out = _result(lhs, rhs, numbers, wanted)
    for mat, contracting, batch in ((lhs, lhs_c, lhs_b), (rhs, rhs_c, rhs_b)):
        _check(mat, contracting, batch)
        if any(d < mat.n_batch for d in contracting):
            raise NotImplementedError("bcoo_dot_general of two sparse operands contracts sparse dimensions only")
    count = len(lhs_b)
    buffers = []
    for number, (mat, batch) in enumerate(((lhs, lhs_b), (rhs, rhs_b))):
        data, indices = full_batches(mat)
        own = [d for d in range(mat.n_batch) if d not in batch]
        data = data.transpose((*batch, *own, mat.n_batch))
        indices = indices.transpose((*batch, *own, mat.n_batch, mat.n_batch + 1))
        other = (rhs if mat is lhs else lhs).n_batch - count
        at = count if number else count + len(own)
        widen = lambda x, at=at, other=other: x.reshape(*x.shape[:at], *(1,) * other, *x.shape[at:])
        buffers += [widen(data), widen(indices)]
    inner = [[d - mat.n_batch for d in dims] for mat, dims in ((lhs, lhs_c), (rhs, rhs_c))]
    free = [[k for k in range(mat.n_sparse) if k not in dims] for mat, dims in zip((lhs, rhs), inner)]
    n_batch = lhs.n_batch + rhs.n_batch - count
    shape = tuple(mat.sparse_shape[k] for mat, ks in zip((lhs, rhs), free) for k in ks)

    def one(ld: Any, li: Any, rd: Any, ri: Any) -> tuple[Any, Any]:
        pairs = (li[:, None, np.array(inner[0], int)] == ri[None, :, np.array(inner[1], int)]).all(-1)
        pairs = pairs & within(li, lhs.sparse_shape)[:, None] & within(ri, rhs.sparse_shape)
        data = fnp.where(pairs, (ld[:, None] * rd[None]).astype(out.dtype), 0).ravel()
        size = (li.shape[0], ri.shape[0])
        left = fnp.broadcast_to(li[:, None, np.array(free[0], int)], (*size, len(free[0])))
        right = fnp.broadcast_to(ri[None, :, np.array(free[1], int)], (*size, len(free[1])))
        return data, fnp.concatenate([left, right], -1).reshape(math.prod(size), len(shape))

    data, indices = lanes(one, n_batch, *buffers)
    nse = min(lhs.nse * rhs.nse, math.prod(shape))
    return bcoo_sum_duplicates(BCOO((data, indices), shape=out.shape), nse=nse)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The elementwise product; shapes broadcast. It is stored where the left operand is."""
    shape = np.broadcast_shapes(lhs.shape, rhs.shape)
    if len(lhs.shape) != len(rhs.shape):
        raise ValueError(f"bcoo_multiply_sparse takes arrays of one rank, got shapes {lhs.shape} and {rhs.shape}")
    lhs, rhs = (
        m if m.shape == shape else bcoo_broadcast_in_dim(m, shape=shape, broadcast_dimensions=range(m.ndim))
        for m in (lhs, rhs)
    )
    if (lhs.n_batch, lhs.n_dense) != (rhs.n_batch, rhs.n_dense):
        raise NotImplementedError("bcoo_multiply_sparse: arrays with differing numbers of batch or dense dimensions")

    def one(ld: Any, li: Any, rd: Any, ri: Any) -> tuple[Any, Any]:
        equal = (li[:, None] == ri[None]).all(-1) & within(ri, rhs.sparse_shape)
        matched = (
            fnp.tensordot(equal.astype(rd.dtype), rd, 1)
            if rd.dtype != bool
            else (equal[..., None] & rd.reshape(1, rd.shape[0], -1)).any(1).reshape(li.shape[0], *rd.shape[1:])
        )
        return ld * matched, li

    data, indices = lanes(one, lhs.n_batch, *lhs._bufs, *rhs._bufs)
    return BCOO((data, indices), shape=shape, unique_indices=lhs.unique_indices)


def multiplied(data: Any, indices: Any, shape: Sequence[int], v: Any) -> Any:
    """The data of a BCOO array of this shape times the elements of a dense array that broadcasts to it."""
    v = fnp.asarray(v)
    if np.broadcast_shapes(tuple(shape), v.shape) != tuple(shape):
        raise NotImplementedError(
            "multiplication between sparse and dense is only implemented for cases where the output shape matches the sparse "
            f"matrix shape. Got {shape=}, {v.shape=}"
        )
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    v = v.reshape((1,) * (len(shape) - v.ndim) + v.shape)

    def one(data: Any, indices: Any, v: Any) -> Any:
        extents = v.shape[:n_sparse]
        if all(n == 1 for n in extents):
            return data * v.reshape(v.shape[n_sparse:])
        at = tuple(fnp.zeros_like(i) if n == 1 else i for i, n in zip(columns(indices), extents))
        return data * v.at[at].get(mode="fill", fill_value=0)

    return lanes(one, n_batch, data, indices, v)


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Any:
    """The data of the elementwise product with a dense array, stored as `sp_mat` is."""
    return multiplied(sp_mat.data, sp_mat.indices, sp_mat.shape, v)


def bcoo_conv_general_dilated(
    lhs: Any, rhs: Any, *, window_strides: Sequence[int], padding: Any, lhs_dilation: Any = None, rhs_dilation: Any = None,
    dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1, precision: Any = None,
    preferred_element_type: Any = None, out_sharding: Any = None,
) -> BCOO:  # fmt: skip
    """As lax.conv_general_dilated in one dimension, of one feature and one batch, without strides and dilations."""
    ones = (1,) * (len(lhs.shape) - 2)
    for name, given in (
        ("window_strides", window_strides),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    ):
        if given is not None and tuple(given) != ones:
            raise NotImplementedError(f"bcoo convolution with {name} other than 1.")
    if feature_group_count != 1 or batch_group_count != 1:
        raise NotImplementedError("bcoo convolution with non-unit group counts.")
    if lhs.shape[:2] != (1, 1) or rhs.shape[:2] != (1, 1) or len(lhs.shape) != 3:
        raise NotImplementedError(
            "bcoo convolution with leading dimensions other than (1, 1), or of other than one dimension"
        )
    like = [ShapeDtypeStruct(x.shape, x.dtype) for x in (lhs, rhs)]
    convolve = lambda a, b: lax.conv_general_dilated(a, b, tuple(window_strides), padding)
    size = eval_shape(convolve, *like).shape[-1]
    before = (
        lax.padtype_to_pads((lhs.shape[-1],), (rhs.shape[-1],), (1,), padding)[0][0]
        if isinstance(padding, str)
        else padding[0][0]
    )
    (xd, xi), (kd, ki) = (_line(x) for x in (lhs, rhs))
    index = xi[:, None] - ki[None, :] + before
    inside = (xi < lhs.shape[-1])[:, None] & (ki < rhs.shape[-1])[None] & (index >= 0) & (index < size)
    data = fnp.where(inside, xd[:, None] * kd[None, :], 0).ravel()
    rows = fnp.where(inside, index, size).reshape(-1, 1)
    nse = min(data.shape[0], size)
    found = bcoo_sum_duplicates(BCOO((data, rows), shape=(size,)), nse=nse)
    return bcoo_reshape(found, new_sizes=(1, 1, size))


def _line(x: Any) -> tuple[Any, Any]:
    """Data and indices of a (1, 1, n) array, sparse or dense, in one dimension."""
    if not isinstance(x, BCOO):
        return x.reshape(-1), fnp.arange(x.shape[-1], dtype=np.int32)
    flat = bcoo_update_layout(x, n_batch=0, n_dense=0)
    inside = within(flat.indices, flat.shape)
    return flat.data, fnp.where(inside, flat.indices[:, 2], x.shape[-1])
