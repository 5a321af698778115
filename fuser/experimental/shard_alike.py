"""jax.experimental.shard_alike's name."""

from fuser.gaps import absent

__getattr__ = absent(__name__, {"shard_alike": "fuser.parallel.alike"})
