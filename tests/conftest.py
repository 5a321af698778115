"""Settings of the whole suite: graphs are checked after each pass, JAX, the oracle, runs on the CPU, and compiled kernels
go to a cache of their own, which later runs find again."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("FUSER_CHECK", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # the oracle compiles much and runs little
os.environ.setdefault("FUSER_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"fuser-tests-{os.getuid()}"))
sys.path.insert(0, str(Path(__file__).parent / "numpy"))  # for agreement.py, the comparison with JAX
