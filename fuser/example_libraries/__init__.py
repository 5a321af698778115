"""jax.example_libraries' names."""

from fuser.gaps import absent

__getattr__ = absent(__name__, None, ("optimizers", "stax"))
