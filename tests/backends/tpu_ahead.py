"""Compiles programs for TPUs with libtpu and prints one JSON line a case and target.

In: a suite ("forms" or "workloads") and a shard. A process of its own, because JAX must be told to stay on the CPU.
"""

from __future__ import annotations

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
from fuser.backends.tpu.ahead import compile_plan
from tests.backends import tpu_cases

TARGETS = ("v5e", "v6e")
SIZE = {"forms": "", "workloads": "small"}


def programs(suite: str) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """The suite's programs with their arguments or their types."""
    if suite == "forms":
        for name, (function, avals) in (tpu_cases.FORMS | tpu_cases.TRANSFORMS).items():
            yield name, function, avals
        return
    for name, workload in WORKLOADS.items():
        if name not in tpu_cases.WIDE:
            yield name, tpu_cases.program(workload), workload.inputs("tiny" if workload.random else SIZE[suite])


def main(suite: str, shard: int, shards: int) -> None:
    for number, (name, function, arguments) in enumerate(programs(suite)):
        if number % shards != shard:
            continue
        for target in TARGETS:
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
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
