"""jax.debug's names: looking at the values of a program while it runs."""

from fuser.api.callbacks import debug_callback as callback
from fuser.api.callbacks import debug_print as print

__all__ = ["callback", "print"]
