"""fuser: a kernel-fusing array compiler with the programming model of JAX."""

from __future__ import annotations

import importlib
from typing import Any

from fuser import ad_checkpoint, custom_batching, custom_derivatives, dtypes, errors, lax, nn, numpy, random, tree
from fuser.api import ShapeDtypeStruct, eval_shape, jit, make_jaxpr
from fuser.backends import c as _c  # noqa: F401  (loaded here, where it is cheap, rather than in the first call)
from fuser.config import config
from fuser.runtime.array import Array
from fuser.runtime.memory import memory_stats
from fuser.runtime.memory import trim as trim_memory
from fuser.transforms.checkpoint import checkpoint, checkpoint_name, checkpoint_policies, remat
from fuser.transforms.closures import closure_convert
from fuser.transforms.custom_jvp import custom_jvp
from fuser.transforms.custom_vjp import custom_gradient, custom_vjp
from fuser.transforms.grad import grad, value_and_grad
from fuser.transforms.jacobian import hessian, jacfwd, jacobian, jacrev
from fuser.transforms.linear import jvp, linear_transpose, linearize, vjp
from fuser.transforms.vmap import vmap

__all__ = [
    "Array",
    "ShapeDtypeStruct",
    "accelerate",
    "ad_checkpoint",
    "check",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "closure_convert",
    "config",
    "custom_batching",
    "custom_derivatives",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "dtypes",
    "errors",
    "eval_shape",
    "explain",
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
    "make_jaxpr",
    "memory_stats",
    "nn",
    "numpy",
    "profile",
    "random",
    "remat",
    "tree",
    "trim_memory",
    "value_and_grad",
    "vjp",
    "vmap",
]
__version__ = "0.1.0"

# What a program that only runs does not need, and where it is.
_LATER = {
    "accelerate": "fuser.interop.accelerate",
    "check": "fuser.debug.check",
    "explain": "fuser.report.explanation",
    "profile": "fuser.report.profile",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'fuser' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return value
