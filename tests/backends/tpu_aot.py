"""Compiles programs for TPUs with libtpu and prints one JSON line a case and target.

In: which share of them, and of how many shares.
Each program compiles for one of the machines in turn. A process of its own, because JAX must be
told to stay on the CPU before it is imported.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":
    os.environ |= {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}

from bench.workloads import WORKLOADS
from fuser import jit
from fuser.backends.tpu.aot import compile_plan
from tests.backends import tpu_cases

TARGETS = ("v5e", "v6e")
Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


def programs() -> Iterator[Program]:
    """Programs, and their arguments or the types of these."""
    for name, (function, avals) in (tpu_cases.FORMS | tpu_cases.TRANSFORMS).items():
        yield name, function, avals
    for name, workload in WORKLOADS.items():
        if name not in tpu_cases.WIDE:
            size = "tiny" if workload.random else "small"
            yield name, tpu_cases.program(workload), workload.inputs(size)


def main(share: int, shares: int) -> None:
    taken = itertools.islice(programs(), share, None, shares)
    for (name, function, arguments), target in zip(taken, itertools.cycle(TARGETS)):
        start = time.perf_counter()
        row: dict[str, Any] = {"case": name, "target": target, "error": "", "custom": 0, "pallas": 0}
        try:
            lowered = jit(function, backend="tpu").lower(*arguments)
            row["pallas"] = sum(source.language == "pallas" for source in lowered.sources)
            analysis = compile_plan(lowered.plan, target)
            row["custom"] = analysis.launches["custom-call"]
        except Exception:
            row["error"] = traceback.format_exc(limit=-2)[-2000:]
        row["seconds"] = round(time.perf_counter() - start, 2)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*map(int, sys.argv[1:]))
