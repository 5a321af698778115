"""jax.experimental.pjit's name, as older programs import it: `jit`, whose shardings may be specs over the mesh in scope."""

from fuser.api.jitted import jit as pjit

__all__ = ["pjit"]
