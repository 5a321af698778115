"""JAX's settings that are not fuser's of the same name: what each is here.

`config.update("jax_...", value)` takes every setting of JAX. One that fuser has under another name, or with other values, is
translated (`TRANSLATED`). One of XLA's compiler, of its files or of JAX's way to a result can be set and read, and changes
nothing, since results do not depend on it (`WITHOUT_EFFECT`). One that would have to change what programs do or say, and
cannot here, keeps its value: another one is a ValueError that says what to use (`FIXED`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

UNLIMITED = 1 << 62  # bytes, what the limit -1 of the cache stands for
_BACKENDS = {"": "", "cpu": "c", "cuda": "triton", "gpu": "triton", "rocm": "triton", "tpu": "tpu"}
_PLATFORMS = {"c": "cpu", "triton": "cuda", "tpu": "tpu"}
_TRACEBACKS = {
    **dict.fromkeys(("auto", "tracebackhide", "remove_frames", "quiet_remove_frames"), "short"),
    "off": "full",
}


class Translated(NamedTuple):
    """A setting of fuser's under JAX's name: its name here, and its values from JAX's and back."""

    name: str
    taken: Callable[[Any], Any]
    given: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _backend(platforms: Any) -> str:
    """The backend of the first of JAX's platforms, which are separated by commas."""
    first = (platforms or "").split(",")[0].strip()
    if first not in _BACKENDS:
        raise ValueError(f"a platform is one of {', '.join(filter(None, _BACKENDS))}, got {platforms!r}")
    return _BACKENDS[first]


def _traceback(kind: Any) -> str:
    if kind not in _TRACEBACKS:
        raise ValueError(f"traceback_filtering is one of {', '.join(map(repr, _TRACEBACKS))}, got {kind!r}")
    return _TRACEBACKS[kind]


TRANSLATED: dict[str, Translated] = {
    "enable_checks": Translated("check", _same, _same),
    "compilation_cache_dir": Translated("cache_dir", _same, _same),
    "enable_compilation_cache": Translated("cache", _same, _same),
    "compilation_cache_max_size": Translated(
        "cache_limit", lambda n: UNLIMITED if n == -1 else n, lambda n: -1 if n == UNLIMITED else n
    ),
    "platforms": Translated("backend", _backend, lambda name: _PLATFORMS.get(name)),
    "platform_name": Translated("backend", _backend, lambda name: _PLATFORMS.get(name, "")),
    "dump_ir_to": Translated("dump", lambda path: path or "", _same),
    "num_cpu_devices": Translated("num_cpu_devices", lambda count: 1 if count == -1 else count, _same),
    "traceback_filtering": Translated("traceback", _traceback, lambda kind: "off" if kind == "full" else "auto"),
}

# Settings by which JAX chooses between implementations of one thing, or speaks to XLA, with JAX's defaults.
WITHOUT_EFFECT: dict[str, Any] = {
    "custom_vjp3": False,
    "scan3": False,
    "remat3": False,
    "softmax_custom_jvp": False,
    "use_direct_linearize": True,
    "use_simplified_jaxpr_constants": False,
    "embedded_constants_max_bytes": 32,
    "eager_constant_folding": False,
    "compiler_enable_remat_pass": True,
    "disable_most_optimizations": False,
    "optimization_level": "UNKNOWN",
    "exec_time_optimization_effort": 0.0,
    "memory_fitting_effort": 0.0,
    "memory_fitting_level": "O2",
    "threefry_gpu_kernel_lowering": False,
    "bcoo_cusparse_lowering": False,
    "use_magma": "auto",
    "use_shardy_partitioner": True,
    "ragged_dot_use_ragged_dot_instruction": True,
    "ragged_dot_use_gpu_pallas_triton_lowering": False,
    "use_emit_pipeline_primitive": False,
    "mosaic_allow_hlo": False,
    "pallas_use_mosaic_gpu": True,
    "pallas_verbose_errors": False,
    "cpu_enable_async_dispatch": True,  # calls on the CPU return when they are done
    "cpu_collectives_implementation": "gloo",
    "cpu_get_local_topology_timeout_minutes": 2,
    "cpu_get_global_topology_timeout_minutes": 5,
    "enable_preemption_service": True,
    "check_proxy_envs": True,
    "send_traceback_to_runtime": "off",
    "xla_profile_version": 0,
    "enable_pgle": False,
    "pgle_profiling_runs": 3,
    "pgle_aggregation_percentile": 90,
    # Of the cache, which keeps every kernel and nothing of XLA's.
    "persistent_cache_min_compile_time_secs": 1.0,
    "persistent_cache_min_entry_size_bytes": 0,
    "persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
    "raise_persistent_cache_errors": False,
    "compilation_cache_include_metadata_in_key": False,
    "compilation_cache_check_contents": False,
    "compilation_cache_expect_pgle": False,
    "remove_custom_partitioning_ptr_from_cache_key": False,
    "share_binary_between_hosts": False,
    "share_binary_between_hosts_timeout_ms": 20 * 60 * 1000,
    # Of what XLA is told about lines, and of how much is said.
    "hlo_source_file_canonicalization_regex": None,
    "source_url_schema": None,
    "include_full_tracebacks_in_locations": True,
    "traceback_in_locations_limit": 100,
    "tracer_error_num_traceback_frames": 5,
    "captured_constants_report_frames": 0,
    "compiler_detailed_logging_min_ops": 10,
    "debug_log_modules": "",
    "distributed_debug": False,
    "pprint_use_color": True,
    "include_debug_info_in_dumps": True,
    "dump_ir_modes": "stablehlo",  # everything is dumped: graphs, plans and kernels
    "serialization_version": 0,
    "export_ignore_forward_compatibility": False,
    "debug_leaked_clients_on_clear_backends": False,
    # Of transfers between hosts, which fuser.distributed makes by itself.
    "force_dcn_cross_host_transfers": False,
    "cross_host_transfer_socket_address": "",
    "cross_host_transport_addresses": "",
    "cross_host_transfer_timeout_seconds": None,
    "cross_host_transfer_transfer_size": None,
}

_VISIBLE = (
    "set the environment variable CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES on AMD's GPUs) before the program starts"
)
# The one value that a setting has here, and what to use in place of another.
FIXED: dict[str, tuple[Any, str]] = {
    "debug_key_reuse": (False, "nothing: keys are not tracked"),
    "mutable_array_checks": (True, "nothing: Refs are checked always"),
    "log_checkpoint_residuals": (False, "fuser.ad_checkpoint.print_saved_residuals"),
    "error_checking_behavior_nan": ("ignore", "the setting debug_nans, or fuser.experimental.checkify"),
    "error_checking_behavior_divide": ("ignore", "the setting debug_nans, or fuser.experimental.checkify"),
    "error_checking_behavior_oob": ("ignore", "fuser.experimental.checkify with index_checks"),
    "pallas_enable_debug_checks": (False, "fuser.debug.print in the kernel, or interpret=True"),
    "pallas_poison_buffers": (False, "interpret=True"),
    "disallow_mesh_context_manager": (False, "nothing: `with mesh:` is taken"),
    "disable_vmap_shmap_error": (False, "another name for spmd_axis_name"),
    "remove_size_one_mesh_axis_from_type": (False, "nothing: axes of one device stay in types"),
    "refs_to_pins": (False, "nothing: Refs are arrays in compiled programs"),
    "experimental_unsafe_xla_runtime_errors": (False, "fuser.experimental.checkify"),
    "enable_recoverability": (False, "checkpoints: a process that is lost ends the program"),
    "sort_devices_by_process_index": (True, "fuser.sharding.Mesh with devices in an order of your own"),
    "pjrt_client_create_options": (None, "nothing: there is no client of XLA's"),
    "xla_backend": ("", "the setting backend"),
    "backend_target": ("", "the setting backend"),
    "cuda_visible_devices": ("all", _VISIBLE),
    "rocm_visible_devices": ("all", _VISIBLE),
    "oneapi_visible_devices": ("all", "a backend for them, which fuser does not have"),
    "mock_gpu_topology": ("", "`python -m fuser compile --target`, which needs no GPU"),
}
# Of JAX's settings these alone have no "jax_" before their names.
FIXED_BARE: dict[str, tuple[Any, str]] = {
    "check_vma": (False, "check_vma of fuser.shard_map"),
    "mock_num_gpu_processes": (0, "`python -m fuser compile --target`, which needs no GPU"),
    "jax2tf_associative_scan_reductions": (False, "nothing: there is no jax2tf here"),
    "jax2tf_default_native_serialization": (True, "fuser.export"),
}
