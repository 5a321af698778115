"""jax.experimental's names."""

from fuser.gaps import absent

__getattr__ = absent(
    __name__,
    {"io_callback": "fuser.api.callbacks"},
    ("checkify", "jet", "mesh_utils", "multihost_utils", "ode", "pjit", "shard_map"),
)
