"""On a real GPU, one will do: NCCL is found, connects, and its operations are launched, captured and replayed.

Elsewhere the test is skipped with the reason.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

from fuser.backends.triton.device import overlap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parallel"))
import processes_on_gpus

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("gpu"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


@pytest.mark.parametrize("fork_seconds", [overlap.FORK_SECONDS, 0.0])  # on one stream, and on two wherever that can be
def test_collectives_of_one_device_go_through_its_communicator(
    monkeypatch: pytest.MonkeyPatch, fork_seconds: float
) -> None:
    monkeypatch.setattr(overlap, "FORK_SECONDS", fork_seconds)
    for name, (found, wanted) in processes_on_gpus.of_one("cuda").items():
        np.testing.assert_array_equal(np.asarray(found), wanted, name)
