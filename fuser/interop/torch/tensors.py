"""torch tensors in, torch tensors out: `TracedTensor` stands for a tensor while a function written with torch is traced.

torch itself says what a result's dtype and shape are, by running the function on meta tensors, which hold no memory; the
tables of `torch_functions` and `torch_shapes` say how to compute it. What is computed under `torch.no_grad()` is a constant for derivatives.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensorMode

from fuser import lax
from fuser.errors import ConcretizationTypeError, TracerBoolConversionError, UnsupportedError
from fuser.interop.numpy.context import FALL_BACK, to_dtype, untraceable
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array, from_torch, numpy_dtype
from fuser.trace.core import Tracer

_WAY_OUT = 'or run the function in torch with fuser.accelerate(f, fallback="warn")'
_COMPILED = 'use torch.compile(f, backend="fuser"), which takes all of torch\'s functions'
_KINDS: dict[type, Any] = {float: 1.0, complex: 1j}


def refused(what: str, way_out: str = "") -> UnsupportedError:
    """As `untraceable`, with torch's way out."""
    error = untraceable(what, way_out)
    return UnsupportedError(str(error).replace(FALL_BACK, _WAY_OUT))


def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """The torch dtype of the same name."""
    return getattr(torch, dtype.name)  # type: ignore[no-any-return]


class TracedTensor:
    """A tensor without contents; `weak` is float or complex where it stands for a Python number."""

    __slots__ = ("device", "value", "weak")

    def __init__(self, value: Any, device: torch.device, weak: type | None = None) -> None:
        self.value = value
        self.device = device
        self.weak = weak

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(function, args, kwargs or {})

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        return torch_dtype(self.value.dtype)

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    @property
    def requires_grad(self) -> bool:
        return False

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def dim(self) -> int:
        return len(self.value.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return self.shape.numel()

    def __len__(self) -> int:
        return len(meta(self))

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __repr__(self) -> str:
        return f"traced<{self._aval}>"

    @property
    def _aval(self) -> ArrayType:
        return ArrayType(tuple(self.value.shape), self.value.dtype)

    def __jax_array__(self) -> Any:
        return self.value

    def __bool__(self) -> bool:
        raise TracerBoolConversionError(
            f"a traced {self._aval} has no value yet, so `if` cannot read it ({current_source().short}); "
            f"use torch.where, or make the argument that decides static with static_argnames, {_WAY_OUT}"
        )

    def _no_value(self, *args: Any) -> Any:
        raise ConcretizationTypeError(
            f"a traced {self._aval} has no value yet, so Python cannot read it ({current_source().short}); "
            f"keep it a tensor, or make the argument static with static_argnames, {_WAY_OUT}"
        )

    __float__ = __int__ = __index__ = __complex__ = item = tolist = numpy = cpu = _no_value

    def __getattr__(self, name: str) -> Any:
        from fuser.interop.torch.shapes import PROPERTIES, TABLE

        if name in PROPERTIES:
            return call(getattr(torch.Tensor, name).__get__, (self,), {}, name)
        if name in TABLE:
            return lambda *args, **kwargs: call(getattr(torch.Tensor, name), (self, *args), kwargs)
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        if name.endswith("_"):
            raise refused(
                f"x.{name} changes a tensor in place and cannot be traced",
                f"use x.{name.rstrip('_')}, which makes a new one",
            )
        raise refused(f"torch.Tensor.{name} cannot be traced", _COMPILED)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise refused(
            "x[index] = value changes a tensor in place and cannot be traced",
            "use torch.where, or torch.cat of the parts",
        )


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(operator, f"__{name.strip('_')}__", None)

    def method(self: TracedTensor, *others: Any) -> Any:
        return call(function, (self, *others), {}, name.strip("_"))

    return method


def _reflected(name: str) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")

    def method(self: TracedTensor, other: Any) -> Any:
        return call(function, (other, self), {}, name)

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: TracedTensor, other: Any) -> Any:
        raise refused(f"x {name}= y changes a tensor in place and cannot be traced", f"write x = x {name} y")

    return method


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@"}
_SIGNS |= {"and": "&", "or": "|", "xor": "^"}
for _name, _sign in _SIGNS.items():
    setattr(TracedTensor, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(TracedTensor, f"__r{_name}__", _reflected(_name))
    setattr(TracedTensor, f"__i{_name}__", _in_place(_sign))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem", "pos"):
    setattr(TracedTensor, f"__{_name}__", _operator(f"__{_name}__"))
TracedTensor.__hash__ = None  # type: ignore[assignment]


# Calls.


def call(function: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str = "") -> Any:
    """`function(*args, **kwargs)` of torch on traced tensors."""
    from fuser.interop.torch.shapes import TABLE

    name = name or getattr(function, "__name__", "")
    name = name.strip("_") if name.startswith("__") else name
    handler = TABLE.get(name)
    if handler is None:
        raise refused(f"{_title(function, name)} cannot be traced", _COMPILED)
    if name == "getitem":
        _check_index(args[1])
    expected = function(*(meta(a) for a in args), **{k: meta(v) for k, v in kwargs.items()})
    kwargs.pop("_stacklevel", None)
    if kwargs.pop("out", None) is not None:
        raise refused(f"{_title(function, name)} with out= cannot be traced")
    device = _device(args, kwargs)
    if type(expected) in _KINDS:  # Python numbers of Python numbers
        dtype = np.dtype(type(expected))
        return TracedTensor(to_dtype(handler(dtype, *args, **kwargs), dtype), device, type(expected))
    return _fitted(handler(_wanted(expected), *args, **kwargs), expected, device)


def _check_index(index: Any) -> None:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, TracedTensor) and part.dtype in (torch.bool, torch.uint8):
            raise refused(
                "x[mask] with a traced mask has a shape that depends on values and cannot be traced",
                "use torch.where(mask, x, y)",
            )


_MODULES = {
    "torch._C._nn": "torch.nn.functional",
    "torch._C._linalg": "torch.linalg",
    "torch._C._fft": "torch.fft",
    "torch._tensor": "torch.Tensor",
}


def _title(function: Any, name: str) -> str:
    """`torch.linalg.svd`."""
    module = getattr(function, "__module__", None) or "torch"
    return f"{_MODULES.get(module, module)}.{name.removeprefix('linalg_').removeprefix('fft_')}"


def meta(value: Any) -> Any:
    """The meta tensor of a traced or real tensor; trees of them; anything else as it is."""
    if isinstance(value, TracedTensor) and value.weak:
        return _KINDS[value.weak]
    if isinstance(value, (TracedTensor, torch.Tensor)):
        if not torch.is_autocast_enabled(value.device.type):
            return torch.empty(value.shape, dtype=value.dtype, device="meta")
        with _pretended():  # autocast's rules are those of the device
            return torch.empty(value.shape, dtype=value.dtype, device=value.device)
    if type(value) in (tuple, list):
        return type(value)(meta(v) for v in value)
    return torch.device("meta") if isinstance(value, torch.device) else value


@functools.cache
def _pretended() -> FakeTensorMode:
    """The mode in which tensors are made that have a device and no memory."""
    return FakeTensorMode()


def _wanted(expected: Any) -> np.dtype:
    """The dtype of the (first) result."""
    first = expected[0] if isinstance(expected, (tuple, list)) and expected else expected
    return numpy_dtype(first.dtype) if isinstance(first, torch.Tensor) else np.dtype(np.float32)


def _device(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device:
    for value in (*args, *kwargs.values()):
        if isinstance(value, (TracedTensor, torch.Tensor)):
            return value.device
        if type(value) in (tuple, list) and (found := _device(value, {})).type != "meta":
            return found
    return torch.device("meta")


def _fitted(found: Any, expected: Any, device: torch.device) -> Any:
    """Results with the dtypes, and in the containers, that torch gives."""
    if isinstance(expected, torch.Tensor):
        value = to_dtype(found, numpy_dtype(expected.dtype))
        if not torch.is_grad_enabled():
            value = lax.stop_gradient(value)
        assert tuple(value.shape) == tuple(expected.shape), (
            f"{tuple(value.shape)} where torch has {tuple(expected.shape)}"
        )
        return TracedTensor(value, device)
    if isinstance(expected, (tuple, list)):
        items = [_fitted(f, e, device) for f, e in zip(found, expected)]
        return items if type(expected) is list else tuple(items) if type(expected) is tuple else type(expected)(items)
    return expected


def lift(x: Any, dtype: np.dtype | None = None) -> Any:
    """A traced or real tensor, or a number, as primitives take it."""
    if isinstance(x, TracedTensor):
        value = x.value
    elif isinstance(x, torch.Tensor):
        check_gradient(x, "a tensor that the function uses")
        value = from_torch(x)
    elif isinstance(x, (Tracer, Array)):
        value = x
    else:
        return Array(np.asarray(x).astype(dtype))
    return value if dtype is None else to_dtype(value, dtype)


def check_gradient(x: torch.Tensor, what: str) -> None:
    """UnsupportedError for a tensor whose gradient torch would record here."""
    if x.requires_grad and torch.is_grad_enabled():
        raise refused(
            f"{what} requires grad, and cannot be followed to where it is held",
            "pass it as an argument, pass x.detach(), or call it under torch.no_grad()",
        )


def common(*values: Any) -> np.dtype:
    """The dtype of torch's promotion."""
    first, *rest = (meta(v) for v in values)
    dtype = None
    result: Any = first
    for other in rest:
        dtype = torch.result_type(result, other)
        result = torch.empty((1,), dtype=dtype, device="meta")
    return numpy_dtype(dtype if dtype is not None else first.dtype)
