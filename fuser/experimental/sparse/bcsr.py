"""BCSR: batched compressed rows. `data` (*batch, nse, *dense), `indices` (*batch, nse) of columns, `indptr` (*batch, rows + 1).

Rows are expanded to coordinates wherever something is computed, and the functions are then those of BCOO.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.experimental.sparse.base import JAXSparse, SparseInfo, lanes
from fuser.experimental.sparse.bcoo import BCOO, bcoo_extract, bcoo_fromdense, bcoo_sort_indices, bcoo_update_layout
from fuser.experimental.sparse.movement import bcoo_broadcast_in_dim, bcoo_concatenate
from fuser.experimental.sparse.products import bcoo_dot_general
from fuser.tree_util import register_pytree_node_class


@register_pytree_node_class
class BCSR(JAXSparse):
    """A sparse array of compressed rows, with leading batch and trailing dense dimensions; two are sparse.

    ValueError where the buffers' shapes do not go with `shape`.
    """

    n_sparse = 2

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        self.data, self.indices, self.indptr = map(fnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        rows = self.shape[self.n_batch : self.n_batch + 1]
        if self.indices.dtype.kind not in "iu" or self.indptr.dtype != self.indices.dtype:
            raise ValueError(
                f"BCSR indices and indptr are integers of one dtype, got {self.indices.dtype} and {self.indptr.dtype}"
            )
        nse = self.indices.shape[-1]
        expected = (nse, *self.shape[self.n_batch + 2 :])
        if (
            len(self.shape) < self.n_batch + 2
            or self.indptr.shape[-1:] != (rows[0] + 1,)
            or self.data.shape[self.n_batch :] != expected
        ):
            raise ValueError(
                f"Invalid data.shape={self.data.shape}, indices.shape={self.indices.shape} and indptr.shape={self.indptr.shape} for a "
                f"BCSR array of shape {self.shape}"
            )

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def _bufs(self) -> tuple[Any, Any, Any]:
        return self.data, self.indices, self.indptr

    @property
    def nse(self) -> int:
        """How many elements are stored, of each batch."""
        return int(self.indices.shape[-1])

    @property
    def n_batch(self) -> int:
        """How many leading dimensions are batches."""
        return int(self.indices.ndim) - 1

    @property
    def n_dense(self) -> int:
        """How many trailing dimensions each stored element has."""
        return int(self.data.ndim) - 1 - self.n_batch

    def _extra(self) -> str:
        found = ((name, getattr(self, name)) for name in ("n_batch", "n_dense"))
        return "".join(f", {name}={value}" for name, value in found if value)

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """See `bcsr_fromdense`."""
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same array; NotImplementedError unless two dimensions are sparse."""
        if arr.n_sparse != 2:
            raise NotImplementedError(f"BSCR.from_bcoo requires n_sparse=2; got {arr.n_sparse=}")
        if not arr.indices_sorted:
            arr = bcoo_sort_indices(arr)
        rows = arr.sparse_shape[0]
        bounds = fnp.arange(rows + 1, dtype=arr.indices.dtype)
        indptr = lanes(lambda i: (i[:, 0][None] < bounds[:, None]).sum(1).astype(i.dtype), arr.n_batch, arr.indices)
        return cls((arr.data, arr.indices[..., 1], indptr), **(arr._info._asdict() | {"indices_sorted": True}))

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """The matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise NotImplementedError("BCSR.from_scipy_sparse with nonzero n_dense or n_batch: scipy.sparse has none")
        found = mat.tocsr()
        dtype = index_dtype or np.int32
        return cls(
            (
                fnp.asarray(found.data),
                fnp.asarray(found.indices).astype(dtype),
                fnp.asarray(found.indptr).astype(dtype),
            ),
            shape=found.shape,
        )

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
    ) -> BCSR:
        if len(shape) - n_dense - n_batch != 2:
            raise ValueError("BCSR sparse.empty: must have 2 sparse dimensions.")
        return cls.from_bcoo(
            BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch, nse=nse)
        )

    def to_bcoo(self) -> BCOO:
        """The same array in coordinates."""
        places = fnp.arange(self.nse, dtype=self.indices.dtype)
        row = lanes(lambda p: (p[1:, None] <= places[None]).sum(0).astype(p.dtype), self.n_batch, self.indptr)
        batch = np.broadcast_shapes(row.shape[:-1], self.indices.shape[:-1])
        row, column = (fnp.broadcast_to(x, (*batch, self.nse)) for x in (row, self.indices))
        return BCOO((self.data, fnp.stack([row, column], -1)), **self._info._asdict())

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """As `BCOO.sum_duplicates`."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse=nse, remove_zeros=remove_zeros))

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
    ) -> BCSR:
        """As `BCOO.update_layout`."""
        return BCSR.from_bcoo(
            bcoo_update_layout(self.to_bcoo(), n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)
        )

    def todense(self) -> Any:
        """See `bcsr_todense`."""
        return bcsr_todense(self)

    def transpose(self, axes: Any = None) -> Any:
        """NotImplementedError: rows are what is compressed; `to_bcoo()` can be transposed."""
        raise NotImplementedError("Transpose is not implemented for BCSR; transpose to_bcoo()")

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._bufs, self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> BCSR:
        """The array of these buffers, whatever they are."""
        if aux_data.keys() != {"shape", "indices_sorted", "unique_indices"}:
            raise ValueError(f"BCSR.tree_unflatten: invalid aux_data={aux_data}")
        found = object.__new__(cls)
        found.data, found.indices, found.indptr = children
        found.__dict__.update(aux_data)
        return found


def bcsr_todense(mat: BCSR) -> Any:
    """The array with its zeros."""
    return mat.to_bcoo().todense()


def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCSR:
    """As `bcoo_fromdense`; ValueError unless two dimensions are sparse."""
    mat = fnp.asarray(mat)
    if mat.ndim - n_batch - n_dense != 2:
        raise ValueError(f"bcsr_fromdense: must have 2 sparse dimensions, got {mat.ndim - n_batch - n_dense}")
    return BCSR.from_bcoo(bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype))


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """The elements of a dense array at BCSR indices."""
    mat = fnp.asarray(mat)
    n_batch = indices.ndim - 1
    zeros = fnp.zeros((*mat.shape[:n_batch], indices.shape[-1], *mat.shape[n_batch + 2 :]), mat.dtype)
    return bcoo_extract(BCSR((zeros, indices, indptr), shape=mat.shape).to_bcoo(), mat, assume_unique=True).data


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Duplicates added up and indices sorted."""
    return mat.sum_duplicates(nse=nse, remove_zeros=False)


def bcsr_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """As `bcoo_dot_general`, with one BCSR operand or two; a BCSR array of two."""
    operands = [x.to_bcoo() if isinstance(x, BCSR) else x for x in (lhs, rhs)]
    found = bcoo_dot_general(
        *operands, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )
    return BCSR.from_bcoo(found) if isinstance(found, BCOO) else found


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """As `bcoo_broadcast_in_dim`."""
    return BCSR.from_bcoo(bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """As `bcoo_concatenate`."""
    return BCSR.from_bcoo(bcoo_concatenate([o.to_bcoo() for o in operands], dimension=operator.index(dimension)))
