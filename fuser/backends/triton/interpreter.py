"""What Triton's interpreter (TRITON_INTERPRET=1) lacks, in NumPy: libdevice, and reductions and scans over whole blocks.

Generated files import libdevice, whose functions exist on a GPU alone; `prepare` puts the ones below in its place in a
loaded module. Triton's interpreter calls a reduction's combine function element by element; here it is called on halves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.scalar import VOCABULARY
from fuser.ir.types import bfloat16

_OTHER_NAMES = {"pow": "pow", "atan2": "atan2", "fmod": "rem", "nextafter": "nextafter", "rint": "round"}
_BITS = {"popc": "popcount", "clz": "clz"}


def active() -> bool:
    """Whether kernels run in the interpreter rather than on a GPU; not where Triton is not installed."""
    try:
        import triton
    except ModuleNotFoundError:
        return False
    knobs = getattr(triton, "knobs", None)
    return bool(knobs is not None and knobs.runtime.interpret)


def prepare(module: Any) -> None:
    """Make a loaded file of kernels ready for the interpreter."""
    if hasattr(module, "libdevice"):
        module.libdevice = Libdevice()
    from triton.runtime import interpreter

    if interpreter.InterpreterBuilder.create_dot is not _dot:
        _original.append(interpreter.InterpreterBuilder.create_dot)
        interpreter.InterpreterBuilder.create_dot = _dot
        _narrowing.append(interpreter.InterpreterBuilder.create_fp_trunc)
        interpreter.InterpreterBuilder.create_fp_trunc = _truncated
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan


class Libdevice:
    """The device library's functions on the interpreter's tensors, by the vocabulary's NumPy forms."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = VOCABULARY[_OTHER_NAMES.get(name) or _BITS.get(name) or name]
        function = operation.numpy
        assert function is not None

        def call(*args: Any) -> Any:
            arrays = [a.handle.data if hasattr(a, "handle") else np.asarray(a) for a in args]
            dtype = next(a for a in arrays if a.ndim or a.dtype.kind != "O").dtype
            with np.errstate(all="ignore"):
                result = np.asarray(function(*(np.asarray(a, dtype) for a in arrays))).astype(dtype)
            block = any(a.type.is_block() for a in args if hasattr(a, "handle"))
            return _tensor(result, np.dtype("int32") if name in _BITS else dtype, block)

        return call


def _tensor(data: Any, dtype: np.dtype, block: bool) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    kinds = {"f": "fp", "i": "int", "u": "uint"}
    scalar = tl.dtype(f"{kinds[dtype.kind]}{dtype.itemsize * 8}")
    data = np.asarray(data).astype(dtype)
    return tl.core.tensor(TensorHandle(data, scalar), tl.block_type(scalar, list(data.shape)) if block else scalar)


_original: list[Callable[..., Any]] = []  # Triton's own dot


def _dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    """InterpreterBuilder.create_dot, with bfloat16, which the interpreter holds as bare bits, widened first."""
    return _original[0](self, _widened(a), _widened(b), *rest)


_narrowing: list[Callable[..., Any]] = []  # Triton's own conversion to a narrower type


def _truncated(self: Any, src: Any, dst_type: Any) -> Any:
    """InterpreterBuilder.create_fp_trunc, with bfloat16 rounded to nearest as GPUs do; the interpreter cuts bits off."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if dst_type.scalar != tl.bfloat16 or src.dtype.scalar != tl.float32:
        return _narrowing[0](self, src, dst_type)
    with np.errstate(all="ignore"):
        bits = np.asarray(src.data).astype(bfloat16).view(np.uint16)
    return TensorHandle(bits, tl.bfloat16)


def _widened(handle: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if handle.dtype != tl.bfloat16:
        return handle
    bits = np.asarray(handle.data).view(np.uint16).astype(np.uint32) << 16
    return TensorHandle(bits.view(np.float32), tl.float32)


def _reduce(self: Any, inputs: Any) -> Any:
    """ReduceOps.generic_reduce, by halves: the block's extent is a power of two."""
    flat, axis = self.unravel(inputs, self.axis)
    dtypes = [x.dtype for x in flat]
    data = [np.moveaxis(x.handle.data, axis, 0) for x in flat]
    while data[0].shape[0] > 1:
        half = data[0].shape[0] // 2
        data = _combine(self, [d[:half] for d in data], [d[half:] for d in data], dtypes)
    results = []
    for array, dtype in zip(data, dtypes):
        result = np.moveaxis(array, 0, axis) if self.keep_dims else array[0]
        results.append(self.to_tensor(result if result.shape else result[()], dtype))
    return results


def _scan(self: Any, inputs: Any) -> Any:
    """ScanOps.generic_scan, in steps of 1, 2, 4, ... positions for all of the block at once."""
    dtypes = [x.dtype for x in inputs]
    data = [np.moveaxis(x.handle.data, self.axis, 0) for x in inputs]
    distance = 1
    while distance < data[0].shape[0]:
        step = _combine(self, [np.roll(d, distance, 0) for d in data], data, dtypes)  # blocks keep their extents
        data = [np.concatenate([old[:distance], new[distance:]]) for old, new in zip(data, step)]
        distance *= 2
    return [self.to_tensor(np.moveaxis(array, 0, self.axis), dtype) for array, dtype in zip(data, dtypes)]


def _combine(op: Any, left: list[Any], right: list[Any], dtypes: list[Any]) -> list[Any]:
    """One call of a reduction's combine function on arrays."""
    result = op.combine_fn.fn(*(op.to_tensor(a, d) for a, d in zip((*left, *right), (*dtypes, *dtypes))))
    result = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r.handle.data).reshape(np.shape(left[0])) for r in result]
