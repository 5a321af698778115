"""Long runs do not grow: 10⁵ calls of all kinds, failing ones among them, then the same in threads and in forked children.

Each path of calls runs in a process of its own. What one call leaves behind would show 10⁵ times: in Python's blocks and
objects, in the pool's statistics, and in the pages that the process holds.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from fuser.runtime.core import native

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PROGRAM = """
import gc, os, sys, threading, numpy as np, fuser, fuser.numpy as fnp

x = fnp.asarray(np.arange(12, dtype=np.float32))
wide = np.ones((64, 600), np.float32)
tree = {"a": x, "b": [x, (x, None)], "c": 2.0}

def small(x):
    return 2 * x + 1

def through(tree, *, t):
    return {"b": tree["b"], "s": [tree["a"] * tree["c"], (fnp.sum(tree["b"][1][0]), t)]}

def temporaries(x):
    sums = fnp.cumsum(x, axis=0)
    return fnp.cumsum(fnp.concatenate([sums, sums]), axis=1)[:, -1], fnp.sort(sums, axis=0)

def numpys(x):
    return fnp.cumsum(x * 1j)

def looped(x):
    return fuser.lax.fori_loop(0, 3, lambda n, x: x * n, x)

small, through, temporaries, numpys, looped = map(fuser.jit, (small, through, temporaries, numpys, looped))
donating = fuser.jit(lambda x: x + 1, donate_argnums=0)
static = fuser.jit(lambda x, n: x + n, static_argnums=1)

def fails(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError("it did not fail")

def fail(n):
    if n % 2 == 0:
        fails(lambda: small(object()), TypeError)
    else:
        gone = small(x)
        donating(gone)
        fails(lambda: small(gone), RuntimeError)
    if n % 20 == 0:
        with fuser.config.using(memory_limit=1):
            fails(lambda: temporaries(wide), fuser.errors.OutOfMemoryError)

def work(count):
    for n in range(count):
        y = small(x)
        if n % 10 == 0:
            out = through(tree, t=x)
        if n % 20 == 0:
            z = looped(x), numpys(x), static(x, 3)
        if n % 100 == 0:
            last, ordered = temporaries(wide)
        if n % 50 == 0:
            fail(n // 50)
    assert float(y[3]) == 7 and float(out["s"][1][0]) == 66 and float(out["s"][0][2]) == 4 and out["b"][1][1] is None
    assert float(last[-1]) == 600 * 64 and float(ordered[-1, 0]) == 64 and complex(z[1][-1]) == 66j and float(z[2][1]) == 4

def in_threads(count):
    done = []
    threads = [threading.Thread(target=lambda: (work(count // 4), done.append(1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4

def in_a_child():
    child = os.fork()
    if child == 0:
        try:
            work(501)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

def state():
    gc.collect()
    stats = fuser.memory_stats()
    pages = int(open("/proc/self/statm").read().split()[1])
    return [sys.getallocatedblocks(), len(gc.get_objects()), stats["bytes_in_use"], stats["pool_bytes"], pages]

def grown(what, run, warm_up, count):
    run(warm_up)
    before = state()
    run(count)
    print(what, *[b - a for a, b in zip(before, state())])

grown("calls", work, 20000, COUNT)
grown("threads", in_threads, 8000, 20000)
going = True
def keep_calling():
    while going:
        work(501)
threads = [threading.Thread(target=keep_calling, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(3):
    in_a_child()
going = False
for thread in threads:
    thread.join()
in_a_child()
print("end")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("core", "calls"), [("1", 100_000), ("0", 100_000)], ids=["native", "python"])
def test_long_runs_do_not_grow(core, calls):
    if core == "1" and native is None:
        pytest.skip("there is no native core")
    environment = {
        **os.environ,
        "FUSER_NATIVE": core,
        "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
        "FUSER_MEMORY_LIMIT": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("COUNT", str(calls))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    *lines, end = done.stdout.splitlines()
    assert end == "end" and len(lines) == 2
    for line in lines:
        what, blocks, objects, in_use, idle, pages = line.split()
        assert int(blocks) < 1500 and int(objects) < 50, (
            line
        )  # caches fill up; calls of the rarest kind would leave more
        assert int(in_use) == 0, line
        most_idle, most_pages = (
            (0, 256) if what == "calls" else (8 << 20, 4096)
        )  # chance decides what threads hold at once
        assert int(idle) <= most_idle and int(pages) < most_pages, line
