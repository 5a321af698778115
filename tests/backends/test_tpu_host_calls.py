"""Callbacks, printing and foreign functions in programs for TPUs: values, order and errors are those of the C backend."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from fuser import ShapeDtypeStruct, jit
from tests.backends import tpu_host_calls

pytestmark = pytest.mark.tpu
ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_they_do_what_they_do_on_the_processor() -> None:
    pytest.importorskip("jax")
    command = [sys.executable, "-m", "tests.backends.tpu_host_calls", "tpu"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ}, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    wanted = {name: tpu_host_calls.outcome(function, "c") for name, function in tpu_host_calls.PROGRAMS.items()}
    assert wanted["failing"][0] == "JaxRuntimeError" and wanted["in_test"][1] == ["going 0", "going 1", "going 2"] * 2
    assert found == wanted


def test_the_text_names_the_function_and_the_plan_says_what_it_is() -> None:
    lowered = jit(tpu_host_calls.pure, backend="tpu").lower(ShapeDtypeStruct((4,), "float32"))
    assert "jax.pure_callback(host_0_" in "\n".join(str(source.text) for source in lowered.sources)
    assert "pure_callback is XLA's" in lowered.plan.explain()
