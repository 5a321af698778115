"""Without torch and Triton the triton backend plans, explains and writes kernels; what runs or compiles them says what to install."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["torch"] = sys.modules["triton"] = None  # as if they were not installed
import numpy as np
import fuser
double = fuser.jit(lambda x: x * 2 + 1, backend="triton")
x = np.ones((4, 8), np.float32)
assert "@triton.jit" in double.lower(x).sources[0].text
assert "1 kernel on triton" in str(fuser.explain(double)(x))
try:
    double(x)
except fuser.errors.UnsupportedError as error:
    print(error)
"""


def test_plans_need_neither() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    words = "the triton backend needs torch, which is not installed; install fuser[gpu], or set FUSER_BACKEND=c"
    assert result.stdout.strip() == words
