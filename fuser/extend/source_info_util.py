"""jax.extend.source_info_util's names: which frames are the user's."""

from fuser.frames import register_exclusion
from fuser.gaps import absent

__all__ = ["register_exclusion"]

__getattr__ = absent(__name__)
