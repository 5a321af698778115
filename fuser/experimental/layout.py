"""jax.experimental.layout's names: how an array lies in memory."""

from fuser.gaps import absent

__getattr__ = absent(__name__, dict.fromkeys(("Format", "Layout", "with_layout_constraint"), "fuser.api.layout"))
