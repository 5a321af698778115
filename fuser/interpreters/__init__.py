"""jax.interpreters' names: the rules of primitives, by transform."""

from fuser.gaps import absent

__getattr__ = absent(__name__, submodules=("xla",))
