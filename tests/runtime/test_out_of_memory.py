"""Out of memory in compiled programs: what the user reads, word for word, with and without the native core.

Each case runs under a limit in a process of its own and prints the error; `line` finds the user's line in the program.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from fuser.runtime.core import native

PROGRAM = """
import sys, numpy as np, fuser, fuser.numpy as fnp
from fuser.errors import OutOfMemoryError
MIB = 1 << 20
x = np.ones((512, 512), np.float32)

def attempt(limit, call):
    with fuser.config.using(memory_limit=limit * MIB):
        try:
            call()
            print("it fits")
        except OutOfMemoryError as error:
            print(str(error).replace("free arrays (del x, or x.delete()), donate inputs (donate_argnums), or work on smaller pieces", "ADVICE"))

@fuser.jit
def layer(x):
    return fnp.sin(x)  # a result

@fuser.jit
def totals(x):
    sums = fnp.cumsum(x * 1.5, axis=0)
    wide = fnp.concatenate([sums, sums])  # temporaries
    return fnp.sort(wide, axis=0)[:5], fnp.cumsum(sums, axis=1)[:, 1]

@fuser.jit
def stacked(x):
    step = lambda c, _: (fnp.cumprod(c.astype("complex64"), axis=0).real, c)
    return fuser.lax.scan(step, x, None, length=8)[1]  # a loop with a library step

@fuser.jit
def library(x):
    return fnp.cumprod(fnp.broadcast_to(x * 1j, (10**5, 10**5, 10**3)), axis=0)[0]  # NumPy

def evaluated():
    return fnp.ones((10**6, 10**6)) + 1  # at once

kept = [layer(x), layer(x), layer(x), layer(np.ones((2048, 128), np.float32))]
attempt(4, lambda: layer(x))
attempt(4, lambda: totals(x))
attempt(11, lambda: stacked(x))
attempt(0, lambda: library(x[0, :1]))
attempt(0, evaluated)
del kept
gone = layer(x), totals(x)
del gone
print(fuser.memory_stats()["bytes_in_use"])
"""
LINE = {text: n for n, line in enumerate(PROGRAM.splitlines(), 1) for text in [line.partition("# ")[2]] if text}
LIVE = (
    f"the largest arrays alive are\n  3 times float32[512,512] (1 MiB each) of oom.py:{LINE['a result']} (layer)\n"
    f"  float32[2048,128] (1 MiB) of oom.py:{LINE['a result']} (layer)"
)
WANTED = [
    f"no memory for float32[512,512] (1 MiB) of oom.py:{LINE['a result']} (layer): 4 MiB in use by arrays, and the limit is "
    f"4 MiB (FUSER_MEMORY_LIMIT); ADVICE; {LIVE}",
    f"no memory for a block (BYTES) of the temporaries of totals, the largest f32[1024,512] at oom.py:{LINE['temporaries']} (totals): 4 MiB in use by "
    f"arrays, and the limit is 4 MiB (FUSER_MEMORY_LIMIT); ADVICE; {LIVE}",
    f"no memory for float32[8,512,512] (8 MiB) of oom.py:{LINE['a loop with a library step']} (stacked): HELD MiB in use by arrays, and "
    f"the limit is 11 MiB (FUSER_MEMORY_LIMIT); ADVICE; {LIVE}CARRY",
    f"no memory in k1_cumprod of oom.py:{LINE['NumPy']} (library): Unable to allocate 72.8 TiB for an array "
    f"with shape (100000, 100000, 1000) and data type complex64; 4 MiB in use by arrays; ADVICE; {LIVE}",
    f"no memory in broadcast_in_dim of oom.py:{LINE['at once']} (evaluated): Unable to allocate 3.64 TiB for an array with "
    f"shape (1000000, 1000000) and data type float32; 4 MiB in use by arrays; ADVICE; {LIVE}",
    "0",
]


@pytest.mark.parametrize("core", ["1", "0"], ids=["native", "python"])
def test_errors_name_the_users_lines(core, tmp_path):
    if core == "1" and native is None:
        pytest.skip("there is no native core")
    file = tmp_path / "oom.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, file],
        env={**os.environ, "FUSER_NATIVE": core, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.sub(r"a block \([^)]*\)", "a block (BYTES)", done.stdout)
    where = f"oom.py:{LINE['a loop with a library step']} (stacked)"
    carry = f"\n  a block (BYTES) of the temporaries of stacked, the largest f32[512,512] at {where}"
    held = ("5", carry) if core == "1" else ("4", "")  # native loops have their carry by then
    assert found == "\n".join(WANTED).replace("HELD", held[0]).replace("CARRY", held[1]) + "\n"


LIMITED = """
import resource, numpy as np, fuser, fuser.numpy as fnp
from fuser.errors import OutOfMemoryError
x = fnp.ones(40_000, np.float32)
thousand = np.broadcast_to(np.float64(1), (40_000, 40_000))
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
calls = {
    "product": lambda: fuser.jit(lambda x: fnp.outer(x, x) @ fnp.outer(x, x))(x),
    "products": lambda: fuser.jit(lambda x: (fnp.outer(x, x) @ x, fnp.outer(x, x).T @ fnp.outer(x, x)))(x),
    "eager": lambda: fnp.outer(x, x) @ fnp.outer(x, x),
    "integers": lambda: fuser.jit(lambda x: fnp.outer(x, x).astype(np.int32) @ fnp.outer(x, x).astype(np.int32))(x),
    "inverse": lambda: fuser.jit(lambda x: fnp.linalg.inv(fnp.outer(x, x)))(x),
    "loop": lambda: fuser.jit(lambda x: fuser.lax.fori_loop(0, 3, lambda i, c: c @ c + i, fnp.outer(x, x)))(x),
    "accelerated": lambda: fuser.accelerate(lambda x: np.outer(x, x) @ np.outer(x, x))(np.ones(40_000, np.float32)),
    "converted": lambda: fnp.asarray(thousand),
    "conversion": lambda: fuser.jit(lambda x: x.sum())(thousand),
}
for name, call in calls.items():
    try:
        call()
        print(name, "fits")
    except MemoryError as error:
        text = str(error)
        print(name, type(error).__name__, "<string>" in text, any(size in text for size in ("40000,40000", "40000, 40000")))
print(float((fnp.outer(x[:3], x[:3]) @ x[:3]).sum()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_products_and_conversions_name_the_line_and_the_size() -> None:
    result = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120, check=False, env=os.environ
    )
    *lines, last = result.stdout.splitlines()
    assert len(lines) == 9 and last == "9.0", result.stderr
    assert [line for line in lines if not line.endswith("OutOfMemoryError True True")] == []
