"""How a tensor's elements lie, and the way to and from the dense array that a kernel reads or writes, without a copy.

A tensor whose dimensions are permuted (channels last, a transposed product) is a dense array with its dimensions in the order of
their strides; one that repeats elements (stride 0) is narrow there. The permutation is part of the program, as index arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import fuser.numpy as fnp
from fuser.backends.base import Memory
from fuser.lax.values import broadcast_to
from fuser.runtime.array import Array, from_torch
from fuser.runtime.core import native

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLPack's, by NumPy's kinds
_BFLOAT16 = 4


@dataclass(frozen=True)
class View:
    """Where the elements of a view are in the memory of a tensor; strides and the offset in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of a tensor."""
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.offset)


@dataclass(frozen=True)
class Layout:
    """`order` are the dimensions by falling stride; `repeated` those along which one element is read again."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    repeated: tuple[int, ...]

    @functools.cached_property
    def plain(self) -> bool:
        """Whether the dense array is the tensor as it is."""
        return not self.repeated and self.order == tuple(range(len(self.shape)))

    @property
    def narrow(self) -> tuple[int, ...]:
        """The shape with repeated dimensions of extent 1."""
        return tuple(1 if d in self.repeated else e for d, e in enumerate(self.shape))

    @functools.cached_property
    def dense(self) -> tuple[int, ...]:
        """The shape of the dense array."""
        return tuple(self.narrow[d] for d in self.order)

    def memory(self, tensor: torch.Tensor) -> Any:
        """What a program takes for a tensor: its own memory, or a copy where it lies in another way than this."""
        if self.plain:
            return from_torch(tensor)._data
        for d in self.repeated:
            tensor = tensor.narrow(d, 0, 1)
        return from_torch(tensor.permute(self.order))._data

    def reader(self, dtype: np.dtype, memory: Memory) -> Callable[[torch.Tensor], Any]:
        """`memory`, placed in that of a backend, for tensors of a dtype: at once, without Python, where they lie there as they
        should."""

        def otherwise(tensor: torch.Tensor) -> Any:
            return memory.place(self.memory(tensor))

        on_device = memory.platform == "cuda" and native is not None and native.cuda_name() is not None
        if native is None or not (on_device or memory.platform == "cpu") or self.repeated or not _exchange():
            return otherwise
        return functools.partial(native.tensor_view, dtype, self.dense, self.order, otherwise, on_device)

    @functools.cached_property
    def strides(self) -> tuple[int, ...]:
        """Those of `tensor`'s tensors, in elements."""
        found, stride = [0] * len(self.shape), 1
        for d in reversed(self.order):
            found[d] = 0 if d in self.repeated else stride
            stride *= self.narrow[d]
        return tuple(found)

    def writer(self, dtype: np.dtype, view: View | None = None) -> Callable[[Any], torch.Tensor]:
        """`tensor`, or a view of it, for results of a dtype: at once, without Python, where they lie on the host."""
        code = _BFLOAT16 if dtype.name == "bfloat16" else _CODES.get(dtype.kind)
        otherwise = self.tensor if view is None else lambda dense: view.of(self.tensor(dense))
        if code is None or 0 in self.shape or not _exchange():
            return otherwise
        own = view or View(self.shape, self.strides, 0)
        return functools.partial(native.tensor_over, code, self.dense, own.shape, own.strides, own.offset, otherwise)

    def value(self, dense: Any) -> Any:
        """The traced tensor of a traced dense array."""
        if self.plain:
            return dense
        return broadcast_to(fnp.transpose(dense, [int(d) for d in np.argsort(self.order)]), self.shape)

    def packed(self, value: Any) -> Any:
        """The traced dense array of a traced tensor."""
        if self.plain:
            return value
        kept = value[tuple(slice(0, 1) if d in self.repeated else slice(None) for d in range(len(self.shape)))]
        return fnp.transpose(kept, self.order)

    def tensor(self, dense: Any) -> torch.Tensor:
        """The tensor over a program's result."""
        if (
            type(dense) is np.ndarray
            and dense.dtype.kind != "V"
            and dense.flags.writeable
            and dense.shape == self.dense
        ):
            found = torch.from_numpy(dense)
        else:
            found = Array(dense).torch().reshape(self.dense)
        if 0 in self.shape:  # NumPy's strides of empty arrays are 0
            return found.as_strided(self.shape, self.strides)
        return found if self.plain else found.permute(self._inverse).expand(self.shape)

    @functools.cached_property
    def _inverse(self) -> tuple[int, ...]:
        return tuple(int(d) for d in np.argsort(self.order))


@functools.cache
def _exchange() -> bool:
    """Whether the native core reads torch's tensors."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    return native is not None and capsule is not None and bool(native.adopt_tensors(capsule))


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """The layout of tensors with these extents and strides; one with gaps is taken for dense in the order of its strides."""
    extents = tuple(shape)
    if 0 in extents:
        return Layout(extents, tuple(range(len(extents))), ())
    repeated = tuple(d for d, (e, s) in enumerate(zip(extents, strides)) if s == 0 and e > 1)
    moving = [d for d, e in enumerate(extents) if e > 1 and d not in repeated]
    by_stride = iter(sorted(moving, key=lambda d: -strides[d]))
    order = tuple(next(by_stride) if d in moving else d for d in range(len(extents)))
    return Layout(extents, order, repeated)
