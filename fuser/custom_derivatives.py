"""Derivatives of the user's own, under the names of `jax.custom_derivatives`."""

from __future__ import annotations

from fuser.ops.calls import custom_jvp_call_p, custom_vjp_call_p
from fuser.transforms.closures import closure_convert
from fuser.transforms.custom_function import SymbolicZero
from fuser.transforms.custom_jvp import custom_jvp
from fuser.transforms.custom_vjp import CustomVJPPrimal, custom_gradient, custom_vjp, custom_vjp_primal_tree_values

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
]
