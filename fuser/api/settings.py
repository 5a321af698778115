"""Settings as jax's context managers: `with fuser.enable_x64(True):` and its like, for this thread while the block runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from fuser.config import config


class UserContext:
    """A value of the user's own that traced functions depend on: `with context(value):` has them traced anew for it."""

    def __init__(self, default_value: Any = None) -> None:
        self._default = default_value

    @property
    def value(self) -> Any:
        """What this thread has."""
        return dict(config.user_contexts).get(self, self._default)

    def get_global(self) -> Any:
        """What the process has."""
        return dict(config._values["user_contexts"]).get(self, self._default)

    def set_global(self, value: Any) -> None:
        """Set the process's value."""
        config.update("user_contexts", self._beside(config._values["user_contexts"], value))

    def __call__(self, value: Any) -> AbstractContextManager[None]:
        return config.using(user_contexts=self._beside(config.user_contexts, value))

    def _beside(self, others: Any, value: Any) -> tuple[Any, ...]:
        return (*(pair for pair in others if pair[0] is not self), (self, value))


def make_user_context(default_value: Any = None) -> UserContext:
    """A context whose value, which is to be hashable, is a part of what jitted functions are traced for."""
    return UserContext(default_value)


_MISSING = object()


class Setting:
    """One setting by name: `.value` is what this thread has; a call gives the context manager that sets it."""

    def __init__(self, name: str, text: str, default: Any = None) -> None:
        self.name = name
        self.__name__ = self.__qualname__ = name
        self.__doc__ = text
        self._default = default

    @property
    def value(self) -> Any:
        return getattr(config, self.name)

    def __call__(self, new_val: Any = _MISSING) -> AbstractContextManager[None]:
        if new_val is _MISSING:
            if self._default is None:
                raise TypeError(f"{self.name} takes a value")
            new_val = self._default
        return config.using(**{self.name: new_val})

    def __repr__(self) -> str:
        return f"<setting {self.name}={self.value!r}>"


enable_x64 = Setting("enable_x64", "64-bit types in the block.", True)
debug_nans = Setting("debug_nans", "A nan is a FloatingPointError that names the operation and its line.", True)
debug_infs = Setting("debug_infs", "An infinity is a FloatingPointError that names the operation and its line.", True)
log_compiles = Setting("log_compiles", "Each compilation is a warning of the logger `fuser`.", True)
enable_checks = Setting("check", "Graphs, plans and kernels are checked after each stage.", True)
check_tracer_leaks = Setting("check_tracer_leaks", "A tracer that outlives its trace is an error when that ends.", True)
allow_f16_reductions = Setting(
    "allow_f16_reductions", "False: lax.reduce_sum of 16-bit floats is a ValueError; fuser sums them in float32.", True
)
checking_leaks = check_tracer_leaks
enable_custom_prng = Setting("enable_custom_prng", "PRNGKey gives keys of the newer form, as `key` does.", True)
no_tracing = Setting("no_tracing", "A jitted function that would have to be traced is a RuntimeError.", True)
no_execution = Setting("no_execution", "A compiled program that would run is a RuntimeError.", True)
debug_key_reuse = Setting("debug_key_reuse", "Only False: keys are not followed.", True)
threefry_partitionable = Setting(
    "threefry_partitionable",
    "False: keys are split and bits drawn in the layout that JAX had before its version 0.5.",
    True,
)
default_prng_impl = Setting(
    "default_prng_impl", 'The generator of keys that name none: "threefry2x32", "rbg" or "unsafe_rbg".'
)
legacy_prng_key = Setting("legacy_prng_key", 'Keys as arrays of two words: "allow", "warn" or "error".')
default_device = Setting("default_device", "The device of arrays and programs that are told of none; None: the first.")
transfer_guard = Setting(
    "transfer_guard",
    'Copies between the host and devices and among devices: "allow", "log" or "disallow" those that the program does not ask for '
    'by device_put or device_get; with "_explicit" all.',
)
transfer_guard_host_to_device = Setting("transfer_guard_host_to_device", "`transfer_guard` of copies to a device.")
transfer_guard_device_to_device = Setting(
    "transfer_guard_device_to_device", "`transfer_guard` of copies among devices."
)
transfer_guard_device_to_host = Setting(
    "transfer_guard_device_to_host", "`transfer_guard` of copies from a GPU to the host."
)
array_garbage_collection_guard = Setting(
    "array_garbage_collection_guard",
    'Arrays that only Python\'s garbage collector frees, as they are in a cycle: "allow", "log", or "fatal", which ends the process.',
)
thread_guard = Setting("thread_guard", "Programs of several processes run in the thread that set this alone.", True)
explain_cache_misses = Setting("explain_cache_misses", "Why a jitted function is traced is logged.", True)
auto_pcast = Setting(
    "auto_pcast",
    "Operands of one operation that vary along different mesh axes of a shard_map go together; False: they are an error.",
    True,
)
numpy_rank_promotion = Setting("numpy_rank_promotion", 'Operands of different ranks: "allow", "warn" or "raise".')
numpy_dtype_promotion = Setting("numpy_dtype_promotion", 'Operands of different dtypes: "standard" or "strict".')
default_matmul_precision = Setting(
    "default_matmul_precision", "The precision of products that name none; fuser's own is exact."
)


def disable_jit(disable: bool = True) -> AbstractContextManager[None]:
    """Jitted functions run operation by operation in the block."""
    return config.using(disable_jit=disable)
