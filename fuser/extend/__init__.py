"""jax.extend's names: what libraries that define primitives and walk graphs ask for."""

from fuser.gaps import absent

__getattr__ = absent(__name__, submodules=("backend", "core", "linear_util", "random", "source_info_util"))
