"""Rematerialization under the names of `jax.ad_checkpoint`."""

from __future__ import annotations

from typing import Any, NamedTuple

from fuser.transforms.checkpoint import (
    checkpoint,
    checkpoint_name,
    checkpoint_policies,
    print_saved_residuals,
    remat,
    saved_residuals,
)

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


class _Answer:
    """What a policy says of an operation, beside True and False."""

    def __init__(self, name: str, saved: bool) -> None:
        self.name, self.saved = name, saved

    def __bool__(self) -> bool:
        return self.saved

    def __repr__(self) -> str:
        return self.name


Recompute = _Answer("Recompute", False)
Saveable = _Answer("Saveable", True)


class Offloadable(NamedTuple):
    """A policy's answer: saved, in another memory of the device. fuser's devices have one memory, where it stays."""

    src: Any
    dst: Any
