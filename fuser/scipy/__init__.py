"""SciPy's functions on arrays, under jax.scipy's names; each module is loaded when it is first asked for."""

from fuser.gaps import absent

_MODULES = (
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
)
__getattr__ = absent(__name__, None, (*_MODULES, "special", "stats"))
