"""Clusters, with jax.scipy.cluster's names."""

from fuser.scipy.cluster import vq

__all__ = ["vq"]
