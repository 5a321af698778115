"""The names of JAX's that stand elsewhere in fuser, with the libraries that need each.

`RENAMED`: module of JAX's without "jax." ("" is jax itself) -> name -> (module:name in fuser, libraries). What is not here
has its name of JAX's in fuser's module of the same path.
"""

from __future__ import annotations

# The public modules of JAX's that fuser has, or will have, under the same name; all others of fuser's are its own.
PUBLIC = frozenset(
    [
        "ad",
        "ad_checkpoint",
        "api_util",
        "core",
        "custom_batching",
        "custom_derivatives",
        "custom_transpose",
        "debug",
        "distributed",
        "dlpack",
        "dtypes",
        "errors",
        "example_libraries",
        "experimental",
        "export",
        "extend",
        "ffi",
        "flatten_util",
        "image",
        "interpreters",
        "lax",
        "memory",
        "monitoring",
        "nn",
        "numpy",
        "ops",
        "profiler",
        "random",
        "ref",
        "scipy",
        "sharding",
        "stages",
        "test_util",
        "tree",
        "tree_util",
        "typing",
    ]
)
_VERSION = {
    "__version__": ("fuser.compat.version:__version__", "equinox optax"),
    "__version_info__": ("fuser.compat.version:__version_info__", "flax haiku equinox orbax"),
}
_CATEGORIES = tuple(f"{name}_checks" for name in ("all", "automatic", "div", "float", "index", "nan", "user"))
_TRACES = {"get_opaque_trace_state": ("fuser.extend.core:get_opaque_trace_state", "flax haiku")}

RENAMED: dict[str, dict[str, tuple[str, str]]] = {
    "": {
        **_VERSION,
    },
    "version": _VERSION,
    "lib": _VERSION,
    "core": {
        "DropVar": ("fuser.extend.core:DropVar", "haiku"),
        **_TRACES,
        "find_top_trace": ("fuser.extend.core:find_top_trace", "equinox flax"),
        "valid_jaxtype": ("fuser.extend.core:valid_jaxtype", "distrax"),
        "get_aval": ("fuser.trace.core:type_of", "equinox"),
        "pytype_aval_mappings": ("fuser.interpreters.xla:pytype_aval_mappings", "tfp"),
    },
    "extend.core": {
        "Effect": ("fuser.experimental.hijax:Effect", "flax"),
    },
    "extend.core.primitives": {
        "call_p": ("fuser.ops.jit:jit_p", "numpyro"),
        "closed_call_p": ("fuser.ops.jit:jit_p", "numpyro"),
    },
    "interpreters.mlir": {
        "lower_fun": ("fuser.interpreters.lowering:lower_fun", "equinox lineax"),
        "register_lowering": ("fuser.interpreters.lowering:register_lowering", "equinox lineax"),
    },
    "_src": {},
    "_src.state": {},
    "_src.state.types": {
        "AbstractRef": ("fuser.experimental.hijax:AbstractRef", "flax"),
    },
    "_src.ad_util": {
        "stop_gradient_p": ("fuser.ops.conversion:stop_gradient_p", "lineax"),
    },
    "_src.checkify": {
        name: (f"fuser.experimental.checkify:{name}", "chex flax")
        for name in ("Error", "JaxException", "ErrorCategory", "check", "check_error", "checkify", "init_error", *_CATEGORIES)
    },
    "_src.compiler": {},  # chex
    "_src.core": {
        **_TRACES,
        "ShapedArray": ("fuser.core:ShapedArray", "flax"),
        "trace_state_clean": ("fuser.trace.core:trace_state_clean", "numpyro"),
    },
    "_src.dispatch": {},  # equinox
    "_src.dtypes": {
        "DType": ("numpy:dtype", "flax"),
        "ExtendedDType": ("fuser.dtypes:ExtendedDType", "flax"),
        "TypePromotionError": ("fuser.dtypes:TypePromotionError", "equinox"),
        "extended": ("fuser.dtypes:extended", "flax"),
        "finfo": ("fuser.dtypes:finfo", "flax"),
    },
    "_src.flatten_util": {
        "ravel_pytree": ("fuser.flatten_util:ravel_pytree", "blackjax"),
    },
    "_src.traceback_util": {
        "_exclude_paths": ("fuser.frames:EXCLUDED", "flax"),
        "api_boundary": ("fuser.frames:api_boundary", "flax"),
        "include_frame": ("fuser.frames:include_frame", "equinox"),
        "register_exclusion": ("fuser.frames:register_exclusion", "equinox flax jaxtyping"),
    },
    "_src.xla_bridge": {
        "_backends": ("fuser.runtime.device:SETTLED", "chex"),
    },
    "_src.util": {
        "safe_map": ("fuser.api_util:safe_map", "interpreters of jaxprs"),
    },
    "_src.tree_util": {
        "_registry": ("fuser.tree_util:registered_types", "flax"),
        "prefix_errors": ("fuser.tree_prefix:prefix_errors", "flax"),
        "flatten_one_level": ("fuser.tree_util:flatten_one_level", "orbax"),
    },
    "_src.distributed": {
        "global_state": ("fuser.parallel.distributed:global_state", "orbax"),
    },
}  # fmt: skip

# What libraries name when they are imported and fuser has nothing for: a class of each name that is never made. The reason,
# and the libraries.
_IFRT = "it belongs to IFRT, the runtime interface of XLA"
_SHARDS = "JAX's own storage of arrays in pieces is not there; use orbax.checkpoint, or fuser.export"
REFUSED: dict[str, dict[str, tuple[str, str]]] = {
    "experimental.array_serialization.serialization": {
        "GlobalAsyncCheckpointManager": (_SHARDS, "flax"),
        "GlobalAsyncCheckpointManagerBase": (_SHARDS, "orbax"),
        "get_tensorstore_spec": (_SHARDS, "flax"),
    },
    "experimental.colocated_python": {
        "colocated_python": (_IFRT, "orbax"),
        "colocated_python_class": (_IFRT, "orbax"),
    },
    "experimental.colocated_python.func": {},
    "experimental.colocated_python.serialization": {
        "DeviceList": (_IFRT, "orbax"),
    },
    "extend.ifrt_programs": {
        "ifrt_programs": (_IFRT, "orbax"),
    },
    "interpreters.pxla": {},  # orbax
}

MODULES = frozenset({*RENAMED, *REFUSED} | {module.rpartition(".")[0] for module in (*RENAMED, *REFUSED)})
