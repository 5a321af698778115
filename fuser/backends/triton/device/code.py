"""Generated kernels as code of the device: compiled ahead of the launch by Triton, loaded by the driver, kept by their text.

`images` is what stands between a text and the driver; tests put the C backend's twin of a kernel there.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.launch import module_of, refused
from fuser.ir.types import short_dtype
from fuser.runtime.core import native

# dtypes of numbers that kernels take by value: the names of their types in Triton
BY_VALUE = {"f32": "fp32", "f64": "fp64", "i32": "i32", "i64": "i64", "u32": "u32", "u64": "u64"}
COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@dataclass(frozen=True)
class Passing:
    """How a kernel gets its buffers: `values` are numbers, `loose` addresses that need not be multiples of 16."""

    values: frozenset[int] = frozenset()
    loose: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Image:
    """What the driver loads for one launch: the code, the kernel's name in it, its threads and bytes of shared memory; `grid`: its
    programs, where they are not as many as planned."""

    code: bytes
    name: str
    threads: int
    shared: int
    grid: int = 0


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch: the kernel's address, how it is started, its buffers by number and its integers (kind, value) behind them."""

    function: int
    grid: int
    threads: int
    shared: int
    buffers: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Compiled:
    """The launches of a source, and the modules that hold their code."""

    launches: tuple[CompiledLaunch, ...]
    modules: tuple[Any, ...]


def by_value(dtype: Any) -> bool:
    """Whether kernels take a number of this dtype as a parameter."""
    return short_dtype(dtype) in BY_VALUE


def compiled(source: KernelSource, passing: Passing) -> Compiled:
    """The launches of a source whose buffers are passed like that. Raises ToolchainError."""
    launches, modules = [], []
    for number, launch in enumerate(source.launch["launches"]):
        if launch.grid == 0:
            continue
        module, function, image = _loaded(source, number, passing)
        modules.append(module)
        launches.append(
            CompiledLaunch(
                function,
                image.grid or launch.grid,
                image.threads,
                image.shared,
                launch.buffers,
                (*_sizes(launch), *_TRITONS),
            )
        )
    return Compiled(tuple(launches), tuple(modules))


# Triton's kernels end with two pointers to scratch of the compiler's own, null where they need none.
_TRITONS = (("i64", 0), ("i64", 0))
_lock = threading.Lock()
_known: dict[Any, tuple[Any, int, Image]] = {}


def _sizes(launch: Launch) -> tuple[tuple[str, int], ...]:
    return tuple(("i32" if -(2**31) <= size < 2**31 else "i64", size) for size in launch.sizes)


def _loaded(source: KernelSource, number: int, passing: Passing) -> tuple[Any, int, Image]:
    key = images.key(source, number, passing)
    with _lock:
        if (known := _known.get(key)) is not None:
            return known
    image = images(source, number, passing)
    module = native.cuda_module(image.code)
    found = module, native.cuda_function(module, image.name, image.shared), image
    with _lock:
        return _known.setdefault(key, found)


def forget() -> None:
    """Drop all code: another driver is open."""
    with _lock:
        _known.clear()
    _architecture.cache_clear()


@functools.cache
def _architecture() -> int:
    major, minor = map(native.cuda_attribute, COMPUTE_CAPABILITY)
    return 10 * major + minor


class Images:
    """Triton's compiler for the device that is open."""

    def key(self, source: KernelSource, number: int, passing: Passing) -> Any:
        """Equal keys have the same code."""
        launch = source.launch["launches"][number]
        constants = tuple(sorted(launch.constants.items()))
        kinds = tuple(kind for kind, _ in _sizes(launch))
        dtypes = tuple(source.launch["dtypes"])
        return source.text, number, passing, launch.warps, launch.stages, constants, kinds, dtypes, _architecture()

    def __call__(self, source: KernelSource, number: int, passing: Passing) -> Image:
        from fuser.backends.triton.aot import fitted

        try:
            launch, made = fitted(
                source,
                source.launch["launches"][number],
                "cuda",
                _architecture(),
                values=passing.values,
                loose=passing.loose,
            )
        except Exception as error:
            raise refused(error, source, str(module_of(source)[0].__file__)) from error
        scratch = [getattr(made.metadata, name, 0) for name in ("global_scratch_size", "profile_scratch_size")]
        assert not any(scratch), "no generated kernel asks for scratch of the compiler's"
        return Image(
            made.asm["cubin"], made.metadata.name, 32 * made.metadata.num_warps, made.metadata.shared, launch.grid
        )


images: Any = Images()
