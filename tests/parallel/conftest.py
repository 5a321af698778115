"""Eight devices of the CPU for fuser, as JAX has eight in this suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fuser

sys.path.append(str(Path(__file__).parent))  # for parallel_agreement.py


@pytest.fixture(autouse=True, scope="module")
def eight_devices() -> Iterator[None]:
    saved = fuser.config.num_cpu_devices
    fuser.config.update("num_cpu_devices", 8)
    yield
    fuser.config.update("num_cpu_devices", saved)
