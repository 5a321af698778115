"""Settings of the test suite: JAX, the oracle, runs on the CPU."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
