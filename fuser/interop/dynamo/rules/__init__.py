"""How core ATen operations are computed with fuser's: one table from an operation's overload to its rule.

A rule is called with the dtype of the (first) result, then the operation's own arguments: traced arrays in place of tensors,
Python values as they are. What it cannot express it refuses (`Refused`); torch runs that operation.
"""

from fuser.interop.dynamo.rules import (
    attention,
    convolution,
    elementwise,
    fourier,
    grid_sampling,
    indexing,
    layers,
    movement,
    pooling,
    reductions,
    resampling,
    sorting,
)
from fuser.interop.dynamo.rules.table import TABLE, Refused, checking

__all__ = [
    "TABLE",
    "Refused",
    "attention",
    "checking",
    "convolution",
    "elementwise",
    "fourier",
    "grid_sampling",
    "indexing",
    "layers",
    "movement",
    "pooling",
    "reductions",
    "resampling",
    "sorting",
]
