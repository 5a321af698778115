"""What tests of compiled PyTorch functions watch: the programs that are made, and what torch runs between them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fuser.interop.dynamo import divide  # noqa: E402
from fuser.interop.dynamo.program import Program  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    """Nothing is known of what an earlier test or run compiled."""
    torch._dynamo.reset()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that are made while a test runs."""
    made: list[Program] = []
    initial = Program.__init__

    def watched(program: Program, *args: Any) -> None:
        initial(program, *args)
        made.append(program)

    monkeypatch.setattr(Program, "__init__", watched)
    return made


@pytest.fixture
def whole() -> Any:
    """Nothing runs in torch."""
    divide._told.clear()
    yield
    assert not divide._told
