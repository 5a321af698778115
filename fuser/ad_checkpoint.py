"""Rematerialization under the names of `jax.ad_checkpoint`."""

from __future__ import annotations

from fuser.transforms.checkpoint import (
    checkpoint,
    checkpoint_name,
    print_saved_residuals,
    remat,
    saved_residuals,
)
from fuser.transforms.checkpoint_policies import Offloadable, Recompute, Saveable, checkpoint_policies

__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
    "saved_residuals",
]
