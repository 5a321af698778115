"""jax.experimental.mesh_utils' names."""

from fuser.gaps import absent

__getattr__ = absent(
    __name__, dict.fromkeys(("create_device_mesh", "create_hybrid_device_mesh"), "fuser.parallel.mesh")
)
