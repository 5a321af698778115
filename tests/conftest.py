"""Settings of the test suite: JAX, the oracle, runs on the CPU."""

import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parent / "numpy"))  # for agreement.py
