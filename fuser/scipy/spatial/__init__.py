"""jax.scipy.spatial: rotations in three dimensions, in `fuser.scipy.spatial.transform`."""

from fuser.scipy.spatial import transform

__all__ = ["transform"]
