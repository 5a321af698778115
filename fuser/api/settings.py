"""Settings as jax's context managers: `with fuser.enable_x64(True):` and its like, for this thread while the block runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from fuser.config import config


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

    def __call__(self, new_value: Any = None) -> AbstractContextManager[None]:
        return config.using(**{self.name: self._default if new_value is None else new_value})

    def __repr__(self) -> str:
        return f"<setting {self.name}={self.value!r}>"


enable_x64 = Setting("enable_x64", "64-bit types in the block.", True)
disable_jit = Setting("disable_jit", "Jitted functions run operation by operation in the block.", True)
debug_nans = Setting("debug_nans", "A nan is a FloatingPointError that names the operation and its line.", True)
debug_infs = Setting("debug_infs", "An infinity is a FloatingPointError that names the operation and its line.", True)
log_compiles = Setting("log_compiles", "Each compilation is a warning of the logger `fuser`.", True)
enable_checks = Setting("check", "Graphs, plans and kernels are checked after each stage.", True)
numpy_rank_promotion = Setting("numpy_rank_promotion", 'Operands of different ranks: "allow", "warn" or "raise".')
numpy_dtype_promotion = Setting("numpy_dtype_promotion", 'Operands of different dtypes: "standard" or "strict".')
default_matmul_precision = Setting(
    "default_matmul_precision", "The precision of products that name none; fuser's own is exact."
)
