"""COO, CSR and CSC: sparse matrices without batches, with their products with dense vectors and matrices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fuser import numpy as fnp
from fuser.experimental.sparse.base import JAXSparse
from fuser.tree_util import register_pytree_node_class


def _entries(mat: Any, nse: Any, index_dtype: Any) -> tuple[Any, Any, Any]:
    """Values, rows and columns of what is not zero, row by row; `nse` of them."""
    mat = fnp.asarray(mat)
    size = operator.index((mat != 0).sum() if nse is None else nse)
    row, column = fnp.nonzero(mat, size=size, fill_value=mat.shape)
    return mat.at[row, column].get(mode="fill", fill_value=0), row.astype(index_dtype), column.astype(index_dtype)


def _todense(data: Any, row: Any, column: Any, shape: Sequence[int]) -> Any:
    return fnp.zeros(tuple(shape), data.dtype).at[row, column].add(data, mode="drop")


def _product(data: Any, row: Any, column: Any, shape: Sequence[int], x: Any, transpose: bool) -> Any:
    """The matrix, or its transpose, times a vector or a matrix."""
    row, column = (column, row) if transpose else (row, column)
    count, extent = shape[::-1] if transpose else shape
    x = fnp.asarray(x)
    if x.shape[0] != extent:
        raise ValueError(f"a sparse matrix with {extent} columns cannot be multiplied with an array of shape {x.shape}")
    dtype = fnp.result_type(data.dtype, x.dtype)
    scale = data.astype(dtype).reshape(data.shape + (1,) * (x.ndim - 1))
    rows = x.astype(dtype).at[column].get(mode="fill", fill_value=0)
    return fnp.zeros((count, *x.shape[1:]), dtype).at[row].add(scale * rows, mode="drop")


def _rows_of(indices: Any, indptr: Any) -> Any:
    """The row of each stored element; those behind the last are padding."""
    places = fnp.arange(indices.shape[0], dtype=indptr.dtype)
    return (indptr[1:, None] <= places[None]).sum(0).astype(indices.dtype)


def _indptr(row: Any, count: int, dtype: Any) -> Any:
    """Where each row begins, of sorted rows."""
    return (row[None] < fnp.arange(count + 1)[:, None]).sum(1).astype(dtype)


class _Matrix(JAXSparse):
    """What the three formats share: each says what its coordinates are."""

    def _coordinates(self) -> tuple[Any, Any]:
        raise NotImplementedError

    @property
    def nse(self) -> int:
        """How many elements are stored."""
        return int(self.data.size)

    def todense(self) -> Any:
        """The matrix with its zeros."""
        return _todense(self.data, *self._coordinates(), self.shape)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError("sparse-sparse matmul")
        other = fnp.asarray(other)
        if other.ndim not in (1, 2):
            raise NotImplementedError(f"matmul with object of shape {other.shape}")
        return _product(self.data, *self._coordinates(), self.shape, other, False)


@register_pytree_node_class
class COO(_Matrix):
    """A matrix of `data`, `row` and `col`; duplicates add up."""

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], rows_sorted: bool = False, cols_sorted: bool = False
    ) -> None:
        self.data, self.row, self.col = map(fnp.asarray, args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted
        super().__init__(args, shape=shape)

    def _coordinates(self) -> tuple[Any, Any]:
        return self.row, self.col

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
        """What is not zero of a dense matrix."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None) -> COO:
        """The matrix of scipy.sparse."""
        found = mat.tocoo()
        row, col = (fnp.asarray(x).astype(index_dtype or np.int32) for x in (found.row, found.col))
        return cls((fnp.asarray(found.data), row, col), shape=found.shape)

    @classmethod
    def _empty(cls, shape: Any, *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        if len(tuple(shape)) != 2:
            raise ValueError(f"COO must have ndim=2; got shape={tuple(shape)}")
        zeros = fnp.zeros(0, index_dtype)
        return cls((fnp.zeros(0, dtype), zeros, zeros), shape=shape, rows_sorted=True, cols_sorted=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        size = min(N, M - k) if k > 0 else min(N + k, M)
        if size <= 0:
            return cls._empty((N, M), dtype=dtype, index_dtype=index_dtype)
        at = fnp.arange(size, dtype=index_dtype)
        return cls(
            (fnp.ones(size, dtype), at - min(k, 0), at + max(k, 0)), shape=(N, M), rows_sorted=True, cols_sorted=True
        )

    def _sort_indices(self) -> COO:
        order = fnp.lexsort((self.col, self.row))
        return COO((self.data[order], self.row[order], self.col[order]), shape=self.shape, rows_sorted=True)

    def transpose(self, axes: Any = None) -> COO:
        """The transpose; NotImplementedError for `axes`."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return COO(
            (self.data, self.col, self.row),
            shape=self.shape[::-1],
            rows_sorted=self._cols_sorted,
            cols_sorted=self._rows_sorted,
        )

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.data, self.row, self.col), {
            "shape": self.shape,
            "rows_sorted": self._rows_sorted,
            "cols_sorted": self._cols_sorted,
        }

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> COO:
        """The matrix of these buffers, whatever they are."""
        found = object.__new__(cls)
        found.data, found.row, found.col = children
        found.shape = aux_data["shape"]
        found._rows_sorted, found._cols_sorted = aux_data["rows_sorted"], aux_data["cols_sorted"]
        return found


class _Compressed(_Matrix):
    """Rows, or columns, one behind the other: `indptr` says where each begins."""

    other: ClassVar[Any]

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]) -> None:
        self.data, self.indices, self.indptr = map(fnp.asarray, args)
        super().__init__(args, shape=shape)

    @classmethod
    def _empty(cls, shape: Any, *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        shape = tuple(shape)
        if len(shape) != 2:
            raise ValueError(f"{cls.__name__} must have ndim=2; got shape={shape}")
        lines = shape[0 if cls is CSR else 1]
        return cls((fnp.zeros(0, dtype), fnp.zeros(0, index_dtype), fnp.zeros(lines + 1, index_dtype)), shape=shape)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None) -> Any:
        """The matrix of scipy.sparse."""
        found = mat.tocsr() if cls is CSR else mat.tocsc()
        indices, indptr = (fnp.asarray(x).astype(index_dtype or np.int32) for x in (found.indices, found.indptr))
        return cls((fnp.asarray(found.data), indices, indptr), shape=found.shape)

    def transpose(self, axes: Any = None) -> Any:
        """The transpose, compressed the other way; AssertionError for `axes`."""
        assert axes is None
        return self.other((self.data, self.indices, self.indptr), shape=self.shape[::-1])

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.data, self.indices, self.indptr), {"shape": self.shape}

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> Any:
        """The matrix of these buffers, whatever they are."""
        if aux_data.keys() != {"shape"}:
            raise ValueError(f"{cls.__name__}.tree_unflatten: invalid aux_data={aux_data}")
        found = object.__new__(cls)
        found.data, found.indices, found.indptr = children
        found.shape = aux_data["shape"]
        return found


@register_pytree_node_class
class CSR(_Compressed):
    """A matrix of compressed rows: `data`, `indices` of columns, `indptr`."""

    def _coordinates(self) -> tuple[Any, Any]:
        return _rows_of(self.indices, self.indptr), self.indices

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
        """What is not zero of a dense matrix."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> CSR:
        found = COO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype)
        return cls((found.data, found.col, _indptr(found.row, N, index_dtype)), shape=(N, M))


@register_pytree_node_class
class CSC(_Compressed):
    """A matrix of compressed columns: `data`, `indices` of rows, `indptr`."""

    def _coordinates(self) -> tuple[Any, Any]:
        return self.indices, _rows_of(self.indices, self.indptr)

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSC:
        """What is not zero of a dense matrix."""
        return csr_fromdense(fnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).T  # type: ignore[no-any-return]

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> CSC:
        return CSR._eye(M, N, -k, dtype=dtype, index_dtype=index_dtype).T  # type: ignore[no-any-return]


CSR.other, CSC.other = CSC, CSR


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """What is not zero of a dense matrix; `nse` is how many elements are stored, by default as many as there are."""
    return COO(_entries(mat, nse, index_dtype), shape=fnp.shape(mat), rows_sorted=True)


def coo_todense(mat: COO) -> Any:
    """The matrix with its zeros."""
    return mat.todense()


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """The matrix, or its transpose, times a vector."""
    return _product(mat.data, mat.row, mat.col, mat.shape, v, transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """The matrix, or its transpose, times a dense matrix."""
    return _product(mat.data, mat.row, mat.col, mat.shape, B, transpose)


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """What is not zero of a dense matrix; `nse` is how many elements are stored, by default as many as there are."""
    data, row, column = _entries(mat, nse, index_dtype)
    shape = fnp.shape(mat)
    return CSR((data, column, _indptr(row, shape[0], index_dtype)), shape=shape)


def csr_todense(mat: CSR) -> Any:
    """The matrix with its zeros."""
    return mat.todense()


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """The matrix, or its transpose, times a vector."""
    return _product(mat.data, *mat._coordinates(), mat.shape, v, transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """The matrix, or its transpose, times a dense matrix."""
    return _product(mat.data, *mat._coordinates(), mat.shape, B, transpose)
