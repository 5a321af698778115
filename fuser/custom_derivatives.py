"""Derivatives of the user's own, under the names of `jax.custom_derivatives`."""

from __future__ import annotations

from typing import Any

from fuser.gaps import absent
from fuser.lax.values import as_value
from fuser.ops.calls import custom_jvp_call_p, custom_vjp_call_p
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.tangent import zeros
from fuser.transforms.closures import closure_convert
from fuser.transforms.custom_function import SymbolicZero
from fuser.transforms.custom_jvp import custom_jvp
from fuser.transforms.custom_vjp import CustomVJPPrimal, custom_gradient, custom_vjp, custom_vjp_primal_tree_values
from fuser.transforms.linear_call import linear_call

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
    "linear_call",
    "zero_from_primal",
]


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of a tree's values: of their dtypes, float0 for integers and bools; with `symbolic_zeros` `SymbolicZero`s."""
    make = SymbolicZero if symbolic_zeros else zeros
    return tree.map(lambda leaf: make(type_of(as_value(leaf, "zero_from_primal"))), val)


__getattr__ = absent(__name__)
