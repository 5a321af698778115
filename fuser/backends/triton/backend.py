"""The Triton backend's six names, and how arrays come to the GPU and memory from torch's allocator."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource, Loaded, Stepwise, unsupported
from fuser.backends.triton import eager, interpreter
from fuser.backends.triton.emit import emit_kernel, emit_product
from fuser.backends.triton.launch import Launcher, module_of
from fuser.backends.triton.library import library
from fuser.backends.triton.matmul import refusal
from fuser.errors import OutOfMemoryError, UnsupportedError
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import SMALL, float8_e4m3b11fnuz, is_complex, short_dtype
from fuser.kernel.lower import lower
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FusionGroup, FusionLimits, Kind
from fuser.runtime.array import Array, torch_dtype
from fuser.runtime.executable import Step


class Triton(Stepwise):
    """Triton on the GPU."""

    name = "triton"
    platform = "cuda"
    # No arena: torch's allocator reuses freed memory in the order of the stream, and lets other programs have it between steps.
    limits = FusionLimits(control=True, dots=True)

    def supports(self, eqn: Eqn) -> str | None:
        if eqn.primitive.fusion is Fusion.DOT:
            return refusal(eqn)
        if (reason := unsupported(eqn, "runs in a library")) is not None:
            return reason
        for var in (*eqn.invars, *eqn.outvars):
            dtype = var.aval.dtype
            if dtype in SMALL:
                return f"{short_dtype(dtype)} is converted by ml_dtypes"
            if is_complex(dtype):
                return f"Triton has no complex numbers such as {short_dtype(dtype)}"
        return None

    def native(self, group: FusionGroup) -> str | None:
        return f"{group.name} is launched from there"

    def emit(self, group: FusionGroup) -> KernelSource:
        if group.kind is Kind.CONTRACTION:
            kernel, emitted = emit_product(group)
        else:
            kernel = lower_loop(group) if group.kind is Kind.LOOP else lower(group)
            emitted = emit_kernel(kernel)
        dtypes = tuple(param.dtype for param in kernel.params)
        launch = {"launches": emitted.launches, "scratch": emitted.scratch, "dtypes": dtypes}
        return KernelSource(group.name, emitted.text, "triton", tuple(p.name for p in kernel.params), launch)

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        start = time.perf_counter()
        _require_gpu()
        eager.install(self)
        new = sum(not module_of(source)[1] for source in sources)
        functions = tuple(Launcher(source, self.device()) for source in sources)
        return Loaded(functions, time.perf_counter() - start, new == 0, new)

    def library(self, group: FusionGroup) -> Callable[..., Any]:
        return library(group, self.place)

    def constant(self, value: Any) -> Any:
        return self.place(value._data if isinstance(value, Array) else value)

    def joined(self, steps: Sequence[Step], outputs: Sequence[int]) -> Sequence[Step]:
        from fuser.backends.triton.segment import joined

        return joined(steps, outputs)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype, label: str = "") -> Any:
        import torch

        try:
            return torch.empty(shape, dtype=torch_dtype(dtype), device=self.device())
        except torch.OutOfMemoryError as error:
            wanted = math.prod(shape) * dtype.itemsize
            raise OutOfMemoryError(
                f"the GPU has no {wanted} bytes left for {short_dtype(dtype)}{list(shape)}"
                f"{f' of {label}' if label else ''}; torch says: {error}"
            ) from None

    def place(self, value: Any) -> Any:
        """An array where kernels can read it: a torch tensor on the GPU; dtypes that torch lacks stay on the host."""
        if not isinstance(value, np.ndarray) and hasattr(value, "data_ptr"):
            return value if value.device.type == self.device() else value.to(self.device())
        value = np.asarray(value)
        if value.dtype == float8_e4m3b11fnuz:
            return value
        return Array(np.ascontiguousarray(value).reshape(value.shape)).torch().to(self.device())

    def device(self) -> str:
        """Where torch keeps the arrays; the interpreter runs on the CPU's."""
        return "cpu" if interpreter.active() else "cuda"


def _require_gpu() -> None:
    """UnsupportedError, with what to do, where Triton's kernels cannot run."""
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(
                f"the triton backend needs {name}, which is not installed; install fuser[gpu], or set FUSER_BACKEND=c"
            )
    import torch

    if not interpreter.active() and not torch.cuda.is_available():
        raise UnsupportedError(
            "the triton backend needs a GPU, and torch sees none; set FUSER_BACKEND=c, "
            "or TRITON_INTERPRET=1 to run kernels slowly in Triton's interpreter"
        )


BACKEND = Triton()
