"""The drop-in `jax`: programs and libraries written for JAX import fuser's modules under JAX's names.

Nothing behaves here: `finder` answers imports of `jax` and `jaxlib`, `names` says which names of fuser stand for the names
that fuser has elsewhere, `needs` finds out what an installed library asks for.
"""

from fuser.compat.finder import install_as_jax

__all__ = ["install_as_jax"]
