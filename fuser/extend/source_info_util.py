"""jax.extend.source_info_util's names: which frames are the user's."""

from fuser.frames import register_exclusion

__all__ = ["register_exclusion"]
