"""jax.experimental.shard_map's name, as older programs import it."""

from fuser.gaps import absent

__getattr__ = absent(__name__, {"shard_map": "fuser.parallel.older_shard_map"})
