"""Reports of programs that are not run: those of the TPU backend, which need neither JAX nor a TPU."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.cli import main
from fuser.report import ProgramProfile, from_json

X = np.ones((64, 256), np.float32)


def work(x: Any) -> Any:
    y = fnp.sort(fnp.exp(x))
    return y / fnp.sum(y, axis=1, keepdims=True), fnp.sum(y * 2, axis=0)


@pytest.fixture(scope="module")
def planned() -> ProgramProfile:
    return fuser.profile(fuser.jit(work, backend="tpu"))(X)


def test_figures_are_the_plans(planned: ProgramProfile) -> None:
    plan = fuser.jit(work, backend="tpu").lower(X).plan
    assert not planned.timed and planned.median_seconds == planned.kernel_seconds == 0
    assert [kernel.name for kernel in planned.kernels] == [group.name for group in plan.groups]
    assert [kernel.vmem for kernel in planned.kernels] == [group.vmem for group in plan.groups]
    assert [kernel.language for kernel in planned.kernels] == ["pallas", "jax", "pallas", "pallas"]
    assert planned.planned_bytes == sum(group.ideal_bytes for group in plan.groups) == X.nbytes * 7 + 256 * 4
    assert planned.ideal_bytes == 2 * X.nbytes + 256 * 4
    assert planned.peak_bytes == planned.ideal_bytes + 2 * X.nbytes
    assert {refusal.reason for refusal in planned.refused} >= {"sort is XLA's", "they reduce over different axes"}
    assert [stage.name for stage in planned.stages] == ["trace", "optimise", "legalise", "partition", "emit"]
    assert {node.group for node in planned.graph.nodes} == {-1, 0, 1, 2, 3}


def test_halos_of_blocks_count_as_moved() -> None:
    stencil = fuser.jit(lambda u: u[2:] - 2 * u[1:-1] + u[:-2], backend="tpu")
    u = fuser.ShapeDtypeStruct((4096, 4096), np.float32)
    (kernel,) = fuser.profile(stencil)(u).kernels
    assert kernel.bytes_moved == stencil.lower(u).sources[0].launch["bytes"] > kernel.bytes_ideal


def test_no_form_shows_a_time(planned: ProgramProfile) -> None:
    text = planned.text(width=200)
    kernels = text.split("Kernels, in the order")[1].split("What each kernel does")[0]
    assert "on chip" in kernels and "moved" in kernels
    assert not re.search(r"\b(median|rate|of copy|compile)\b", kernels)
    assert "Nothing was run: the tpu backend's compiler takes programs whole" in text
    page = planned.html()
    assert re.findall(r'<section id="(\w+)"', page) == [*("summary", "kernels", "graph", "refused", "machine")]
    assert "On-chip memory" in page and "Time per call" not in page and "#roofline" not in page
    heads = re.findall(r"<th[^>]*><button[^>]*>([^<]+)</button>", page)
    cells = re.findall(r'<tr class="figures">(.*?)</tr>', page, re.DOTALL)
    assert heads == ["#", "Kernel", "Must move", "Moved", "FLOP", "On chip"]
    assert len(cells) == 4 and all(row.count("<td") == len(heads) for row in cells)


def test_it_survives_json(planned: ProgramProfile) -> None:
    assert from_json(planned.to_json()) == planned


def test_the_command_writes_the_page(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = "import fuser.numpy as fnp\ndef norm(x):\n    return x / fnp.sqrt(fnp.sum(x * x, axis=1, keepdims=True))\n"
    (tmp_path / "model.py").write_text(model)
    page = tmp_path / "norm.html"
    with fuser.config.using(backend="tpu"):
        status = main(["report", f"{tmp_path}/model.py:norm", "--args", "f32[512,256]", "--html", str(page), "--json"])
    document = json.loads(capsys.readouterr().out)
    (kernel,) = document["profile"]["kernels"]
    assert status == 0 and kernel["vmem"] > 0 and document["profile"]["repeats"] == 0
    assert "pl.pallas_call(" in re.sub(r"<[^>]+>", "", page.read_text())
