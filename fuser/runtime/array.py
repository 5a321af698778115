"""`Array`: the immutable n-dimensional array that users hold.

In: a C-contiguous ndarray (CPU), torch tensor (CUDA), jax.Array (TPU) or Shards (several devices), without a copy. Out: shape, dtype,
printing, conversion to Python, NumPy, torch and DLPack (without a copy where memory allows), pickling, and deletion,
after which every use raises. Operators, indexing and the other methods are put on the class by the API layer (`install`).
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from fuser.runtime import device as _device
from fuser.runtime.core import native
from fuser.runtime.memory import OWNERS, copied
from fuser.runtime.shards import Shards

if TYPE_CHECKING:
    from fuser.runtime.device import Device

# What NumPy's DLPack and torch's from_numpy do not know, with the integers of the same width that carry the bits.
_CARRIERS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(ml_dtypes.bfloat16): np.dtype(np.int16),
    np.dtype(ml_dtypes.float8_e4m3fn): np.dtype(np.uint8),
    np.dtype(ml_dtypes.float8_e5m2): np.dtype(np.uint8),
    np.dtype(ml_dtypes.float8_e4m3fnuz): np.dtype(np.uint8),
    np.dtype(ml_dtypes.float8_e5m2fnuz): np.dtype(np.uint8),
}
# Elements that torch has no dtype for that computes: random keys and the smallest numbers, and what stands for them there.
CARRIED: dict[np.dtype[Any] | None, np.dtype[Any]] = {
    np.dtype([("fry", np.uint32, (2,))]): np.dtype(np.uint64),
    **{
        np.dtype(getattr(ml_dtypes, name)): np.dtype(np.uint8)
        for name in ("float8_e4m3b11fnuz", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float4_e2m1fn")
    },
    **{np.dtype(getattr(ml_dtypes, name)): np.dtype(np.uint8) for name in ("float6_e2m3fn", "float6_e3m2fn")},
    **{
        np.dtype(getattr(ml_dtypes, f"{sign}int{bits}")): np.dtype(np.uint8) for sign in ("", "u") for bits in (1, 2, 4)
    },
}
_CPU_DLPACK = (1, 0)  # kDLCPU
_ALIGNMENT = 16  # bytes of the addresses that kernels take


fetched: list[Callable[[Array], object]] = []  # are told of arrays whose values are copied from a GPU to the host
_made: dict[int, Any] = {}  # without the native core, all arrays


def _forget(number: int, _: Any) -> None:
    _made.pop(number, None)


def made() -> list[Array]:
    """The arrays that nobody has deleted, without the native core, which has a list of its own."""
    found = [reference() for reference in list(_made.values())]
    return [x for x in found if x is not None and not x._deleted]


class _Fields:
    """What an Array holds, and what follows from that alone; the native core has the same in C."""

    __slots__ = ("__weakref__", "_data", "_deleted", "_dtype", "_weak_type")

    def __init__(self, data: Any, weak_type: bool = False, dtype: np.dtype[Any] | None = None) -> None:
        """`dtype` is for torch tensors whose own is but the carrier of the elements' bits."""
        self._data = data
        self._dtype = dtype if dtype in CARRIED and not isinstance(data, np.ndarray) else None
        self._weak_type = weak_type
        self._deleted = False
        _made[id(self)] = weakref.ref(self, functools.partial(_forget, id(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._data.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        if self._dtype is not None:
            return self._dtype
        dtype = self._data.dtype
        return dtype if isinstance(dtype, np.dtype) else numpy_dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self._data.shape)

    @property
    def weak_type(self) -> bool:
        """Whether the dtype came from a Python scalar and so gives way to others."""
        return self._weak_type


if TYPE_CHECKING or native is None:
    _Base = _Fields
else:
    _Base = native.ArrayBase


class Array(_Base):
    """An immutable n-dimensional array; `data` is taken as it is and must not be written to afterwards."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    # ---- what it is

    @property
    def size(self) -> int:
        return math.prod(self._data.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Device:
        """The device whose memory holds the array; the sharding of one that several hold, as in JAX."""
        data = self._present()
        if isinstance(data, np.ndarray):
            return _device.own_cpu()
        if isinstance(data, Shards):
            return data.sharding.devices[0] if len(data.arrays) == 1 else data.sharding
        if _on_device(data):
            return _device.cuda(data.device)
        return _device.cuda(data.device.index or 0) if _is_tensor(data) else _device.of_jax(data)

    def devices(self) -> set[Device]:
        """The devices that hold the array or a part of it."""
        data = self._data
        return set(data.sharding.devices) if isinstance(data, Shards) else {self.device}

    # ---- its values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A read-only ndarray over the same memory; a writable copy with copy=True or another dtype."""
        if self.dtype.names:
            raise TypeError(
                "JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use fuser.random.key_data(keys) for its words"
            )
        data = to_numpy(self)
        if copy:
            return np.array(data, dtype=dtype)
        if dtype is None or data.dtype == dtype:
            return data
        if copy is False:
            raise ValueError(
                f"a view of a {data.dtype} array as {np.dtype(dtype)} needs a copy, and copy=False forbids it"
            )
        return data.astype(dtype)

    def __len__(self) -> int:
        if not self._data.shape:
            raise TypeError("len() of unsized object")
        return int(self._data.shape[0])

    def __iter__(self) -> Iterator[Array]:
        if not self._data.shape:
            raise TypeError("iteration over a 0-d array")
        data = self._present()
        # Rows are copies: an array that shares its memory could not be donated without changing them.
        if type(data) is Shards and len(data.arrays) == 1:  # rows lie where the array does
            return (self[i] for i in range(len(data)))  # type: ignore[index]
        return (Array(_copied(_row(data, i)), self._weak_type, self._dtype) for i in range(data.shape[0]))

    def item(self, *index: Any) -> Any:
        """The element at the index, or the only one, as a Python scalar."""
        return to_numpy(self).item(*index)

    def tolist(self) -> Any:
        """The values as nested lists of Python scalars."""
        return to_numpy(self).tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The values' bytes in the given order of elements."""
        return to_numpy(self).tobytes(order)

    def __bool__(self) -> bool:
        if self.dtype.names:
            raise TypeError("key array cannot be converted to boolean.")
        if self.size == 0:
            raise ValueError(
                "The truth value of an empty array is ambiguous."
                " Use `array.size > 0` to check that an array is not empty."
            )
        if self.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(to_numpy(self))

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __index__(self) -> int:
        if self._data.shape or self.dtype.kind not in "iu":
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return operator.index(to_numpy(self).item())

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("fuser arrays are immutable: x[index] = value cannot run; use x = x.at[index].set(value)")

    def _scalar(self) -> np.ndarray[Any, Any]:
        if self._data.shape:
            raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={self.ndim}")
        return to_numpy(self)

    # ---- printing

    def __repr__(self) -> str:
        if self.dtype.names:  # random keys
            words = to_numpy(self)[self.dtype.names[0]]
            return f"Array({self.shape}, dtype=key<{self.dtype.names[0]}>) overlaying:\n{words}"
        weak = ", weak_type=True" if self._weak_type else ""
        dtype = f"dtype={self.dtype.name}{weak}"
        width = np.get_printoptions()["linewidth"]
        if type(self._data) is Shards and self._data.sharding.unreduced:
            return f"Array(shape={self.shape}, {dtype}, sharding={self._data.sharding})"
        if self.size == 0:
            self._present()
            values = f"[], shape={self.shape}"
        else:
            values = np.array2string(to_numpy(self), prefix="Array(", suffix=",", separator=", ", max_line_width=width)
        last_line = len(values) - values.rfind("\n") + 1
        separator = " " * len("Array(") if last_line + len(dtype) + 2 > width else " "
        return f"Array({values},{separator}{dtype})"

    def __str__(self) -> str:
        in_terms = type(self._data) is Shards and self._data.sharding.unreduced
        return repr(self) if self.dtype.names or in_terms else str(to_numpy(self))

    def __format__(self, spec: str) -> str:
        data = to_numpy(self)
        return format(data if data.ndim else data[()], spec)

    # ---- exchange

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """A DLPack capsule over the same memory. Whoever takes it must not write to it: DLPack cannot always say so."""
        data = self._present()
        if _on_device(data):
            data = _tensor_over(data)
        if not isinstance(data, np.ndarray):
            return data.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if data.dtype in _CARRIERS:
            return self.torch().__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
        return _writable(data).__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        data = self._present()
        if isinstance(data, np.ndarray):
            return _CPU_DLPACK
        if _on_device(data):
            return _CPU_DLPACK if data.on_host else (2, data.device)  # kDLCUDA
        kind, index = data.__dlpack_device__()
        return int(kind), int(index)

    def torch(self) -> Any:
        """A torch tensor over the same memory; do not write to it. Raises ImportError without torch."""
        data = self._present()
        if _is_tensor(data):
            return data
        if _on_device(data):
            return _tensor_over(data)
        import torch

        data = to_numpy(self)

        if data.dtype in CARRIED:
            return torch.from_numpy(_writable(data.view(CARRIED[data.dtype])))
        carrier = _CARRIERS.get(data.dtype)
        if carrier is None:
            return torch.from_numpy(_writable(data))
        return torch.from_numpy(_writable(data.view(carrier))).view(getattr(torch, data.dtype.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (np.array(to_numpy(self), order="C"), self._weak_type)

    def __copy__(self) -> Array:
        """An array with memory of its own, which outlives the donation of this one."""
        return Array(_copied(self._present()), self._weak_type, self._dtype)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    # ---- life

    def block_until_ready(self) -> Array:
        """This array, once the device has computed it."""
        data = self._present()
        if _is_tensor(data) and data.is_cuda:
            import torch

            torch.cuda.current_stream(data.device).synchronize()
        elif not isinstance(data, np.ndarray):
            data.block_until_ready()
        return self

    def is_ready(self) -> bool:
        """Whether the values are computed: always, on the CPU."""
        data = self._present()
        if _is_tensor(data) and data.is_cuda:
            import torch

            return bool(torch.cuda.current_stream(data.device).query())
        return bool(data.is_ready()) if _on_device(data) or type(data) is Shards else True

    def copy_to_host_async(self) -> None:
        """Begin to copy the values to the host, where they are needed next; nothing on the CPU, where they are."""
        self._present()

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element; the memory is the array's, and nobody may write to it."""
        data = self._present()
        if type(data) is Shards:
            [data] = data._held_alone()
        if _on_device(data):
            return int(data.address)
        return int(data.data_ptr() if _is_tensor(data) else data.ctypes.data)

    def on_device_size_in_bytes(self) -> int:
        """Bytes of memory that the elements take."""
        return self.nbytes

    def delete(self, reason: str = "x.delete() was called") -> None:
        """Give the memory up now; every later use of the values raises RuntimeError."""
        if not self._deleted:
            self._data = _Deleted(self.shape, self.dtype, reason)
            self._deleted = True

    def is_deleted(self) -> bool:
        """Whether the memory was given up, by `delete` or by donation."""
        return self._deleted

    def donate(self) -> tuple[Any, bool]:
        """Delete the array; returns its memory, and whether a result may be written there: nobody else can see it."""
        data = self._present()
        self.delete("it was donated to a jitted call")
        unshared = _owned(data) and sys.getrefcount(data) <= _references
        return data, unshared

    def _present(self) -> Any:
        if self._deleted:
            raise self._data.error()
        return self._data


class _Deleted:
    """What stands in the place of an array's memory once it is gone: it still knows shape and dtype."""

    __slots__ = ("dtype", "reason", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], reason: str) -> None:
        self.shape, self.dtype, self.reason = shape, dtype, reason

    def error(self) -> RuntimeError:
        extents = ",".join(map(str, self.shape))
        return RuntimeError(f"Array has been deleted with shape={self.dtype.name}[{extents}]; {self.reason}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.error()

    def __getattr__(self, name: str) -> Any:
        raise self.error()


def install(name: str, function: Callable[..., Any] | property) -> None:
    """Put a method, property or operator on `Array`."""
    setattr(Array, name, function)


def alias(x: Array) -> Array:
    """Another Array over the memory of `x`, which outlives the deletion of `x`."""
    return Array(x._present(), x._weak_type, x._dtype)


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """The values on the host: read-only and over the same memory where `x` lives there. Takes array-likes too."""
    if not isinstance(x, Array):
        return np.asarray(x)
    data = x._present()
    on_device = _on_device(data)
    if on_device or _is_tensor(data):
        for told in fetched:
            told(x)
    if on_device:
        data = native.device_download(data)
    elif not isinstance(data, np.ndarray):
        data = _tensor_to_numpy(data.cpu()) if _is_tensor(data) else np.asarray(data)
        data = data if x._dtype is None else data.view(x._dtype)
    view: np.ndarray[Any, Any] = data.view()
    view.flags.writeable = False
    return view


def from_torch(tensor: Any) -> Array:
    """An Array over a torch tensor's memory (a contiguous copy if it is strided); CUDA tensors stay on their device."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    tensor = (tensor.new_zeros(tensor.shape) if tensor._is_zerotensor() else tensor).contiguous()
    if tensor.device.type == "cpu":
        return Array(_tensor_to_numpy(tensor))
    return Array(device_array_over(tensor) if native is not None and native.cuda_name() is not None else tensor)


def from_dlpack(source: Any) -> Array:
    """An Array over the memory of anything that speaks DLPack, or of an ndarray; a contiguous copy if it is strided."""
    if isinstance(source, Array):
        return alias(source)
    if isinstance(source, np.ndarray):
        return Array(np.ascontiguousarray(source).reshape(source.shape))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        return from_torch(source)
    if not hasattr(source, "__dlpack__"):
        raise TypeError(f"from_dlpack needs an object with __dlpack__, got {type(source).__name__}")
    if source.__dlpack_device__()[0] == _CPU_DLPACK[0]:
        try:
            data = np.from_dlpack(source)
            return Array(np.ascontiguousarray(data).reshape(data.shape))
        except (BufferError, RuntimeError):  # a dtype that NumPy's DLPack lacks, such as bfloat16
            pass
    from torch.utils import dlpack

    return from_torch(dlpack.from_dlpack(source))


def require_device(tensor: Any, number: int) -> None:
    """ValueError where a CUDA tensor lies on another device than the one of that number."""
    if tensor.device.index != number:
        raise ValueError(
            f"an array on cuda:{tensor.device.index} reaches a program on cuda:{number}; move it with device_put"
        )


def device_array_over(tensor: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """The native core's array over the memory of a dense CUDA tensor; a copy where kernels could not read it. `dtype` is the
    elements' own where torch knows but a carrier."""
    if tensor.device.type == "cpu":
        return native.device_upload(to_numpy(Array(tensor, dtype=dtype)))
    require_device(tensor, native.cuda_device())
    shape, kind = tuple(tensor.shape), dtype or numpy_dtype(tensor.dtype)
    found = native.device_foreign(tensor.data_ptr(), shape, kind, tensor, 0)
    return found.clone() if found.address % _ALIGNMENT else found


def _tensor_over(data: Any) -> Any:
    """A torch tensor over the memory of the native core's array, which work on torch's current stream may use."""
    import torch

    kind = CARRIED.get(data.dtype) or _CARRIERS.get(data.dtype, data.dtype)
    memory = _DeviceMemory(data.ordered(), kind)
    if data.on_host:  # of a driver that stands in for one, and then nothing else waits
        data.block_until_ready()
        tensor = torch.from_numpy(np.asarray(memory) if memory.size else np.empty(data.shape, kind))
    elif memory.size:
        tensor = torch.as_tensor(memory, device=f"cuda:{data.device}")
    else:
        tensor = torch.empty(data.shape, dtype=getattr(torch, kind.name), device=f"cuda:{data.device}")
    return tensor.view(torch_dtype(data.dtype))


class _DeviceMemory:
    """The memory of the native core's array as NumPy's and CUDA's array interfaces describe it."""

    def __init__(self, data: Any, kind: np.dtype[Any]) -> None:
        self.owner, self.size = data, math.prod(data.shape)
        place = {"shape": data.shape, "typestr": kind.str, "data": (data.address, False), "version": 3}
        if data.on_host:
            self.__array_interface__ = place
        else:
            self.__cuda_array_interface__ = place


def torch_holds(dtype: np.dtype[Any]) -> bool:
    """Whether torch has a dtype for these elements, or one that carries their bits."""
    return dtype.kind != "V" or dtype in _CARRIERS or dtype in CARRIED


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """The torch dtype that holds elements of a dtype: that of the same name, or a carrier of their bits."""
    import torch

    return getattr(torch, CARRIED.get(dtype, dtype).name)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of the same name as a torch dtype."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _is_tensor(data: Any) -> bool:
    """Whether an array's memory is a torch tensor."""
    return hasattr(data, "data_ptr")


def on_gpu(data: Any) -> bool:
    """Whether an array's memory is a GPU's: neither the host's, nor a TPU's, nor parts on several devices."""
    return _is_tensor(data) or _on_device(data)


def _on_device(data: Any) -> bool:
    """Whether an array's memory is the native core's, on a GPU."""
    return native is not None and isinstance(data, native.DeviceArray)


def _row(data: Any, number: int) -> Any:
    if not _on_device(data):
        return data[number]
    return data.part(number * math.prod(data.shape[1:]) * data.dtype.itemsize, data.shape[1:])


def _copied(data: Any) -> Any:
    """The same values in memory of their own; a jax.Array, which nobody writes to, is its own copy."""
    if isinstance(data, (np.ndarray, np.generic)):
        return copied(data)
    return data.clone() if _is_tensor(data) or _on_device(data) else data


def _tensor_to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(tensor.dtype)
    carrier = _CARRIERS.get(dtype)
    if carrier is None:
        return np.asarray(tensor.numpy())
    import torch

    return np.asarray(tensor.view(getattr(torch, carrier.name)).numpy()).view(dtype)


def _writable(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`data`, or if it is read-only, which old DLPack cannot express, an alias that does not say so."""
    if data.flags.writeable:
        return data
    return np.asarray(_Alias(data))


class _Alias:
    """The memory of a read-only ndarray, offered as writable."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.owner = data
        interface = dict(data.__array_interface__)
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


def _owned(data: Any) -> bool:
    """Whether this ndarray, and not something that it was made from, owns its memory."""
    if not isinstance(data, np.ndarray) or not data.flags.writeable:
        return False
    return data.flags.owndata or isinstance(data.base, OWNERS)


def _references_when_alone() -> int:
    """What `getrefcount` says in `Array.donate` of data that nobody else holds: it differs between Pythons."""
    data = np.zeros(1)
    return sys.getrefcount(data)


_references = _references_when_alone()
if native is not None:
    native.adopt_array(Array, _Deleted, numpy_dtype, CARRIED)
