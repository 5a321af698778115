"""jax.experimental's names."""

from fuser.gaps import absent

__getattr__ = absent(
    __name__,
    {"io_callback": "fuser.api.callbacks"},
    (
        "checkify",
        "custom_partitioning",
        "jet",
        "layout",
        "mesh_utils",
        "multihost_utils",
        "ode",
        "pjit",
        "random",
        "rnn",
        "shard_alike",
        "shard_map",
        "sparse",
    ),
)
