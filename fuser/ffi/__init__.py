"""Foreign functions, under the names of `jax.ffi`: C of your own, called between the kernels of a program.

A handler includes `<fuser/ffi.h>`, which lies in `include_dir()`, and is registered under a name; `ffi_call` calls it.
"""

from fuser.ffi.calls import ffi_call
from fuser.ffi.targets import include_dir, pycapsule, register_ffi_target
from fuser.gaps import absent

__all__ = ["ffi_call", "include_dir", "pycapsule", "register_ffi_target"]
__getattr__ = absent(__name__)
