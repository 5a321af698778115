"""Kernels of a user's in Triton's interpreter, on the C backend and on Triton's; errors where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import fuser
from fuser.errors import UnsupportedError

triton = pytest.importorskip("triton")


def test_kernels_of_the_user_run_in_programs() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.api.triton_kernels"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.stdout == "all as expected\n", found.stderr[-3000:]


def test_without_a_gpu_there_is_a_way_out() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")

    @triton.jit
    def nothing(x, out):
        pass

    x = np.ones(3, np.float32)
    program = fuser.jit(lambda x: fuser.triton_call(nothing, x, grid=1, out_shape=x))
    with pytest.raises(UnsupportedError, match=r"the Triton kernel nothing needs a GPU, .* set TRITON_INTERPRET=1"):
        program(x)
    with pytest.raises(TypeError, match=r"takes a function decorated with triton\.jit, got a builtin"):
        fuser.triton_call(print, x, grid=1, out_shape=x)
    with pytest.raises(ValueError, match=r"input_output_aliases \{1: 0\}: there are 1 arrays and 1 results"):
        fuser.triton_call(nothing, x, grid=1, out_shape=x, input_output_aliases={1: 0})
