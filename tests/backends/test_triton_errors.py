"""What Triton's compilers say reaches the user, whichever of them fails and however."""

from __future__ import annotations

import subprocess

import pytest

triton = pytest.importorskip("triton")

from fuser.backends.base import KernelSource  # noqa: E402
from fuser.backends.triton.launch import refused  # noqa: E402
from fuser.errors import OutOfMemoryError, ToolchainError  # noqa: E402

ERRORS = {
    "ptxas": (
        triton.runtime.errors.PTXASError("line 7: bad register"),
        "it says:\nPTXAS error: line 7: bad register\n",
    ),
    "resources": (triton.OutOfResources(200, 100, "shared memory"), "out of resource: shared memory, Required: 200"),
    "nothing": (triton.runtime.errors.InterpreterError(), "it says:\nnothing (InterpreterError)\n"),
    "passes": (RuntimeError("PassManager::run failed"), "it says:\nPassManager::run failed\n"),
    "no gcc": (RuntimeError("Failed to find C compiler. Please specify via CC."), "Failed to find C compiler"),
    "gcc": (subprocess.CalledProcessError(1, ["gcc", "a.c"], stderr=b"a.c:1: error"), "it says:\na.c:1: error"),
    "silent gcc": (subprocess.CalledProcessError(4, ["gcc", "a.c"]), "the C compiler gcc failed without a word"),
    "killed gcc": (
        subprocess.CalledProcessError(-9, ["gcc", "a.c"]),
        "was killed by signal 9 (SIGKILL), usually because",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_compilers_words_are_kept(name: str) -> None:
    error, words = ERRORS[name]
    told = refused(error, KernelSource("k0_add", "", "triton", (), {}), "/there/k.py")
    assert isinstance(told, ToolchainError) and "k0_add" in str(told) and words in str(told)
    assert "gcc" in name or "/there/k.py" in str(told)


@pytest.mark.parametrize(
    "error", [OutOfMemoryError("none left"), RuntimeError("an illegal memory access"), ValueError("x")]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert refused(error, KernelSource("k0_add", "", "triton", (), {}), "") is error
