"""What several files here need: the driver's stand-in, opened once a file, as it was opened for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuser.runtime.core import native
from tests import cuda_stand_in


@pytest.fixture(scope="module")
def opened() -> Iterator[cuda_stand_in.Device]:
    if native is None:
        pytest.skip("the native core is not built, or turned off")
    with cuda_stand_in.opened() as device:
        yield device


@pytest.fixture
def device(opened: cuda_stand_in.Device) -> Iterator[cuda_stand_in.Device]:
    native.device_trim()
    opened.reset()
    yield opened
    opened.set_switches()
