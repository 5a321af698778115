"""Ctrl-C during a long loop in native code raises KeyboardInterrupt at once, and fuser works on afterwards."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import fuser
from fuser.runtime.core import native

CODE = """
import os, signal, subprocess, sys, time
import numpy as np
import fuser, fuser.numpy as fnp
from fuser import lax
from fuser.partition.group import Kind

def endless(x):
    return lax.while_loop(lambda c: c[0] >= 0, lambda c: (fnp.sin(c[0]) ** 2 + 1, c[1] + 1), (x, 0))[0]

def one_lane(x):
    return fuser.vmap(lambda a: lax.while_loop(lambda c: c > 1e-3, lambda c: fnp.where(a > 990.0, c, c * 0.5), a))(x)

def long_scan(x):
    return lax.fori_loop(0, 2**31 - 1, lambda i, c: fnp.sin(c) + i, x)

def driver(x):
    return lax.while_loop(lambda c: c[0, 0] > -1e9, lambda c: fnp.cumsum(fnp.sin(c), axis=0) * 0.1, x)

def driver_scan(x):
    return lax.fori_loop(0, 2**31 - 1, lambda i, c: fnp.cumsum(fnp.sin(c), axis=0) * 0.1, x)

def loop_in_driver(x):
    inner = lambda a: lax.while_loop(lambda c: c > 0, lambda c: fnp.sin(c) ** 2 + 1, a)
    return lax.while_loop(lambda c: c[0] > 0, lambda c: fnp.cumsum(c * inner(c[0])), x)

def quick_loop_in_driver(x):
    inner = lambda a: lax.fori_loop(0, 100, lambda i, c: fnp.sin(c) ** 2 + 1, a)
    return lax.while_loop(lambda c: c[0] > -9, lambda c: fnp.cumsum(c * 0 + inner(c[0])), x)

signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests in the background ignores it
line, square = np.arange(1, 1001, dtype=np.float32), np.ones((30, 30), np.float32)
CASES = {
    "endless": (endless, np.float32(1), "loop"),
    "one_lane": (one_lane, line, "loop"),
    "long_scan": (long_scan, np.float32(1), "loop"),
    "driver": (driver, square, "control"),
    "driver_scan": (driver_scan, np.ones((70, 90), np.float32), "control"),
    "loop_in_driver": (loop_in_driver, line, "control"),
    "quick_loop_in_driver": (quick_loop_in_driver, line, "control"),
}
small = fuser.jit(lambda x: fnp.sin(x).sum())
expected = float(small(line))

def interrupted(run, argument):
    sender = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -INT {os.getpid()}"])
    started = time.perf_counter()
    try:
        run(argument)
        return "ended by itself"
    except KeyboardInterrupt:
        seconds = time.perf_counter() - started
        return "interrupted" if seconds < 0.9 else f"interrupted after {seconds} s"
    finally:
        sender.wait()

for name, (function, argument, kind) in CASES.items():
    compiled = fuser.jit(function).lower(argument).compile()
    loops = [g for g in compiled.plan.groups if g.kind in (Kind.LOOP, Kind.CONTROL)]
    assert [g.kind.value for g in loops] == [kind] and not any(g.reason for g in loops), compiled.plan
    print(name, interrupted(compiled, argument))
    assert float(small(line)) == expected
print("eager", interrupted(endless, fnp.float32(1)))
"""
NAMES = ("endless", "one_lane", "long_scan", "driver", "driver_scan", "loop_in_driver", "quick_loop_in_driver", "eager")


def run(code, path, *arguments, **variables):
    if path == "native" and native is None:
        pytest.skip("there is no native core")
    environment = {**os.environ, "FUSER_NATIVE": str(int(path == "native")), "FUSER_THREADS": "2", **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=pathlib.Path(fuser.__file__).parents[1],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals")
@pytest.mark.parametrize("path", ["native", "python"])
def test_loops_are_interrupted(path):
    result = run(CODE, path)
    assert (result.stdout.splitlines(), result.stderr) == ([f"{name} interrupted" for name in NAMES], "")


HANDLED = """
import os, signal, subprocess, numpy as np
import fuser, fuser.numpy as fnp
from fuser import lax
heard = []
signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
loop = fuser.jit(lambda x: lax.fori_loop(0, 200_000_000, lambda i, c: c * 0.5 + 1, x)).lower(np.float32(1)).compile()
subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -INT {os.getpid()}"])
print(float(loop(np.float32(1))), [int(n) for n in heard])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals")
@pytest.mark.parametrize("path", ["native", "python"])
def test_a_handler_that_raises_nothing_leaves_the_loop_alone(path):
    result = run(HANDLED, path)
    assert (result.stdout, result.stderr) == ("2.0 [2]\n", "")


FILES = """
import os, signal, subprocess, numpy as np
import fuser, fuser.numpy as fnp
from fuser import lax
from fuser.backends.c.compilation import translation_units
translation_units.LONG, translation_units.cpu_count = 1, lambda: 3
signal.signal(signal.SIGINT, signal.default_int_handler)

def program(x, steps, times):
    slow = lambda c: lax.fori_loop(0, steps, lambda i, a: fnp.sin(a) + i, c)
    middle = lambda c: lax.fori_loop(0, times, lambda i, a: fnp.cumsum(a) * 0.1 + slow(a[0]), c)
    return lax.fori_loop(0, times, lambda i, a: fnp.cumsum(a) * 0.1 + middle(a), x)

x = np.ones(300, np.float32)
compiled = fuser.jit(program).lower(x, 4000, 3).compile()
before = compiled(x, 4000, 3)
subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -INT {os.getpid()}"])
try:
    compiled(x, 2_000_000_000, 2)
except KeyboardInterrupt:
    print("interrupted", bool((compiled(x, 4000, 3) == before).all()))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals")
def test_a_program_of_several_files_runs_again_after_an_interrupt(tmp_path):
    result = run(FILES, "native", FUSER_CACHE_DIR=str(tmp_path))
    assert (result.stdout, result.stderr) == ("interrupted True\n", "")


LIBRARY = """
import os, signal, sys, threading, time
import numpy as np
import fuser, fuser.numpy as fnp
signal.signal(signal.SIGINT, signal.default_int_handler)
random = np.random.default_rng(0)
matrix = random.standard_normal((4000, 4000), dtype=np.float32)
line = np.tile(random.standard_normal(1_000_000, dtype=np.float32), 12)
triangle = np.tril(matrix[:3000, :3000]) + 100 * np.eye(3000, dtype=np.float32)
CASES = {
    "product": (lambda a: a @ a @ a, matrix),
    "products": (lambda a: fnp.einsum("bij,bjk->bik", a.reshape(16, 500, 2000), a.reshape(16, 2000, 500)).sum(), matrix),
    "substitution": (lambda t: fuser.lax.linalg.triangular_solve(t, t, left_side=True, lower=True), triangle),
    "sort": (lambda x: fnp.sort(fnp.sort(x) * -1.0), line),
    "argsort": (fnp.argsort, line),
}
small = np.asarray(matrix[:50, :50], np.float64)
for name, (function, argument) in CASES.items():
    compiled = fuser.jit(function).lower(argument).compile()
    sender = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    started = time.perf_counter()
    sender.start()
    try:
        compiled(argument)
        time.sleep(0.2)  # the machine was quicker
        print(name, "ended")
    except KeyboardInterrupt:
        seconds = time.perf_counter() - started - 0.1
        print(name, "interrupted" if seconds < 1 else f"interrupted after {seconds}")
    sender.join()
    again = fuser.jit(lambda a: (a @ a, fnp.sort(a, 0)))(small.astype(np.float32))
    assert np.allclose(again[0], small @ small, atol=1e-3) and np.array_equal(again[1], np.sort(small, 0).astype(np.float32))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs POSIX signals")
@pytest.mark.parametrize(("path", "threads"), [("native", "2"), ("python", "1")])
def test_library_functions_are_interrupted(path, threads):
    result = run(LIBRARY, path, FUSER_THREADS=threads)
    lines = result.stdout.splitlines()
    assert len(lines) == 5 and result.stderr == "", result.stderr
    assert [line for line in lines if not line.endswith((" interrupted", " ended"))] == []
    assert sum(line.endswith(" interrupted") for line in lines) >= 3
