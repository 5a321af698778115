"""jax.experimental.mesh_utils' names."""

from fuser.gaps import absent

__getattr__ = absent(__name__, {"create_device_mesh": "fuser.parallel.mesh"})
