"""fuser: a kernel-fusing array compiler with the programming model of JAX."""

from __future__ import annotations

from fuser.importing import without_collection as _without_collection

with _without_collection():
    from fuser import dtypes, errors, lax, numpy
    from fuser.api.abstract import eval_shape, make_jaxpr
    from fuser.api.jitted import ShapeDtypeStruct, jit
    from fuser.config import config
    from fuser.gaps import absent
    from fuser.numpy.types import Array
    from fuser.parallel.arrays import (
        Shard,
        block_until_ready,
        copy_to_host_async,
        default_backend,
        device_count,
        device_get,
        device_put,
        devices,
        local_device_count,
        local_devices,
        make_array_from_callback,
        make_array_from_process_local_data,
        make_array_from_single_device_arrays,
        process_count,
        process_index,
    )
    from fuser.parallel.constraint import reshard
    from fuser.parallel.mesh import make_mesh, set_mesh
    from fuser.parallel.sharding import NamedSharding
    from fuser.parallel.spec import PartitionSpec as P
    from fuser.runtime.device import Device
    from fuser.runtime.memory import memory_stats
    from fuser.runtime.memory import trim as trim_memory
    from fuser.trace.core import type_of as typeof
    from fuser.transforms.custom_jvp import custom_jvp
    from fuser.transforms.custom_vjp import custom_gradient, custom_vjp
    from fuser.transforms.grad import grad, value_and_grad
    from fuser.transforms.jacobian import hessian, jacfwd, jacobian, jacrev
    from fuser.transforms.linear import jvp, linear_transpose, linearize, vjp
    from fuser.transforms.vmap import vmap

__all__ = [
    "Array",
    "Device",
    "NamedSharding",
    "P",
    "Ref",
    "Schedule",
    "ShapeDtypeStruct",
    "Shard",
    "accelerate",
    "ad",
    "ad_checkpoint",
    "block_until_ready",
    "check",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "closure_convert",
    "config",
    "copy_to_host_async",
    "custom_batching",
    "custom_derivatives",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "default_backend",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "ds",
    "dtypes",
    "empty_ref",
    "errors",
    "eval_shape",
    "explain",
    "free_ref",
    "freeze",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "local_device_count",
    "local_devices",
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
    "make_jaxpr",
    "make_mesh",
    "memory_stats",
    "new_ref",
    "nn",
    "numpy",
    "pmap",
    "process_count",
    "process_index",
    "profile",
    "random",
    "ref",
    "remat",
    "reshard",
    "set_mesh",
    "shard_map",
    "sharding",
    "smap",
    "tree",
    "trim_memory",
    "typeof",
    "value_and_grad",
    "vjp",
    "vmap",
]
__version__ = "0.1.0"

# What a program that only runs does not need, and where it is.
_LATER = {
    **dict.fromkeys(("checkpoint", "checkpoint_name", "checkpoint_policies", "remat"), "fuser.transforms.checkpoint"),
    "closure_convert": "fuser.transforms.closures",
    "ds": "fuser.ref.indices",
    **dict.fromkeys(("Ref", "empty_ref", "free_ref", "freeze", "new_ref"), "fuser.ref"),
    "accelerate": "fuser.interop.accelerate",
    "pmap": "fuser.parallel.pmap",
    **dict.fromkeys(("shard_map", "smap"), "fuser.parallel.shard_map"),
    "check": "fuser.debug.check",
    "explain": "fuser.report.explanation",
    "Schedule": "fuser.kernel.schedule",
    "profile": "fuser.report.profile",
    "error_if": "fuser.experimental.checkify",
    "export_kernels": "fuser.takeaway",
    "float0": "fuser.dtypes",
    "triton_call": "fuser.api.triton_call",
    "fwd_and_bwd": "fuser.api.forward_backward",
    "live_arrays": "fuser.runtime.living",
    **dict.fromkeys(("host_count", "host_id", "host_ids", "memory", "process_indices"), "fuser.parallel.arrays"),
    **dict.fromkeys(("effects_barrier", "pure_callback"), "fuser.api.callbacks"),
    **dict.fromkeys(
        ("clear_caches", "ensure_compile_time_eval", "named_call", "named_scope", "print_environment_info"),
        "fuser.api.scopes",
    ),
    **dict.fromkeys(
        (
            "check_tracer_leaks",
            "checking_leaks",
            "debug_infs",
            "allow_f16_reductions",
            "array_garbage_collection_guard",
            "auto_pcast",
            "debug_key_reuse",
            "default_device",
            "explain_cache_misses",
            "thread_guard",
            "transfer_guard",
            "transfer_guard_device_to_device",
            "transfer_guard_device_to_host",
            "transfer_guard_host_to_device",
            "debug_nans",
            "default_matmul_precision",
            "default_prng_impl",
            "disable_jit",
            "enable_checks",
            "enable_custom_prng",
            "enable_x64",
            "legacy_prng_key",
            "log_compiles",
            "make_user_context",
            "no_execution",
            "no_tracing",
            "numpy_dtype_promotion",
            "numpy_rank_promotion",
            "threefry_partitionable",
        ),
        "fuser.api.settings",
    ),
}
_MODULES = (
    "ad",
    "ad_checkpoint",
    "api_util",
    "core",
    "custom_batching",
    "custom_derivatives",
    "debug",
    "distributed",
    "dlpack",
    "example_libraries",
    "experimental",
    "export",
    "extend",
    "ffi",
    "flatten_util",
    "image",
    "interpreters",
    "monitoring",
    "nn",
    "pallas",
    "profiler",
    "random",
    "ref",
    "scipy",
    "sharding",
    "stages",
    "test_util",
    "torch",
    "tree",
    "tree_util",
    "typing",
)
__getattr__ = absent(__name__, _LATER, _MODULES)
