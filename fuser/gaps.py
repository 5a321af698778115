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
_MADE = "fuser makes this of other operations, so that no graph has such a primitive"
_HIJAX = "values under fuser's transforms are arrays and references to them, not objects of the user's own types"
_CUDNN = "it wraps a call of cuDNN's"
_CLIENT = "it hands out XLA's clients"
_PARTIAL = "fuser records and cuts graphs without JAX's rules of partial evaluation"
_NAMES = "fuser's equations hold a Source, the user's line and transforms, and not XLA's stacks of names"
_XPLANE = "it records XLA's own events, in XLA's format"
_COPIES = "memory spaces, copies between them and their synchronisation are the compiler's"
_CORES = "programs of a grid say what may run at once, not cores"
_INDIRECT = "index maps are functions of the program ids alone"
_MOSAIC = "it stands for an instruction, or a setting, of Mosaic's TPU dialect"

# Modules that are left out whole: name in JAX -> (why, what instead).
MODULES: dict[str, tuple[str, str]] = {
    "experimental.buffer_callback": ("it hands out XLA's buffers", "a primitive of your own, whose `eval` takes NumPy arrays"),
    "experimental.colocated_python": ("it runs Python on hosts of IFRT, XLA's runtime interface", "several processes of your own"),
    "experimental.compute_on": ("it annotates XLA's HLO", "the `backend` argument of jit"),
    "experimental.jax2tf": ("it needs XLA's and TensorFlow's graphs", "jit(f).lower(x).as_text(), or the kernels that `python -m fuser compile` writes"),
    "experimental.mosaic": ("it is the GPU dialect behind XLA's custom calls", "the Triton backend's kernels; FUSER_OVERRIDE runs those that you edit"),
    "experimental.compilation_cache": ("it is XLA's cache of executables", "the setting cache_dir, and the cache on disk"),
    "experimental.control_deps": ("it is a custom call that orders XLA's schedule", "fuser.lax.optimization_barrier"),
    "experimental.fused": ("it is a custom call that forces fusion in XLA on CUDA", "fuser.jit, which fuses; fuser.explain says what"),
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
        "softmax_custom_jvp": ("it chooses between two implementations that JAX has", "nothing: there is one softmax"),
        "remove_size_one_mesh_axis_from_type": (_GSPMD, "nothing: no setting is needed"),
    },
    "core": {
        **dict.fromkeys(
            ("CallPrimitive", "Effect", "Effects", "OutputType", "abstract_token", "aval_mapping_handlers", "call", "concretization_function_error", "custom_typechecks", "literalable_types", "new_jaxpr_eqn", "no_axis_name", "no_effects", "pytype_aval_mappings", "trace_ctx",),
            ("it serves JAX's tracing and lowering", 'fuser.extend.core.Primitive, whose fields are its rules'),
        ),
        **dict.fromkeys(("JaxprPpContext", "JaxprPpSettings"), ("it serves JAX's printer", "the method pretty_print of a graph")),
        "is_concrete": ("it asks what kind of tracer JAX made", "isinstance(x, fuser.core.Tracer)"),
    },
    "custom_derivatives": {
        **dict.fromkeys(
            ("remat_opt_p",),
            (_MADE, 'fuser.checkpoint'),
        ),
    },
    "debug": {
        **dict.fromkeys(
            ("DebugEffect", "OrderedDebugEffect",),
            ("effects are classes of JAX's lowering", 'fuser.debug.callback(ordered=True)'),
        ),
    },
    "experimental": {
        **dict.fromkeys(
            ("EArray", "cur_qdd", "primal_tangent_dtype",),
            (_HIJAX, 'pytrees of arrays'),
        ),
    },
    "experimental.hijax": {
        **dict.fromkeys(
            ("HiPspec", "HiType", "ShapedArray", "TransformedRef",),
            (_HIJAX, 'pytrees of arrays'),
        ),
    },
    "experimental.jet": {
        **dict.fromkeys(
            ("call_param_updaters",),
            (_MADE, 'fuser.experimental.jet.jet'),
        ),
    },
    "experimental.mesh_utils": {
        **dict.fromkeys(
            ("device_kind_handler_dict",),
            ("it orders TPUs by XLA's topology", 'fuser.experimental.mesh_utils.create_device_mesh'),
        ),
    },
    "experimental.multihost_utils": {
        **dict.fromkeys(
            ("global_array_to_host_local_array_impl", "global_array_to_host_local_array_p", "gtl_abstract_eval", "host_local_array_to_global_array_impl", "host_local_array_to_global_array_p", "ltg_abstract_eval", "ltg_batcher",),
            (_MADE, 'the function of the same name without _impl or _p'),
        ),
        **dict.fromkeys(
            ("ProcessFailureError", "live_devices"),
            ("XLA's coordination service tells it", 'fuser.errors.DeviceError, which a lost process raises in all others'),
        ),
    },
    "interpreters.xla": {
        "Backend": ("it is of XLA's runtime", "fuser.backends"),
        "apply_primitive": ("it is of XLA's runtime", "fuser.extend.core.Primitive.bind"),
    },
    "experimental.rnn": {
        **dict.fromkeys(
            ("lstm_bwd", "lstm_fwd", "rnn_abstract_eval", "rnn_bwd_abstract_eval", "rnn_bwd_p", "rnn_fwd_p",),
            (_CUDNN, 'fuser.experimental.rnn.lstm, which is differentiated as it stands'),
        ),
    },
    "experimental.sparse": {
        **dict.fromkeys(
            ("bcoo_dot_general_p", "bcoo_dot_general_sampled_p", "bcoo_extract_p", "bcoo_fromdense_p", "bcoo_sort_indices_p", "bcoo_spdot_general_p", "bcoo_sum_duplicates_p", "bcoo_todense_p", "bcoo_transpose_p", "bcsr_dot_general_p", "bcsr_extract_p", "bcsr_fromdense_p", "bcsr_todense_p", "coo_fromdense_p", "coo_matmat_p", "coo_matvec_p", "coo_todense_p", "csr_fromdense_p", "csr_matmat_p", "csr_matvec_p", "csr_todense_p", "todense_p",),
            (_MADE, 'the function of the same name without _p'),
        ),
    },
    "experimental.sparse.linalg": {
        **dict.fromkeys(
            ("spsolve_p",),
            (_MADE, 'fuser.experimental.sparse.linalg.spsolve'),
        ),
    },
    "extend.core": {
        **dict.fromkeys(
            ("AbstractToken", "CallPrimitive", "Effect", "TraceTag", "call_impl", "new_jaxpr_eqn", "no_effects",),
            ("it serves JAX's tracing and lowering", 'fuser.extend.core.Primitive, whose fields are its rules'),
        ),
    },
    "extend.core.primitives": {
        **dict.fromkeys(
            ("after_all_p", "approx_top_k_p", "call_p", "closed_call_p", "create_token_p", "device_put_p", "empty2_p", "eq_to_p", "get_p", "householder_product_p", "le_to_p", "lt_to_p", "ragged_all_to_all_p", "random_gamma_p", "reduce_p", "rng_uniform_p", "select_and_scatter_p", "swap_p", "threefry2x32_p", "tridiagonal_solve_p",),
            (_MADE, 'the function of the same name without _p'),
        ),
    },
    "extend.random": {
        **dict.fromkeys(
            ("threefry2x32_p", "threefry_2x32",),
            (_MADE, 'fuser.random.bits'),
        ),
    },
    "extend.source_info_util": {
        **dict.fromkeys(
            ("NameStack", "SourceInfo", "current", "current_name_stack", "extend_name_stack", "new_name_stack", "new_source_info", "reset_name_stack", "set_name_stack", "summarize", "transform_name_stack", "user_context",),
            (_NAMES, 'fuser.named_scope; the field `source` of an equation'),
        ),
    },
    "interpreters.ad": {
        **dict.fromkeys(
            ("jvp",),
            ("it transforms JAX's wrapped functions", 'fuser.jvp'),
        ),
    },
    "interpreters.batching": {
        **dict.fromkeys(
            ("fancy_primitive_batchers",),
            ("it is a table of JAX's own batch rules", 'fuser.interpreters.batching.axis_primitive_batchers'),
        ),
        **dict.fromkeys(
            ("register_vmappable", "unregister_vmappable",),
            (_HIJAX, 'pytrees of arrays, which vmap takes'),
        ),
    },
    "interpreters.partial_eval": {
        **dict.fromkeys(
            ("DynamicJaxprTracer", "JaxprTracer", "custom_partial_eval_rules", "dce_jaxpr_call_rule", "dce_jaxpr_closed_call_rule", "dce_jaxpr_consts", "dce_rules", "partial_eval_jaxpr_custom_rules", "trace_to_jaxpr_dynamic",),
            (_PARTIAL, 'fuser.make_jaxpr; fuser.interpreters.partial_eval.trace_to_jaxpr_nounits'),
        ),
    },
    "lax": {
        **dict.fromkeys(
            ("after_all_p", "approx_top_k_p", "create_token_p", "device_put_p", "eq_to_p", "le_to_p", "lt_to_p", "mulhi_p", "ragged_all_to_all_p", "reduce_p", "rng_uniform_p", "scatter_sub_p", "select_and_scatter_p", "stack_p", "stage_p", "tile_p", "unstack_p",),
            (_MADE, 'the function of the same name without _p'),
        ),
        **dict.fromkeys(
            ("rng_uniform",),
            ("it draws from XLA's hidden generator", 'fuser.random.uniform'),
        ),
    },
    "lax.linalg": {
        **dict.fromkeys(
            ("cholesky_update_p", "householder_product_p", "lu_pivots_to_permutation_p", "ormqr_p", "symmetric_product_p", "tridiagonal_solve_p",),
            (_MADE, 'the function of the same name without _p'),
        ),
    },
    "nn": {
        **dict.fromkeys(
            ("get_scaled_dot_general_config", "scaled_dot_general"),
            (_CUDNN, "fuser.nn.scaled_matmul, of what you quantise"),
        ),
    },
    "random": {
        **dict.fromkeys(
            ("random_gamma_p",),
            (_MADE, 'fuser.random.gamma'),
        ),
    },
    "experimental.pallas": {
        **dict.fromkeys(
            ("RevisitMode", "semaphore", "semaphore_read", "semaphore_signal", "semaphore_wait",),
            (_COPIES, "BlockSpec, which says what each program sees"),
        ),
        **dict.fromkeys(
            ("DeviceIdType", "core_map", "get_global", "kernel",),
            (_CORES, "pallas_call with a grid; shard_map around it for several devices"),
        ),
        **dict.fromkeys(
            ("enable_debug_checks", "enable_poison_buffers",),
            ("it is a setting of JAX's TPU interpreter", "interpret=True, which checks every access and fills what nobody has written with nan"),
        ),
        **dict.fromkeys(("lower_as_mlir", "pallas_export_experimental",), (_HLO, "fuser.export.export; jit(f).lower(x).sources[0].text")),
        "estimate_cost": ("no kernel needs an estimate: the cost model reads it", "jit(f).lower(x).cost_analysis()"),
        "select_ref": ("a reference is known where a kernel is traced", "fuser.lax.cond, whose branches use either"),
    },
    "experimental.pallas.triton": {
        "elementwise_inline_asm": ("it writes PTX into a kernel", "fuser.triton_call with a Triton kernel of your own"),
    },
    "experimental.pallas.tpu": {
        **dict.fromkeys(
            ("BufferType", "BufferedRef", "BufferedRefBase", "CMEM", "SEMAPHORE", "SemaphoreType", "VMEM_SHARED", "async_copy", "async_remote_copy", "dma_semaphore", "emit_pipeline", "emit_pipeline_with_allocations", "get_barrier_semaphore", "make_async_copy", "make_async_remote_copy", "sync_copy", "touch", "with_memory_space_constraint",),
            (_COPIES, "BlockSpec, which says what each program sees"),
        ),
        **dict.fromkeys(
            ("CORE_PARALLEL", "CoreType", "SUBCORE_PARALLEL", "core_barrier", "create_tensorcore_mesh", "run_on_first_core",),
            (_CORES, "dimension_semantics with PARALLEL"),
        ),
        "PrefetchScalarGridSpec": (_INDIRECT, "a block of the whole array, and ref[ds(start, size)] with a start that is read in the kernel"),
        **dict.fromkeys(
            ("ChipVersion", "LoweringException", "SideEffectType", "Tiling", "TpuInfo", "bitcast", "einshape", "get_tpu_info", "get_tpu_info_for_chip", "is_tpu_device", "matmul_acc_lhs", "matmul_pop", "matmul_push_rhs", "pack_elementwise", "stochastic_round", "trace_value", "unpack_elementwise",),
            (_MOSAIC, "array operations, which the backend spells for the TPU"),
        ),
        **dict.fromkeys(
            ("force_tpu_interpret_mode", "reset_tpu_interpret_mode_state", "set_tpu_interpret_mode",),
            ("it is a setting of JAX's TPU interpreter", "interpret=True, or FUSER_TPU_INTERPRET=1"),
        ),
        **dict.fromkeys(
            ("prng_random_bits", "prng_seed", "sample_block", "stateful_bernoulli", "stateful_bits", "stateful_normal", "stateful_uniform", "to_pallas_key",),
            ("its bits differ from machine to machine", "fuser.random within the kernel"),
        ),
    },
    "experimental.profiler": {
        "get_profiled_instructions_proto": ("it reads profiles of XLA's", "fuser.profile"),
    },
    "extend.backend": {
        **dict.fromkeys(("backends", "get_backend", "register_backend_cache"), (_CLIENT, "fuser.devices()")),
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
        **dict.fromkeys(("ProfileOptions", "start_server", "stop_server", "device_memory_profile", "save_device_memory_profile"), (_XPLANE, "fuser.profile")),
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
