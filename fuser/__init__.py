"""fuser: a kernel-fusing array compiler with the programming model of JAX."""

from __future__ import annotations

from fuser.api import ShapeDtypeStruct, eval_shape, jit, make_jaxpr
from fuser.config import config
from fuser.runtime.array import Array

__all__ = ["Array", "ShapeDtypeStruct", "config", "eval_shape", "jit", "make_jaxpr"]
__version__ = "0.1.0"
