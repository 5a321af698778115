"""Compiles every form of kernel and the benchmark's workloads ahead of time, for NVIDIA and AMD targets, without a GPU.

All of them for sm_90, and each for one of the other targets in turn (`LARGE` forms for all: their registers differ most).

In: the shard and the number of shards. Out: one JSON line a kernel and target: its name, the target, the error (empty
if it compiled), the widest load in bits, whether products and sums are contracted, and spilled registers.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

os.environ["FUSER_BACKEND"] = "triton"
os.environ["FUSER_ENABLE_X64"] = "1"
os.environ.pop("TRITON_INTERPRET", None)

import fuser
from bench.workloads import WORKLOADS
from fuser import jit
from fuser.backends.base import KernelSource
from fuser.backends.triton.aot import compile_ahead
from fuser.ir.types import ArrayType
from tests.backends import triton_cases

FIRST = ("cuda", 90)
OTHERS = (("cuda", 80), ("cuda", 100), ("hip", "gfx942"))


def sources() -> Iterator[tuple[str, KernelSource]]:
    """Each kernel of each case, with the case's name."""
    for name, (function, types) in triton_cases.pairs():
        yield from ((name, source) for source in jit(function).lower(*types).sources)
    for workload in WORKLOADS.values():
        if workload.name.replace("_", " ") in triton_cases.LARGE:
            continue
        types = [ArrayType(x.shape, x.dtype) for x in workload.inputs("small")]
        lowered = jit(lambda *a, workload=workload: workload.run(fuser, a)).lower(*types)
        yield from ((f"workload {workload.name}", source) for source in lowered.sources)


def report(source: KernelSource, target: tuple[str, Any]) -> dict[str, Any]:
    """What came of one source on one target."""
    try:
        kernels = compile_ahead(source, *target)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[-2000:]}
    text = "".join(kernel.asm.get("ptx", "") for kernel in kernels)
    widths = [
        32 if not (v := re.search(r"\.v(\d)", line)) else int(v[1]) * 32
        for line in re.findall(r"ld\.global[\w.:]*", text)
    ]
    binary = all(kernel.asm.get("cubin" if target[0] == "cuda" else "hsaco") for kernel in kernels)
    return {
        "error": "" if binary else "no binary",
        "load": max(widths, default=0),
        "fused": "fma.rn.f32" in text,
        "launches": len(kernels),
    }


def main(shard: int, shards: int) -> None:
    for number, (name, source) in enumerate(sources()):
        if number % shards == shard:
            others = OTHERS if name.startswith("large ") else (OTHERS[number // shards % len(OTHERS)],)
            for target in (FIRST, *others):
                row = {"case": name, "kernel": source.name, "target": target, **report(source, target)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
