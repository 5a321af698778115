"""jax.experimental.pallas' names; see fuser.pallas."""

from fuser.gaps import absent
from fuser.pallas import *  # noqa: F403
from fuser.pallas import __all__ as __all__

__getattr__ = absent(__name__)
