"""What a program pays before it computes: import time, first calls with a cold and a warm disk cache, compilations.

Every figure comes from fresh processes that print JSON; each is repeated and its median counts. fuser's processes get
a cache folder of their own, so nothing that was compiled before helps them.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from bench.large import NAMES

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {  # what: (largest value, unit)
    "import fuser": (0.2, "s"),
    "first call, cold": (0.150, "s"),
    "first call, warm disk cache": (0.015, "s"),
    "kernels for 100 softmax sizes": (4, "kernels"),
    "trace and partition 1,000 operations": (0.100, "s"),
    "time for 4 times the operations": (5.5, "times"),
}

IMPORT = """
import json, time
start = time.perf_counter()
import {module}
print(json.dumps(time.perf_counter() - start))
"""

# A small function on a small array; the array is placed and the library's imports are done before the clock starts.
FIRST_CALL = """
import json, time
import numpy as np
import {module}, {module}.numpy as xnp
x = xnp.asarray(np.ones((64, 64), np.float32))
x.block_until_ready()
function = {module}.jit(lambda x: xnp.tanh(x) * 2.0 + xnp.sum(x * x, axis=-1, keepdims=True))
start = time.perf_counter()
function(x).block_until_ready()
print(json.dumps(time.perf_counter() - start))
"""

# Compilations are counted by fuser, or (the folder was empty) as the libraries in its disk cache.
COMPILATIONS = """
import json, os, pathlib
import numpy as np
import fuser, fuser.numpy as fnp
libraries = lambda: len(list(pathlib.Path(os.environ["FUSER_CACHE_DIR"]).rglob("*.so")))
count = getattr(fuser, "compile_count", libraries)
function = fuser.jit(lambda x: (e := fnp.exp(x - fnp.max(x, axis=-1, keepdims=True))) / fnp.sum(e, -1, keepdims=True))
x = [fnp.asarray(np.ones((16 + size, 100 + 37 * size), np.float32)) for size in range(100)]
before = count()
for each in x:
    function(each).block_until_ready()
print(json.dumps(count() - before))
"""

# Elementwise operations and reductions that meet again, as in a deep network; seconds of the processor, the best of several.
PLANNING = """
import json, time
import numpy as np
import fuser, fuser.numpy as fnp
from fuser.backends import get
from fuser.legalise import legalise
from fuser.partition.partition import partition
from fuser import passes
def program(count):
    def function(x, w):
        kept = [x]
        for number in range(count // 10):
            y = fnp.tanh(kept[-1] * w + 0.5) - kept[len(kept) // 2]
            y = y - fnp.sum(y, axis=1, keepdims=True)
            kept.append(fnp.maximum(y, 0.1 * y) * fnp.exp(-y))
        return kept[-1]
    return function
def seconds(count):
    times = []
    for _ in range(5):
        arrays = np.ones((8, 16), np.float32), np.ones(16, np.float32)
        function = fuser.jit(program(count))
        start = time.process_time()
        graph = function.trace(*arrays).graph
        plan = partition(legalise(passes.run(graph), get("c")), get("c"))
        times.append(time.process_time() - start)
    return min(times), len(graph.eqns)
{figure}
"""
# Programs of 2,000 equations and more, from nothing to a program that is ready to run.
LARGE = """
from bench.large import main
main("{module}", "{program}")
"""

SECONDS = "taken, count = seconds(1000)\nprint(json.dumps(taken * 1000 / count))"
GROWTH = """
(small, least), (large, most) = seconds(400), seconds(1600)
print(json.dumps(large / small * 4 * least / most))
"""


def measure_startup(repeats: int = 5, systems: tuple[str, ...] = ("fuser", "jax")) -> list[dict[str, Any]]:
    """One entry per figure: what, system, value, unit, limit, verdict (PASS, MISS or NOT MEASURED) and `failure`."""
    entries = []
    for system in systems:
        entries.append(_entry(f"import {system}", system, lambda s=system: _median(IMPORT, s, repeats, warm=True)))
        entries.append(_entry("first call, cold", system, lambda s=system: _median(FIRST_CALL, s, repeats, warm=False)))
    for program in NAMES:
        what = f"compile 2,000 equations: {program}"
        entries += _beside(what, LARGE.replace("{program}", program), repeats, systems)
    if "fuser" in systems:
        warm = "first call, warm disk cache"
        entries.append(_entry(warm, "fuser", lambda: _median(FIRST_CALL, "fuser", repeats, warm=True)))
        what = "kernels for 100 softmax sizes"
        entries.append(_entry(what, "fuser", lambda: _median(COMPILATIONS, "fuser", 1, warm=False)))
        for what, figure in (
            ("trace and partition 1,000 operations", SECONDS),
            ("time for 4 times the operations", GROWTH),
        ):
            script = PLANNING.replace("{figure}", figure)
            entries.append(_entry(what, "fuser", lambda script=script: _median(script, "fuser", 3, warm=False)))
    return entries


def _beside(what: str, script: str, repeats: int, systems: tuple[str, ...]) -> list[dict[str, Any]]:
    """A cold figure of each system, whose processes take turns; JAX's is the limit of fuser's."""
    values: dict[str, list[float] | RuntimeError] = {system: [] for system in systems}
    for _ in range(repeats):
        for system in systems:
            known = values[system]
            if isinstance(known, list):
                try:
                    known.append(_median(script, system, 1, warm=False))
                except RuntimeError as error:
                    values[system] = error
    found = [_entry(what, system, lambda v=values[system]: _middle(v)) for system in systems]
    medians = {entry["system"]: entry["value"] for entry in found}
    for entry in found:
        if entry["system"] == "fuser" and entry["value"] is not None and medians.get("jax") is not None:
            entry |= {"limit": medians["jax"], "verdict": "PASS" if entry["value"] <= medians["jax"] else "MISS"}
    return found


def _middle(values: list[float] | RuntimeError) -> float:
    if isinstance(values, RuntimeError):
        raise values
    return statistics.median(values)


def _entry(what: str, system: str, figure: Any) -> dict[str, Any]:
    limit, unit = LIMITS.get(what, (None, "s"))
    entry: dict[str, Any] = {
        "what": what,
        "system": system,
        "value": None,
        "unit": unit,
        "limit": None,
        "failure": None,
    }
    entry["verdict"] = None
    if system == "fuser" and limit is not None:
        entry |= {"limit": limit, "verdict": "NOT MEASURED"}
    try:
        entry["value"] = figure()
    except RuntimeError as error:
        return entry | {"failure": str(error)}
    if entry["limit"] is not None:
        entry["verdict"] = "PASS" if entry["value"] <= entry["limit"] else "MISS"
    return entry


def _median(template: str, module: str, repeats: int, warm: bool) -> float:
    """The median over fresh processes. Warm: one process more goes first and fills the folder; cold: an empty one each."""
    script = template.replace("{module}", module)
    values = []
    with tempfile.TemporaryDirectory(prefix="bench-cache-") as folder:
        if warm:
            _run(script, os.path.join(folder, "shared"))
        for turn in range(repeats):
            values.append(_run(script, os.path.join(folder, "shared" if warm else str(turn))))
    return statistics.median(values)


def _run(script: str, cache: str) -> float:
    """The number that a fresh process prints; RuntimeError with the last line of its complaint where it fails."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {"JAX_PLATFORMS": "cpu"} | os.environ | {"FUSER_CACHE_DIR": cache, "PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have byte code, so a checkout may keep it
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])
