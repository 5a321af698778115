"""Public names of JAX that fuser leaves out on purpose: each with its reason and what to use instead.

`absent(module)` is the `__getattr__` of a module that has such names: it raises AbsentError in their words. The page
docs/differences-from-jax.md lists the same names; a test keeps the two equal.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuser.errors import AbsentError

_HLO = "fuser lowers no program to XLA's HLO or MLIR"
_RULES = "give the primitive `eval`, and `lower` in the scalar vocabulary (docs/adding-a-primitive.md)"
_GSPMD = "XLA's SPMD partitioner takes no part in fuser"
_PRECISION = "it names an algorithm of XLA's"

# Modules that are left out whole: name in JAX -> (why, what instead).
MODULES: dict[str, tuple[str, str]] = {
    "experimental.buffer_callback": ("it hands out XLA's buffers", "a primitive of your own, whose `eval` takes NumPy arrays"),
    "experimental.colocated_python": ("it runs Python on hosts of IFRT, XLA's runtime interface", "several processes of your own"),
    "experimental.compute_on": ("it annotates XLA's HLO", "the `backend` argument of jit"),
    "experimental.custom_partitioning": (_GSPMD, "functions per device, by shard_map"),
    "experimental.jax2tf": ("it needs XLA's and TensorFlow's graphs", "jit(f).lower(x).as_text(), or the kernels that `python -m fuser compile` writes"),
    "experimental.mosaic": ("it is the GPU dialect behind XLA's custom calls", "the Triton backend's kernels; FUSER_OVERRIDE runs those that you edit"),
    "experimental.roofline": ("it prices XLA's operations on TPUs", "fuser.explain, which gives each kernel's bytes"),
    "experimental.scheduling_groups": ("it annotates XLA's HLO", "fuser.lax.optimization_barrier"),
    "experimental.serialize_executable": ("it stores XLA's executables", "the cache on disk, which keeps compiled kernels"),
    "experimental.source_mapper": ("it maps lines of XLA's HLO", "fuser.explain, which names the line behind each kernel"),
    "experimental.topologies": ("it describes devices to XLA's ahead-of-time compiler", "`python -m fuser compile --target`"),
    "experimental.transfer": ("it moves buffers of PJRT, XLA's runtime", "arrays through DLPack"),
    "experimental.xla_metadata": ("it annotates XLA's HLO", "fuser.explain, which names the line behind each kernel"),
    "extend.ifrt_programs": ("IFRT is XLA's runtime interface", "fuser.jit(f).lower(x).compile()"),
    "extend.lowering": (_HLO, _RULES),
    "extend.mlir": (_HLO, _RULES),
    "extend.sharding": ("its shardings are XLA's protocol buffers", "functions per device, by shard_map"),
    "extend.xla": ("it rewrites XLA's HLO", "a pass of fuser.passes"),
    "interpreters.mlir": (_HLO, _RULES),
    "interpreters.pxla": ("it makes options for XLA's compiler", "the settings of docs/environment.md"),
    "lib": ("it is XLA's Python extension", "fuser.runtime"),
}  # fmt: skip

# Single names that are left out: module in JAX ("" is jax itself) -> name -> (why, what instead).
NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "": {
        "jax2tf_associative_scan_reductions": ("it serves jax2tf alone", "nothing: no setting is needed"),
        "allow_f16_reductions": ("it sets how XLA accumulates", "nothing: sums of 16-bit floats are always taken in float32"),
        "softmax_custom_jvp": ("it chooses between two implementations that JAX has", "nothing: there is one softmax"),
        "remove_size_one_mesh_axis_from_type": (_GSPMD, "nothing: no setting is needed"),
    },
    "experimental.profiler": {
        "get_profiled_instructions_proto": ("it reads profiles of XLA's", "fuser.profile"),
    },
    "extend.backend": {
        "backend_xla_version": ("no backend is XLA's", "fuser.__version__"),
        "get_compile_options": ("it makes options for XLA's compiler", "the settings of docs/environment.md"),
        "register_backend_factory": ("it takes a PJRT client, XLA's runtime", "a folder in fuser/backends (docs/adding-a-backend.md)"),
    },
    "ffi": {
        "build_ffi_lowering_function": (_HLO, "fuser.ffi.ffi_call"),
        "ffi_lowering": (_HLO, "fuser.ffi.ffi_call"),
        "register_ffi_target_as_batch_partitionable": (_GSPMD, "functions per device, by shard_map"),
        "register_ffi_type": ("handlers of fuser/ffi.h keep no state of XLA's types", "a pointer as an integer attribute"),
        "register_ffi_type_id": ("handlers of fuser/ffi.h keep no state of XLA's types", "a pointer as an integer attribute"),
    },
    "profiler": {
        "ProfileData": ("it reads profiles of XLA's", "fuser.profile, whose reports are text, JSON and HTML"),
        "ProfileEvent": ("it reads profiles of XLA's", "fuser.profile, whose reports are text, JSON and HTML"),
        "ProfilePlane": ("it reads profiles of XLA's", "fuser.profile, whose reports are text, JSON and HTML"),
        "register_subprocess": ("it joins profiles of XLA's", "fuser.profile in each process"),
    },
}  # fmt: skip


def reason(module: str, name: str) -> tuple[str, str] | None:
    """(why, what instead) of a name that is left out on purpose, by its module's name in JAX without "jax."; else None."""
    parts = module.split(".")
    for stop in range(len(parts), 0, -1):
        whole = MODULES.get(".".join(parts[:stop]))
        if whole is not None:
            return whole
    return MODULES.get(f"{module}.{name}".lstrip(".")) or NAMES.get(module, {}).get(name)


def absent(module: str, later: Mapping[str, str] | None = None, submodules: Sequence[str] = ()) -> Callable[[str], Any]:
    """A module's `__getattr__`: imports `submodules` and the names of `later` from the modules given there when asked.

    It raises AbsentError with the reason for what is left out on purpose, and AttributeError for all other names.
    """
    own = module.removeprefix("fuser").lstrip(".")

    def find(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{module}.{name}")
        if later is not None and name in later:
            value = getattr(importlib.import_module(later[name]), name)
            setattr(importlib.import_module(module), name, value)
            return value
        known = reason(own, name) if not name.startswith("_") else None
        if known is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        why, instead = known
        path = ".".join(part for part in ("jax", own, name) if part)
        raise AbsentError(f"{path} is not offered: {why}; instead: {instead}")

    return find
