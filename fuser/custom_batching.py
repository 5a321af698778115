"""Batched forms of the user's own, under the names of `jax.custom_batching`."""

from __future__ import annotations

from fuser.transforms.custom_batching import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
