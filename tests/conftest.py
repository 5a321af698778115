"""Settings of all tests: graphs are checked after each pass, and JAX, the oracle, runs on the CPU with 64-bit types."""

from __future__ import annotations

import os

os.environ.setdefault("FUSER_CHECK", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
