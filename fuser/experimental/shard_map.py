"""jax.experimental.shard_map: `shard_map` with the arguments that older programs give."""

from fuser.gaps import absent

__getattr__ = absent(__name__, {"shard_map": "fuser.parallel.older_shard_map"})
