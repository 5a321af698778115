"""jax.experimental.profiler's names."""

from fuser.gaps import absent

__getattr__ = absent(__name__)
