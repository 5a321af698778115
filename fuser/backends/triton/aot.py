"""Compilation without a GPU: a source's kernels for any target that Triton knows, as PTX and cubin or AMD assembly."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.launch import constants, limits, module_of, options, warps
from fuser.backends.triton.spell import MATRIX_FLOATS
from fuser.backends.triton.target import WARP, shared_of_block
from fuser.runtime.array import CARRIED

ONCE_A_BLOCK = 128  # bytes of stack for what stays the same from block to block, which is read once for each
_NAMES = {"bool": "i1", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def compile_ahead(source: KernelSource, platform: str, arch: int | str) -> list[Any]:
    """Triton's compiled kernels of one source for a target such as ("cuda", 90) or ("hip", "gfx942"), one a launch.

    Arrays are taken to begin at multiples of 16 bytes, as torch's allocator makes them.
    """
    return [fitted(source, launch, platform, arch)[1] for launch in source.launch["launches"]]


def fitted(source: KernelSource, launch: Launch, platform: str, arch: int | str, **passing: Any) -> tuple[Launch, Any]:
    """A launch, or the first smaller one whose code keeps nothing on the stack and has the shared memory that the target gives, and its
    compiled kernel; where there is none, the one that lacks least. A program of many blocks may keep a few addresses there. `passing` is that of `compile_launch`."""
    least: tuple[int, Launch, Any] | None = None
    most = 1024 // WARP[platform]
    copies = copies_blocks(platform, arch)
    taken = [c for c in (launch, *launch.smaller) if not c.maps or (copies and mappable(c, **passing))]
    for candidate in [c for c in taken if warps(c, platform) <= most] or taken[:1]:
        kernel = compile_launch(source, candidate, platform, arch, **passing)
        lacking = stack_bytes(kernel, platform) if launch.smaller else 0
        lacking = max(0, lacking - ONCE_A_BLOCK) if candidate.persistent else lacking
        lacking += max(0, kernel.metadata.shared - shared_of_block(platform, arch))
        if least is None or lacking < least[0]:
            least = lacking, candidate, kernel
        if lacking == 0:
            break
    assert least is not None
    return least[1:]


def copies_blocks(platform: str, arch: int | str) -> bool:
    """Whether a GPU copies blocks by tensor maps (TMA): NVIDIA's from compute capability 9.0 on."""
    return platform == "cuda" and isinstance(arch, int) and arch >= 90


def mappable(launch: Launch, values: Collection[int] = (), loose: Collection[int] = ()) -> bool:
    """Whether a launch's tensor maps can be made of buffers that are passed like that (`compile_launch`)."""
    return all(m.buffer not in values and m.buffer not in loose for m in launch.maps)


def stack_bytes(kernel: Any, platform: str) -> int:
    """Bytes of stack a thread of a compiled kernel, where values go that no register holds."""
    text = resource_usage(kernel.asm["cubin"]) if platform == "cuda" else kernel.asm["amdgcn"]
    found = re.search(r"STACK:(\d+)|\.private_segment_fixed_size:\s+(\d+)", text)
    return int(found[1] or found[2]) if found else 0


def registers_of(cubin: bytes) -> int:
    """Registers a thread of a cubin's kernel."""
    found = re.search(r"REG:(\d+)", resource_usage(cubin))
    return int(found[1]) if found else 0


def resource_usage(cubin: bytes) -> str:
    """Registers, stack and shared memory of a cubin, in words."""
    return _dump(cubin, "--dump-resource-usage")


def disassembled(cubin: bytes) -> str:
    """The machine code of a cubin."""
    return _dump(cubin, "-sass")


def _dump(cubin: bytes, option: str) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def compile_launch(
    source: KernelSource,
    launch: Launch,
    platform: str,
    arch: int | str,
    values: Collection[int] = (),
    loose: Collection[int] = (),
) -> Any:
    """Triton's compiled kernel of one launch; the buffers `values` are numbers, passed as such, and `loose` ones may begin
    anywhere."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget(platform, arch, WARP[platform])
    function = getattr(module_of(source)[0], launch.function)
    dtypes = [*source.launch["dtypes"], *(dtype for _, dtype in source.launch["scratch"])]
    element = lambda n: _name(CARRIED.get(dtypes[n], dtypes[n]).name)
    types = [
        f"tensordesc<{MATRIX_FLOATS.get(dtypes[m.buffer]) or element(m.buffer)}{list(m.block)}>" for m in launch.maps
    ]
    types += [f"{'' if n in values else '*'}{element(n)}" for n in launch.buffers]
    types += ["i32" if -(2**31) <= size < 2**31 else "i64" for size in launch.sizes]
    types += ["constexpr"] * len(launch.constants)
    names = function.arg_names
    known = {(names.index(name),): value for name, value in constants(launch, platform, arch).items()}
    aligned = {
        (n,): [["tt.divisibility", 16]]
        for n, buffer in enumerate(launch.buffers, len(launch.maps))
        if buffer not in {*values, *loose}
    }
    settings = {**limits(launch, platform), **options(target.backend)}
    unit = ASTSource(function, dict(zip(names, types, strict=True)), constexprs=known, attrs=aligned)
    return triton.compile(unit, target=target, options=settings)


def _name(dtype: str) -> str:
    if dtype.startswith("float8"):
        return "u8"
    return _NAMES.get(dtype) or dtype.replace("uint", "u").replace("int", "i")
