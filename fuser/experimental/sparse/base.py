"""What sparse arrays have in common: buffers in, a shape that they stand for, and arithmetic by `sparsify`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fuser import numpy as fnp
from fuser.trace.core import Tracer
from fuser.transforms.vmap import vmap


class SparseEfficiencyError(ValueError):
    """A layout that would store many times as much."""


class SparseEfficiencyWarning(UserWarning):
    """An operation that stores or computes many times as much as it needs."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """A SparseEfficiencyWarning about a GPU's library."""


class SparseInfo(NamedTuple):
    """What buffers do not say of a BCOO or BCSR array."""

    shape: tuple[int, ...]
    indices_sorted: bool = False
    unique_indices: bool = False


class JAXSparse:
    """The base of sparse arrays: `shape`, `dtype`, `nse` (how many elements are stored), `todense()`, `transpose()`."""

    data: Any
    shape: tuple[int, ...]
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]) -> None:
        self.shape = tuple(int(n) for n in shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    def nse(self) -> int:
        """How many elements are stored, of each batch."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many elements the array has, the zeros among them."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        try:
            text = f"{type(self).__name__}({self.dtype}{list(self.shape)}, nse={self.nse}{self._extra()})"
        except (AttributeError, IndexError):
            text = f"{type(self).__name__}(<invalid>)"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text

    def _extra(self) -> str:
        return ""

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The buffers, and what else there is."""
        raise NotImplementedError

    def transpose(self, axes: Any = None) -> Any:
        """The transpose."""
        raise NotImplementedError

    def todense(self) -> Any:
        """The array with its zeros."""
        raise NotImplementedError

    def block_until_ready(self) -> Any:
        """This array, once its buffers are computed."""
        for buffer in self.tree_flatten()[0]:
            buffer.block_until_ready()
        return self


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse array."""
    return isinstance(value, JAXSparse)


def lanes(function: Callable[..., Any], count: int, *operands: Any) -> Any:
    """`function` mapped over the first `count` dimensions of its operands; an extent of 1 goes with any other."""
    if not count:
        return function(*operands)
    extents = [o.shape[0] for o in operands]
    size = max(extents, default=1)
    if any(e not in (1, size) for e in extents):
        raise ValueError(f"batch dimensions of sparse arrays must be equal or 1, got {extents}")
    axes = tuple(0 if e == size else None for e in extents)
    operands = tuple(o if axis == 0 else fnp.squeeze(o, 0) for o, axis in zip(operands, axes))
    inner = lambda *rest: lanes(function, count - 1, *rest)
    return vmap(inner, in_axes=axes)(*operands)


def columns(indices: Any) -> tuple[Any, ...]:
    """The index along each sparse dimension."""
    return tuple(indices[..., k] for k in range(indices.shape[-1]))


def within(indices: Any, shape: Sequence[int]) -> Any:
    """Which stored elements lie in the array: those beyond it are padding."""
    limits = fnp.asarray(list(shape), indices.dtype) if len(shape) else fnp.zeros((0,), indices.dtype)
    return (indices < limits).all(-1)


def beside(mask: Any, data: Any) -> Any:
    """A mask of stored elements, with the dense dimensions of the data."""
    return mask.reshape(mask.shape + (1,) * (data.ndim - mask.ndim))
