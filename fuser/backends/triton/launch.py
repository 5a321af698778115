"""Loaded kernels: a generated file as a Python module, and what launches its kernels on arrays.

A file's text goes into the disk cache under its content's address and is imported from there; Triton compiles each
kernel when it is first launched and keeps the result on disk itself.
"""

from __future__ import annotations

import importlib.util
import linecache
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton import interpreter
from fuser.backends.triton.emitter import Launch, TensorMap
from fuser.backends.triton.target import WARP
from fuser.errors import ToolchainError
from fuser.runtime import compilers, toolchain
from fuser.runtime.array import torch_dtype
from fuser.runtime.cache import default_cache

_modules: dict[str, ModuleType] = {}
_lock = threading.Lock()
# What plain exceptions say that come out of Triton's compilers.
_OF_COMPILERS = ("PassManager", "C compiler", "ptxas", "LLVM", "failed to translate")


def module_of(source: KernelSource) -> tuple[ModuleType, bool]:
    """The file of a source as a module, and whether this process had it already. Raises ToolchainError."""
    text = toolchain.overridden(source.name, source.text, ".py")
    with _lock:
        known = _modules.get(text)
        if known is not None:
            return known, True
        path = default_cache().get(f"triton {text}") or default_cache().put(f"triton {text}", ".py", text.encode())
        name = f"fuser_kernels_{len(_modules)}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ToolchainError(
                f"the Triton kernels in {path} cannot be read: {type(error).__name__}: {error}"
            ) from error
        linecache.checkcache(str(path))
        if interpreter.active():
            interpreter.prepare(module)
        _modules[text] = module
        return module, False


def options(platform: str = "") -> dict[str, Any]:
    """What every kernel is compiled with: a product and a sum round apart, and subnormal numbers stay."""
    fixed = {"enable_fp_fusion": False}
    if (platform or _target()[0]) != "cuda":
        return fixed
    from triton.backends.nvidia.compiler import CUDAOptions

    known = "enable_reflect_ftz" in CUDAOptions.__dataclass_fields__  # older releases keep them without being told
    return fixed | ({"enable_reflect_ftz": False} if known else {})


def _target() -> tuple[str, int | str]:
    """The platform and architecture of the GPU that Triton sees; nothing in the interpreter."""
    import triton

    if interpreter.active():
        return "", ""
    target = triton.runtime.driver.active.get_current_target()
    return target.backend, target.arch


def constants(launch: Launch, platform: str, arch: int | str) -> dict[str, Any]:
    """The constants of a launch on a GPU: whether it takes PTX, or AMD's assembly, too."""
    taken = {"PTX": platform == "cuda" and isinstance(arch, int) and arch >= 80, "GCN": platform == "hip"}
    return launch.constants | {name: value for name, value in taken.items() if name in launch.constants}


def limits(launch: Launch, platform: str) -> dict[str, int]:
    """What a program of a launch may have on a GPU: warps, stages and, where it says so, registers a thread."""
    found = {"num_warps": warps(launch, platform), "num_stages": launch.stages}
    return found | ({"maxnreg": launch.registers} if launch.registers and platform == "cuda" else {})


def warps(launch: Launch, platform: str) -> int:
    """The warps of a program: fewer where they have 64 threads and each would take less than a whole access."""
    most = launch.threads // WARP[platform] if platform in WARP and launch.threads else launch.warps
    return max(1, min(launch.warps, most))


class Launcher:
    """Launches a source's kernels on the current stream, for the list of the group's arrays: inputs, then outputs."""

    def __init__(self, source: KernelSource, device: str) -> None:
        module, _ = module_of(source)
        self.source, self.device = source, device
        self.path = str(module.__file__)
        self.launches: tuple[Launch, ...] = tuple(_fitted(source, launch) for launch in source.launch["launches"])
        self.kernels = [getattr(module, launch.function) for launch in self.launches]
        self.scratch: Sequence[tuple[int, Any]] = source.launch["scratch"]
        self.common = options()
        self.constants = [constants(launch, *_target()) for launch in self.launches]
        self.limits = [limits(launch, _target()[0]) for launch in self.launches]

    def __call__(self, arrays: Sequence[Any]) -> None:
        self.launch(arrays, [allocate(size, dtype, self.device) for size, dtype in self.scratch])

    def launch(self, arrays: Sequence[Any], scratch: Sequence[Any]) -> list[tuple[Launch, Any]]:
        """Launch through Triton, which compiles what it has not met; gives its compiled kernels."""
        buffers = [real(array) for array in (*arrays, *scratch)]
        for operand, result in self.source.launch.get("begins_as", ()):
            if buffers[operand].data_ptr() != buffers[result].data_ptr():
                buffers[result].view(-1).copy_(buffers[operand].view(-1))
        compiled = []
        each = zip(self.kernels, self.launches, self.constants, self.limits, strict=True)
        for kernel, launch, known, limited in each:
            if launch.grid == 0:
                continue
            maps = (_described(m, (*arrays, *scratch)[m.buffer]) for m in launch.maps)
            arguments = [*maps, *(buffers[n] for n in launch.buffers)]
            try:
                made = kernel[(launch.grid,)](
                    *arguments,
                    *launch.sizes,
                    **known,
                    **limited,
                    **self.common,
                )
            except Exception as error:
                raise refused(error, self.source, self.path) from error
            compiled.append((launch, made))
        return compiled


def _fitted(source: KernelSource, launch: Launch) -> Launch:
    """What to launch on the GPU that Triton sees."""
    if not launch.smaller or interpreter.active():
        return launch
    from fuser.backends.triton.aot import fitted

    try:
        return fitted(source, launch, *_target())[0]
    except Exception as error:
        raise refused(error, source, str(module_of(source)[0].__file__)) from error


def _described(tensor_map: TensorMap, array: Any) -> Any:
    """A tensor map as Triton takes it."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    base = array.reshape(-1)[tensor_map.first :]
    return TensorDescriptor(base, list(tensor_map.shape), list(tensor_map.strides), list(tensor_map.block))


def real(array: Any) -> Any:
    """A tensor as kernels take it: complex numbers as pairs of real ones, floats of 8 bits as bytes."""
    import torch

    if array.is_complex():
        return torch.view_as_real(array)
    return array.view(torch.uint8) if array.dtype.is_floating_point and array.itemsize == 1 else array


def allocate(size: int, dtype: Any, device: str) -> Any:
    """Uninitialised device memory for a scratch array."""
    import torch

    return torch.empty(size, dtype=torch_dtype(dtype), device=device)


def refused(error: Exception, source: KernelSource, path: str) -> Exception:
    """The error of a launch, as a ToolchainError if a compiler is its origin; `path` is where the kernels are."""
    import subprocess

    import triton

    if isinstance(error, subprocess.CalledProcessError):  # gcc, of what Triton itself has compiled to launch kernels
        words = error.stderr or error.output or ""
        words = words.decode(errors="replace") if isinstance(words, bytes) else words
        command = [error.cmd] if isinstance(error.cmd, str) else [str(part) for part in error.cmd]
        return ToolchainError(
            f"Triton cannot build what launches {source.name}: {compilers.failure(command, error.returncode, words)}"
        )
    family = (triton.errors.TritonError, triton.CompilationError)
    if not isinstance(error, family) and not any(part in str(error) for part in _OF_COMPILERS):
        return error
    words = str(error).strip() or f"nothing ({type(error).__name__})"
    return ToolchainError(
        f"Triton refused generated code for {source.name}; it says:\n{words}\n(the kernels are kept in {path})"
    )
