"""jax.experimental.layout's names: how an array lies in memory."""

from fuser.parallel.layout import Format, Layout

__all__ = ["Format", "Layout"]
