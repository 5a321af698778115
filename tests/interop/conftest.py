"""Here programs are tested, not the choice between them and NumPy: it is left out where a test does not ask for it."""

import pytest

from fuser.interop import accelerate


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    monkeypatch.setitem(accelerate.__kwdefaults__, "measure", False)
