"""Compilation without a GPU: a source's kernels for any target that Triton knows, as PTX and cubin or AMD assembly."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.launch import constants, module_of, options
from fuser.runtime.array import CARRIED

# A target's platform: the threads of a warp.
WARP = {"cuda": 32, "hip": 64}
_NAMES = {"bool": "i1", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def compile_ahead(source: KernelSource, platform: str, arch: int | str) -> list[Any]:
    """Triton's compiled kernels of one source for a target such as ("cuda", 90) or ("hip", "gfx942"), one a launch.

    Arrays are taken to begin at multiples of 16 bytes, as torch's allocator makes them.
    """
    return [compile_launch(source, launch, platform, arch) for launch in source.launch["launches"]]


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
    types = [f"{'' if n in values else '*'}{_name(CARRIED.get(dtypes[n], dtypes[n]).name)}" for n in launch.buffers]
    types += ["i32" if -(2**31) <= size < 2**31 else "i64" for size in launch.sizes]
    types += ["constexpr"] * len(launch.constants)
    names = function.arg_names
    known = {(names.index(name),): value for name, value in constants(launch, platform, arch).items()}
    aligned = {
        (n,): [["tt.divisibility", 16]] for n, buffer in enumerate(launch.buffers) if buffer not in {*values, *loose}
    }
    settings = {"num_warps": launch.warps, "num_stages": launch.stages, **options(target.backend)}
    unit = ASTSource(function, dict(zip(names, types, strict=True)), constexprs=known, attrs=aligned)
    return triton.compile(unit, target=target, options=settings)


def _name(dtype: str) -> str:
    return _NAMES.get(dtype) or dtype.replace("uint", "u").replace("int", "i")
