"""BCOO: batched coordinates. `data` (*batch, nse, *dense) and `indices` (*batch, nse, sparse dimensions); duplicates add up.

Every function is an ordinary one of gathers, scatters and sorts, so derivatives and batches are those of its operations. Indices
beyond the shape are padding. A batch dimension of extent 1 in either buffer is the same for all batches.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.errors import ConcretizationTypeError
from fuser.experimental.sparse.base import (
    JAXSparse,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    SparseInfo,
    beside,
    columns,
    lanes,
    within,
)
from fuser.ir.source import current_source
from fuser.trace.core import Tracer
from fuser.tree_util import register_pytree_node_class

_NO_NSE = (
    "The error arose for the nse argument of {0}: the number of stored elements depends on values, which traced code has not; "
    "give it nse"
)


@register_pytree_node_class
class BCOO(JAXSparse):
    """A sparse array of `data` and `indices`, with `n_batch` leading and `n_dense` trailing dimensions that are stored whole.

    ValueError where the buffers' shapes do not go with `shape`.
    """

    def __init__(
        self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.data, self.indices = map(fnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        check(self.data, self.indices, self.shape)

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def _bufs(self) -> tuple[Any, Any]:
        return self.data, self.indices

    @property
    def nse(self) -> int:
        """How many elements are stored, of each batch."""
        return int(self.indices.shape[-2])

    @property
    def n_batch(self) -> int:
        """How many leading dimensions are batches."""
        return int(self.indices.ndim) - 2

    @property
    def n_sparse(self) -> int:
        """How many dimensions are indexed."""
        return int(self.indices.shape[-1])

    @property
    def n_dense(self) -> int:
        """How many trailing dimensions each stored element has."""
        return int(self.data.ndim) - 1 - self.n_batch

    @property
    def sparse_shape(self) -> tuple[int, ...]:
        """The extents of the indexed dimensions."""
        return self.shape[self.n_batch : self.n_batch + self.n_sparse]

    def _extra(self) -> str:
        found = ((name, getattr(self, name)) for name in ("n_batch", "n_dense"))
        return "".join(f", {name}={value}" for name, value in found if value)

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """See `bcoo_fromdense`."""
        return bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """The matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise NotImplementedError("BCOO.from_scipy_sparse with nonzero n_dense or n_batch: scipy.sparse has none")
        found = mat.tocoo()
        indices = fnp.column_stack((fnp.asarray(found.row), fnp.asarray(found.col))).astype(index_dtype or np.int32)
        return cls((fnp.asarray(found.data), indices), shape=found.shape)

    @classmethod
    def _empty(
        cls,
        shape: Any,
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCOO:
        shape = tuple(shape)
        n_sparse = len(shape) - n_dense - n_batch
        if min(n_sparse, n_dense, n_batch, nse) < 0:
            raise ValueError(f"Invalid inputs: {shape=}, {n_dense=}, {n_batch=}, {nse=}")
        batch, sparse, dense = shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]
        data = fnp.zeros((*batch, nse, *dense), dtype)
        indices = fnp.broadcast_to(fnp.asarray(list(sparse), index_dtype), (*batch, nse, n_sparse))
        return cls((data, indices), shape=shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(
        cls,
        N: int,
        M: int,
        k: int,
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_batch: int = 0,
        n_dense: int = 0,
    ) -> BCOO:
        if 2 - n_batch - n_dense < 0 or n_dense < 0 or n_batch < 0:
            raise ValueError(f"Invalid inputs: shape={(N, M)}, {n_dense=}, {n_batch=}")
        size = min(N, M - k) if k > 0 else min(N + k, M)
        if size <= 0:
            return cls._empty((N, M), dtype=dtype, index_dtype=index_dtype, n_batch=n_batch, n_dense=n_dense)
        if n_dense or n_batch:
            return cls.fromdense(
                fnp.eye(N, M, k, dtype=dtype), n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
            )
        at = fnp.arange(size, dtype=index_dtype)
        indices = fnp.column_stack([at - min(k, 0), at + max(k, 0)])
        return cls((fnp.ones(size, dtype), indices), shape=(N, M), indices_sorted=True, unique_indices=True)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
    ) -> BCOO:
        """See `bcoo_update_layout`."""
        return bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Duplicates added up, indices sorted; stored zeros are left out too unless `remove_zeros` is False."""
        return bcoo_sum_duplicates(_without_zeros(self) if remove_zeros else self, nse=nse)

    def sort_indices(self) -> BCOO:
        """See `bcoo_sort_indices`."""
        return bcoo_sort_indices(self)

    def todense(self) -> Any:
        """See `bcoo_todense`."""
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The dimensions in another order, all reversed by default; batch, sparse and dense ones stay among themselves."""
        return bcoo_transpose(self, permutation=range(self.ndim)[::-1] if axes is None else axes)

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.data, self.indices), self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> BCOO:
        """The array of these buffers, whatever they are."""
        if aux_data.keys() != {"shape", "indices_sorted", "unique_indices"}:
            raise ValueError(f"BCOO.tree_unflatten: invalid aux_data={aux_data}")
        found = object.__new__(cls)
        found.data, found.indices = children
        found.__dict__.update(aux_data)
        return found


def check(data: Any, indices: Any, shape: Sequence[int]) -> None:
    """ValueError where data and indices cannot be those of a BCOO array of this shape."""
    if indices.dtype.kind not in "iu":
        raise ValueError(f"Invalid indices for BCOO: they are integers, got {indices.dtype} ({current_source().short})")
    if indices.ndim < 2:
        raise ValueError(f"Invalid indices for BCOO: they have 2 dimensions or more, got shape {indices.shape}")
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    n_dense = len(shape) - n_batch - n_sparse
    expected = (*shape[:n_batch], indices.shape[-2], *shape[n_batch + n_sparse :])
    fits = n_dense >= 0 and data.ndim == len(expected) and data.shape[n_batch:] == expected[n_batch:]
    batches = all(n in (1, m) for buffer in (data, indices) for n, m in zip(buffer.shape[:n_batch], shape[:n_batch]))
    if not fits or not batches:
        raise ValueError(
            f"Invalid data.shape={data.shape} and indices.shape={indices.shape} for a BCOO array of shape {tuple(shape)}: data is "
            f"(*batch, nse, *dense) and indices (*batch, nse, sparse dimensions) ({current_source().short})"
        )


def full_batches(mat: BCOO) -> tuple[Any, Any]:
    """The buffers with every batch dimension in full."""
    batch = mat.shape[: mat.n_batch]
    shapes = ((*batch, *buffer.shape[mat.n_batch :]) for buffer in mat._bufs)
    return tuple(fnp.broadcast_to(buffer, shape) for buffer, shape in zip(mat._bufs, shapes))  # type: ignore[return-value]


def bcoo_todense(mat: BCOO) -> Any:
    """The array with its zeros."""
    shape, n_batch = mat.shape, mat.n_batch

    def one(data: Any, indices: Any) -> Any:
        if not indices.shape[-1]:
            return data.sum(0, dtype=data.dtype)
        return fnp.zeros(shape[n_batch:], data.dtype).at[columns(indices)].add(data, mode="drop")

    return fnp.broadcast_to(lanes(one, n_batch, *mat._bufs), shape)


def _positions(mask: Any, nse: int, dtype: Any) -> Any:
    """The indices of what is true, padded beyond the shape: (nse, ndim)."""
    if not mask.ndim:
        return fnp.zeros((nse, 0), dtype)
    found = fnp.nonzero(mask, size=nse, fill_value=mask.shape)
    return fnp.stack([f.astype(dtype) for f in found], -1)


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCOO:
    """The elements other than zero; `nse` is how many are stored, by default as many as a batch has at most.

    ConcretizationTypeError where that depends on traced values. With fewer the last are lost, with more there is padding.
    """
    mat = fnp.asarray(mat)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(f"bcoo_fromdense takes n_batch + n_dense <= {mat.ndim}, got {n_batch=} and {n_dense=}")
    mask = mat != 0
    mask = mask.any(tuple(range(mat.ndim - n_dense, mat.ndim))) if n_dense else mask
    if nse is None:
        counts = mask.sum(tuple(range(n_batch, mask.ndim)))
        if isinstance(counts, Tracer):
            raise ConcretizationTypeError(f"{_NO_NSE.format('bcoo_fromdense')} ({current_source().short})")
        nse = int(counts.max(initial=0))
    elif isinstance(nse, Tracer):
        raise ConcretizationTypeError(f"{_NO_NSE.format('bcoo_fromdense')} ({current_source().short})")
    size = operator.index(nse)
    indices = lanes(lambda m: _positions(m, size, index_dtype), n_batch, mask)
    data = extract(indices, mat, True)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def _firsts(indices: Any) -> Any:
    """Which rows of (nse, k) no earlier one equals."""
    order = _order(indices)
    ordered = indices[order]
    new = fnp.concatenate([fnp.ones((1,), bool), (ordered[1:] != ordered[:-1]).any(-1)])[: indices.shape[0]]
    return fnp.zeros(indices.shape[0], bool).at[order].set(new)


def _order(indices: Any) -> Any:
    """The permutation that sorts rows, the first column first; equal ones stay in their order."""
    return fnp.lexsort(columns(indices)[::-1])


def extract(indices: Any, arr: Any, assume_unique: bool) -> Any:
    """The elements at BCOO indices, zeros beyond the shape; of equal indices the first has the element, unless said to be unique."""
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]

    def one(indices: Any, arr: Any) -> Any:
        nse = indices.shape[0]
        if n_sparse:
            data = arr.at[columns(indices)].get(mode="fill", fill_value=0)
            return data if assume_unique else fnp.where(beside(_firsts(indices), data), data, 0)
        data = fnp.broadcast_to(arr, (nse, *arr.shape))
        return data if assume_unique else fnp.where(beside(fnp.arange(nse) == 0, data), data, 0)

    return lanes(one, n_batch, indices, arr)


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array where `sparr` has stored ones."""
    if not isinstance(sparr, BCOO):
        raise TypeError(f"First argument to bcoo_extract should be a BCOO array. Got type(sparr)={type(sparr)}")
    arr = fnp.asarray(arr)
    if arr.shape != sparr.shape:
        raise ValueError(f"shape mismatch: sparr.shape={sparr.shape} a.shape={arr.shape}")
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    return BCOO((extract(sparr.indices, arr, unique), sparr.indices), **sparr._info._asdict())


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The stored elements in the order of their indices."""
    if not mat.n_sparse:
        return BCOO(mat._bufs, shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)
    order = lanes(_order, mat.n_batch, mat.indices)
    indices = lanes(lambda i, o: i[o], mat.n_batch, mat.indices, order)
    data = lanes(lambda d, o: d[o], mat.n_batch, mat.data, order)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


def _without_zeros(mat: BCOO) -> BCOO:
    """Stored zeros made padding."""
    data, indices = full_batches(mat)
    kept = (data != 0).any(tuple(range(mat.n_batch + 1, data.ndim)))
    limits = fnp.asarray(list(mat.sparse_shape), indices.dtype)
    return BCOO((data, fnp.where(kept[..., None], indices, limits)), shape=mat.shape)


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Duplicates added up and indices sorted; `nse` are stored, by default as many as a batch has at most.

    ConcretizationTypeError where that depends on traced values.
    """
    data, indices, shape = mat.data, mat.indices, mat.sparse_shape
    if isinstance(nse, Tracer):
        raise ConcretizationTypeError(_NO_NSE.format("bcoo_sum_duplicates"))
    limits = fnp.asarray(list(shape), indices.dtype)

    def groups(indices: Any) -> tuple[Any, Any, Any]:
        """For each stored element the number of its group; the sorted indices of groups; how many there are."""
        inside = within(indices, shape)
        indices = fnp.where(inside[:, None], indices, limits)
        order = _order(indices) if shape else fnp.arange(indices.shape[0])
        ordered = indices[order]
        new = fnp.ones(indices.shape[0], bool).at[1:].set((ordered[1:] != ordered[:-1]).any(-1))
        number = fnp.cumsum(new) - 1
        inverse = fnp.zeros(indices.shape[0], number.dtype).at[order].set(number)
        found = fnp.broadcast_to(limits, indices.shape).at[number].set(ordered)
        return fnp.where(inside, inverse, indices.shape[0]), found, (new & inside[order]).sum()

    number, found, counts = lanes(groups, mat.n_batch, indices)
    if nse is None:
        if isinstance(counts, Tracer):
            raise ConcretizationTypeError(f"{_NO_NSE.format('bcoo_sum_duplicates')} ({current_source().short})")
        nse = int(counts.max(initial=0)) if shape else 1
    size = operator.index(nse)
    kept = found[..., :size, :]
    if kept.shape[-2] < size:
        padding = fnp.broadcast_to(limits, (*kept.shape[:-2], size - kept.shape[-2], len(shape)))
        kept = fnp.concatenate([kept, padding], -2)
    added = lanes(
        lambda d, n: fnp.zeros((size, *d.shape[1:]), d.dtype).at[n].add(d, mode="drop"), mat.n_batch, data, number
    )
    return BCOO((added, kept), shape=mat.shape, indices_sorted=True, unique_indices=True)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """The dimensions in another order; NotImplementedError where one of a kind would become one of another."""
    perm = [p % mat.ndim if mat.ndim else p for p in map(operator.index, permutation)]
    if sorted(perm) != list(range(mat.ndim)):
        raise ValueError(f"transpose takes a permutation of {mat.ndim} dimensions, got {tuple(permutation)}")
    first, second = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, sparse, dense = perm[:first], perm[first:second], perm[second:]
    if any(p >= first for p in batch) or any(p < second for p in dense):
        raise NotImplementedError(
            "transpose of batch, sparse and dense dimensions of a BCOO array into each other; see update_layout"
        )
    data = mat.data.transpose((*batch, first, *(p - mat.n_sparse + 1 for p in dense)))
    indices = mat.indices.transpose((*batch, first, first + 1))[..., np.array([p - first for p in sparse], int)]
    kept = sparse == list(range(first, second))
    shape = tuple(mat.shape[p] for p in perm)
    return BCOO(
        (data, indices), shape=shape, indices_sorted=mat.indices_sorted and kept, unique_indices=mat.unique_indices
    )


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> BCOO:
    """The same array with other numbers of batch and dense dimensions.

    More of them than before store many zeros: SparseEfficiencyError, a warning ("warn") or nothing (None), as `on_inefficient`
    says, unless their extents are 1 or 0.
    """
    n_batch = mat.n_batch if n_batch is None else operator.index(n_batch)
    n_dense = mat.n_dense if n_dense is None else operator.index(n_dense)
    if (n_batch, n_dense) == (mat.n_batch, mat.n_dense):
        return mat
    n_sparse = mat.ndim - n_batch - n_dense
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(f"on_inefficient={on_inefficient!r}; expected one of ['error', 'warn', None].")
    if n_batch < 0 or n_dense < 0 or n_sparse < 0:
        raise ValueError(f"a BCOO array of {mat.ndim} dimensions cannot have n_batch={n_batch} and n_dense={n_dense}")
    grown = (*mat.shape[mat.n_batch : n_batch], *mat.shape[mat.ndim - n_dense : mat.ndim - mat.n_dense])
    if any(n > 1 for n in grown) and on_inefficient is not None:
        text = (
            f"For matrix of shape {mat.shape}, increasing n_batch or n_dense from {mat.n_batch}, {mat.n_dense} to {n_batch}, {n_dense} "
            "results in inefficient storage; give on_inefficient=None if that is wanted"
        )
        if on_inefficient == "error":
            raise SparseEfficiencyError(text)
        warnings.warn(text, SparseEfficiencyWarning, stacklevel=2)
    while mat.n_dense > n_dense:
        mat = _dense_to_sparse(mat)
    while mat.n_batch > n_batch:
        mat = _batch_to_sparse(mat)
    while mat.n_batch < n_batch:
        mat = _sparse_to_batch(mat)
    while mat.n_dense < n_dense:
        mat = _sparse_to_dense(mat)
    return mat


def _dense_to_sparse(mat: BCOO) -> BCOO:
    """The first dense dimension indexed."""
    n, at = mat.shape[mat.ndim - mat.n_dense], mat.n_batch
    data = mat.data.reshape(*mat.data.shape[:at], mat.nse * n, *mat.data.shape[at + 2 :])
    rows = fnp.repeat(mat.indices, n, at)
    column = fnp.tile(fnp.arange(n, dtype=mat.indices.dtype), mat.nse)[:, None]
    column = fnp.broadcast_to(column, (*rows.shape[:-1], 1))
    return BCOO((data, fnp.concatenate([rows, column], -1)), **mat._info._asdict())


def _batch_to_sparse(mat: BCOO) -> BCOO:
    """The last batch dimension indexed."""
    at = mat.n_batch - 1
    n = mat.shape[at]
    data = fnp.broadcast_to(mat.data, (*mat.data.shape[:at], n, *mat.data.shape[at + 1 :]))
    indices = fnp.broadcast_to(mat.indices, (*mat.indices.shape[:at], n, *mat.indices.shape[at + 1 :]))
    column = fnp.broadcast_to(fnp.arange(n, dtype=indices.dtype)[:, None, None], (*indices.shape[:-1], 1))
    indices = fnp.concatenate([column, indices], -1)
    merged = lambda x: x.reshape(*x.shape[:at], n * mat.nse, *x.shape[at + 2 :])
    return BCOO((merged(data), merged(indices)), **mat._info._asdict())


def _sparse_to_batch(mat: BCOO) -> BCOO:
    """The first indexed dimension a batch dimension: each batch has the elements of one index, and padding."""
    at, n = mat.n_batch, mat.shape[mat.n_batch]
    first, rest = mat.indices[..., 0], mat.indices[..., 1:]
    own = fnp.expand_dims(first, at) == fnp.arange(n, dtype=first.dtype)[:, None]
    limits = fnp.asarray(list(mat.sparse_shape[1:]), rest.dtype)
    indices = fnp.where(own[..., None], fnp.expand_dims(rest, at), limits)
    data = fnp.expand_dims(mat.data, at)
    data = fnp.where(own.reshape(own.shape + (1,) * mat.n_dense), data, 0)
    found = BCOO((data, indices), shape=mat.shape)
    least = math.prod(found.sparse_shape)
    return bcoo_sum_duplicates(found, nse=least) if found.nse > least else found


def _sparse_to_dense(mat: BCOO) -> BCOO:
    """The last indexed dimension a dense one."""
    at, n = mat.n_batch, mat.sparse_shape[-1]
    last, rest = mat.indices[..., -1], mat.indices[..., :-1]
    own = last[..., None] == fnp.arange(n, dtype=last.dtype)
    data = fnp.expand_dims(mat.data, at + 1)
    data = fnp.where(own.reshape(own.shape + (1,) * mat.n_dense), data, 0)
    found = BCOO((data, rest), shape=mat.shape)
    least = math.prod(found.sparse_shape)
    return bcoo_sum_duplicates(found, nse=least) if found.nse > least else found
