"""The version of JAX whose names and behaviour fuser follows: libraries choose their code by it."""

from __future__ import annotations

__version__ = "0.10.2"
__version_info__ = (0, 10, 2)
