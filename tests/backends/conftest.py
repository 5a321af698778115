"""What several files here need: the driver's stand-in, opened once a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fuser.runtime.core import native
from tests import cuda_stand_in


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    if native is None:
        pytest.skip("the native core is not built, or turned off")
    with cuda_stand_in.opened() as opened:
        yield opened
