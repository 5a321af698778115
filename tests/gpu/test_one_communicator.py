"""On a real GPU, one will do: NCCL is found, connects, and its operations are launched, captured and replayed.

Elsewhere the test is skipped with the reason.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parallel"))
import processes_on_gpus

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("gpu"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


def test_collectives_of_one_device_go_through_its_communicator() -> None:
    for name, (found, wanted) in processes_on_gpus.of_one("cuda").items():
        np.testing.assert_array_equal(np.asarray(found), wanted, name)
