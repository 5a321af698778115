"""Runs programs through the TPU backend in Pallas' interpreter and compares them with the reference backend.

In: suites on the command line ("forms,workloads", or "registry 0 2" for its first half). Out: one JSON line a case,
`{"case", "error"}`, error empty where it passed. A process of its own, because JAX reads its settings when it is imported.
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
    os.environ |= {"FUSER_TPU_INTERPRET": "1", "FUSER_BACKEND": "tpu", "JAX_PLATFORMS": "cpu"}
    # What is compiled here runs once, on a few numbers.
    os.environ |= {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}

import numpy as np

from bench.workloads import WORKLOADS
from fuser import config, jit
from fuser.backends.tpu.arrays import refusal
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import ArrayType
from fuser.runtime.array import to_numpy
from fuser.trace import tree
from fuser.trace.core import bind
from tests.backends import tpu_cases
from tests.backends.triton_worker import difference

MOST_ALIKE = 1  # samples of one primitive with the same dtypes
Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def registry(shard: int = 0, shards: int = 1, only: str = "") -> Iterator[Case]:
    """Every sample of every primitive that a TPU's dtypes can hold."""
    number = 0
    for name, primitive in sorted(REGISTRY.items()):
        elsewhere = name in tpu_cases.HOST or name in tpu_cases.OF_GPUS
        if (only and name != only) or primitive.samples is None or primitive.eval is None or elsewhere:
            continue
        seen: dict[Any, int] = {}
        for arrays, params in primitive.samples():
            avals = [ArrayType(np.shape(a), np.asarray(a).dtype) for a in arrays]
            kind = (tuple(a.dtype for a in avals), str(params.get("new_dtype", "")))
            number += 1
            if number % shards != shard or _refused(primitive, avals, params):
                continue
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] > MOST_ALIKE:
                continue
            dtypes = ", ".join(str(a.dtype) for a in avals)
            function = lambda *a, primitive=primitive, params=params: bind(primitive, *a, **params)
            yield f"{name} {number} ({dtypes}) {params}", function, arrays


def _refused(primitive: Any, avals: list[ArrayType], params: dict[str, Any]) -> bool:
    """Whether a TPU lacks one of the types that the primitive takes or gives."""
    found = primitive.rule("type")(*avals, **params)
    return any(refusal(a) for a in (*avals, *(found if primitive.multiple_results else (found,))))


def forms(only: str = "") -> Iterator[Case]:
    """Every form of kernel, in sizes that choose it."""
    for name, (function, avals) in tpu_cases.FORMS.items():
        if not only or only in name:
            yield name, function, tpu_cases.arguments(avals)


def workloads(only: str = "") -> Iterator[Case]:
    """The benchmark's workloads, tiny; those with 64-bit integers have no TPU program."""
    for name, workload in WORKLOADS.items():
        if (not only or only in name) and name not in tpu_cases.WIDE:
            yield name, tpu_cases.program(workload), workload.inputs("tiny")


def transforms(only: str = "") -> Iterator[Case]:
    """Gradients and batches, against the reference's."""
    for name, (function, avals) in tpu_cases.TRANSFORMS.items():
        if not only or only in name:
            yield name, function, tpu_cases.arguments(avals)


def check(case: Case) -> str:
    """What went wrong with a case, or nothing."""
    name, function, arrays = case
    try:
        with config.using(backend="reference"):
            want = tree.leaves(jit(function)(*arrays))
        got = tree.leaves(jit(function)(*arrays))
    except Exception:
        return traceback.format_exc(limit=-5)
    for a, b in zip(got, want, strict=True):
        if name in tpu_cases.LOOSE:
            reason = _far(to_numpy(a), to_numpy(b))
        else:
            slack = WORKLOADS[name].slack if name in WORKLOADS else 1.0
            reason = difference(to_numpy(a), to_numpy(b), slack)
        if reason:
            return reason
    return ""


def _far(got: np.ndarray, want: np.ndarray) -> str:
    """How many elements of a whole program's results are apart, where a comparison may turn on the last bit."""
    if got.shape != want.shape:
        return f"{got.shape} instead of {want.shape}"
    apart = ~np.isclose(got.astype(np.float64), want, rtol=2e-3, atol=2e-3 * float(np.max(np.abs(want), initial=0)))
    return "" if np.mean(apart) <= 0.01 else f"{np.mean(apart):.1%} of the elements are apart"


def main(arguments: list[str]) -> None:
    suites = {"registry": registry, "forms": forms, "workloads": workloads, "transforms": transforms}
    names, *rest = arguments
    cases = (suites[name](*(int(r) if r.isdigit() else r for r in rest)) for name in names.split(","))
    for case in itertools.chain.from_iterable(cases):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = check(case)
        print(
            json.dumps({"case": case[0], "error": error, "seconds": round(time.perf_counter() - start, 2)}), flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
