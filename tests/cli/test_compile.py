"""`compile` for GPUs that are not there: the report of each kernel, and the files."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.xdist_group("triton")


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_compile_for_a_gpu_reports_each_kernel(
    command: Any, model: pathlib.Path, tmp_path: pathlib.Path, target: str
) -> None:
    arguments = (
        "compile",
        "--target",
        target,
        f"{model}:softmax",
        "--args",
        "f32[4096,1024]",
        "--out",
        str(tmp_path / "out"),
    )
    document = command(*arguments, "--json").document
    (kernel,) = document["kernels"]
    (launch,) = kernel["launches"]
    assert kernel["moved_bytes"] == kernel["ideal_bytes"] == 2 * 4 * 4096 * 1024
    assert (kernel["limiter"], document["library_steps"]) == ("memory", [])
    assert kernel["predicted_seconds"] == document["predicted_seconds"] > kernel["seconds"]["memory"] > 0
    assert launch["code"]["spills"] == 0 and 16 < launch["code"]["registers"] <= 128
    assert (launch["code"]["load_bits"], launch["code"]["store_bits"]) == (128, 128)
    assert 0 < launch["occupancy"] <= 1 and launch["grid"] == 4096
    assert {"analysis.json", f"{kernel['name']}.py"} == {path.name for path in (tmp_path / "out").iterdir()}
    if target == "cuda:90":
        text = command(*arguments).text
        assert "Compiled for cuda:90: 1 kernel." in text and "limited by memory" in text and "0 B spilled" in text


def test_compile_names_the_targets_that_there_are(command: Any, model: pathlib.Path) -> None:
    result = command("compile", "--target", "cuda:1", f"{model}:softmax")
    assert result.status == 2
    assert (
        "'cuda:1' is no target; write tpu:v5e, tpu:v5p, tpu:v6e, cuda:80, cuda:90, cuda:100 or hip:gfx942"
        in result.errors
    )


def test_fuser_numpy_beside_numpys_dtypes_is_jitted(command: Any, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "mixed.py"
    program.write_text(
        "import numpy as np\nimport fuser.numpy as fnp\n\n"
        "def ranked(x):\n    order = fnp.argsort(x)\n    return fnp.interp(fnp.array([0.5], dtype=np.float32), x[order], x)\n"
    )
    arguments = (
        "compile",
        "--target",
        "cuda:90",
        f"{program}:ranked",
        "--args",
        "f32[32]",
        "--out",
        str(tmp_path / "out"),
    )
    assert "Compiled for cuda:90" in command(*arguments).text
