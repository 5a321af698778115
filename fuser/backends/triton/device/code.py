"""Generated kernels as code of the device: compiled ahead of the launch by Triton, loaded by the driver, kept by their text.

`images` is what stands between a text and the driver; tests put the C backend's twin of a kernel there.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton.device import library_calls
from fuser.backends.triton.device.compilation import Job
from fuser.backends.triton.emitter import Launch, TensorMap
from fuser.backends.triton.launch import module_of, refused
from fuser.ir.types import short_dtype
from fuser.runtime.core import native

# dtypes of numbers that kernels take by value: the names of their types in Triton
BY_VALUE = {"f32": "fp32", "f64": "fp64", "i32": "i32", "i64": "i64", "u32": "u32", "u64": "u64"}
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_TYPES_OF_HOST = {
    8: 10,
    9: 8,
    10: 9,
}  # CUtensorMapDataType of what Triton numbers in another way (float64, bfloat16 and one more)
COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@dataclass(frozen=True)
class Passing:
    """How a kernel gets its buffers: `values` are numbers, `loose` addresses that need not be multiples of 16."""

    values: frozenset[int] = frozenset()
    loose: frozenset[int] = frozenset()


@dataclass(frozen=True)
class EncodedMap:
    """How the code of a kernel wants a tensor map: CUtensorMapDataType, CUtensorMapSwizzle, and the box that a copy takes."""

    dtype: int
    swizzle: int
    box: tuple[int, ...]


@dataclass(frozen=True)
class Image:
    """What the driver loads for one launch, and for others of other sizes: the code, the kernel's name in it, its threads and bytes of shared
    memory, which of a launch and its smaller ones it is of, the most programs of it (0: as many as a launch has), and its tensor maps."""

    code: bytes
    name: str
    threads: int
    shared: int
    choice: int = 0
    most: int = 0
    maps: tuple[EncodedMap, ...] = ()


@dataclass(frozen=True)
class Mapped:
    """A tensor map as a parameter: of which buffer, from which byte, its extents and strides in elements, and how it is encoded: dtype,
    swizzle, and with the innermost dimension first extents, strides in bytes and the box."""

    buffer: int
    first: int
    sizes: tuple[tuple[str, int], ...]
    encoding: tuple[Any, ...]


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch: the kernel's address, how it is started, its tensor maps, its buffers by number and its integers (kind, value)."""

    function: int
    grid: int
    threads: int
    shared: int
    maps: tuple[Mapped, ...]
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


def jobs(source: KernelSource, passing: Passing) -> list[Job]:
    """What compiling the launches of a source takes."""
    if not isinstance(images, Images):
        return []
    launches = enumerate(source.launch["launches"])
    return [
        Job(source, n, "cuda", architecture(), passing.values, passing.loose) for n, launch in launches if launch.grid
    ]


def compiled(source: KernelSource, passing: Passing) -> Compiled:
    """The launches of a source whose buffers are passed like that. Raises ToolchainError."""
    launches, modules = [], []
    for number, launch in enumerate(source.launch["launches"]):
        if launch.grid == 0:
            continue
        module, function, image = _loaded(source, number, passing)
        modules.append(module)
        made = launch.choices[image.choice]
        dtypes = source.launch["dtypes"]
        maps = tuple(_mapped(m, how, dtypes[m.buffer].itemsize) for m, how in zip(made.maps, image.maps, strict=True))
        start = min(made.grid, image.most or made.grid), image.threads, image.shared
        launches.append(CompiledLaunch(function, *start, maps, made.buffers, (*_sizes(made), *_TRITONS)))
    return Compiled(tuple(launches), tuple(modules))


# Triton's kernels end with two pointers to scratch of the compiler's own, null where they need none.
_TRITONS = (("i64", 0), ("i64", 0))
_lock = threading.Lock()
_known: dict[Any, tuple[Any, int, Image]] = {}


def _sizes(launch: Launch) -> tuple[tuple[str, int], ...]:
    return tuple(("i32" if -(2**31) <= size < 2**31 else "i64", size) for size in launch.sizes)


def _mapped(tensor_map: TensorMap, how: EncodedMap, itemsize: int) -> Mapped:
    sizes = [("i32", extent) for extent in tensor_map.shape] + [("i64", stride) for stride in tensor_map.strides]
    strides = tuple(itemsize * stride for stride in tensor_map.strides[-2::-1])
    encoding = how.dtype, how.swizzle, tensor_map.shape[::-1], strides, how.box[::-1]
    return Mapped(tensor_map.buffer, itemsize * tensor_map.first, tuple(sizes), encoding)


def _loaded(source: KernelSource, number: int, passing: Passing) -> tuple[Any, int, Image]:
    key = native.cuda_device(), images.key(source, number, passing)  # a module is of one device
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
    architecture.cache_clear()
    library_calls.forget()


@functools.cache
def architecture() -> int:
    """The compute capability of the device that is open, times 10."""
    major, minor = map(native.cuda_attribute, COMPUTE_CAPABILITY)
    return 10 * major + minor


class Images:
    """Triton's compiler for the device that is open."""

    def key(self, source: KernelSource, number: int, passing: Passing) -> Any:
        """Equal keys have the same code; sizes and numbers of programs are none of it."""
        dtypes = (*source.launch["dtypes"], *(dtype for _, dtype in source.launch["scratch"]))
        return source.text, passing, dtypes, source.launch["launches"][number].code, architecture()

    def __call__(self, source: KernelSource, number: int, passing: Passing) -> Image:
        from fuser.backends.triton.aot import fitted, registers_of
        from fuser.backends.triton.machine_code import at_once

        try:
            planned = source.launch["launches"][number]
            launch, made = fitted(
                source,
                planned,
                "cuda",
                architecture(),
                values=passing.values,
                loose=passing.loose,
            )
        except Exception as error:
            raise refused(error, source, str(module_of(source)[0].__file__)) from error
        scratch = [getattr(made.metadata, name, 0) for name in ("global_scratch_size", "profile_scratch_size")]
        assert not any(scratch), "no generated kernel asks for scratch of the compiler's"
        threads, shared = 32 * made.metadata.num_warps, made.metadata.shared
        most = 0
        if launch.persistent:
            most = native.cuda_attribute(MULTIPROCESSORS) * at_once(threads, registers_of(made.asm["cubin"]), shared)
        choice = next(n for n, candidate in enumerate(planned.choices) if candidate is launch)
        maps = [
            EncodedMap(_TYPES_OF_HOST.get(m["elem_type"], m["elem_type"]), m["swizzle"], tuple(m["block_size"]))
            for m in (getattr(made.metadata, "tensordesc_meta", None) or ())
        ]
        return Image(made.asm["cubin"], made.metadata.name, threads, shared, choice, most, tuple(maps))


images: Any = Images()
