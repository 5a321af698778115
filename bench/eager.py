"""`python -m bench.eager`: what one call outside of jit costs on arrays of 64 elements, fuser beside JAX.

Sixty functions that users call one by one. Both systems are measured in one process, in turns; JAX's calls are waited for at
the end of a sample only. `÷ JAX` is fuser's median divided by JAX's: each is to be at most 1, their geometric mean at most
0.7. The JSON document: schema (1), machine, rounds, rows (case, system, median_s, min_s, ..., or failure), geometric_mean,
slower. Exit status 1: a result was wrong, or fuser failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import machine, report
from bench.calls import SAMPLE_SECONDS, Entry, _leaves, _rounds
from bench.timing import calls_per_sample

ELEMENTS = 64
EACH, MEAN = 1.0, 0.7  # of JAX's time: what each function, and the geometric mean of all, may cost

# By name, a function of the system's modules (m.numpy, m.nn, ...), a vector, a matrix, integers and a random key.
CASES: dict[str, Callable[..., Any]] = {
    **{
        n: (lambda m, v, a, i, k, n=n: getattr(m.numpy, n)(v))
        for n in (
            "exp",
            "sin",
            "tanh",
            "abs",
            "sqrt",
            "square",
            "sum",
            "prod",
            "mean",
            "std",
            "var",
            "max",
            "min",
            "argmax",
            "cumsum",
            "sort",
            "argsort",
            "median",
            "isnan",
            "sign",
            "floor",
            "ravel",
            "zeros_like",
            "diff",
            "flip",
        )
    },
    **{
        n: (lambda m, v, a, i, k, n=n: getattr(m.numpy, n)(v, v))
        for n in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "maximum",
            "power",
            "dot",
            "arctan2",
            "logaddexp",
            "equal",
            "outer",
        )
    },
    **{
        n: (lambda m, v, a, i, k, n=n: getattr(m.nn, n)(v))
        for n in ("relu", "gelu", "sigmoid", "silu", "softmax", "log_softmax")
    },
    "matmul": lambda m, v, a, i, k: m.numpy.matmul(a, a),
    "transpose": lambda m, v, a, i, k: m.numpy.transpose(a),
    "reshape": lambda m, v, a, i, k: m.numpy.reshape(v, (8, 8)),
    "broadcast_to": lambda m, v, a, i, k: m.numpy.broadcast_to(v, (2, 64)),
    "concatenate": lambda m, v, a, i, k: m.numpy.concatenate([v, v]),
    "stack": lambda m, v, a, i, k: m.numpy.stack([v, v]),
    "where": lambda m, v, a, i, k: m.numpy.where(v > 0, v, 0.0),
    "clip": lambda m, v, a, i, k: m.numpy.clip(v, -1.0, 1.0),
    "take": lambda m, v, a, i, k: m.numpy.take(v, i),
    "v[i]": lambda m, v, a, i, k: v[i],
    "v[2:9]": lambda m, v, a, i, k: v[2:9],
    "at[].set": lambda m, v, a, i, k: v.at[i].set(0.0),
    "at[].add": lambda m, v, a, i, k: v.at[3].add(1.0),
    "einsum": lambda m, v, a, i, k: m.numpy.einsum("ij,jk->ik", a, a),
    "norm": lambda m, v, a, i, k: m.numpy.linalg.norm(v),
    "logsumexp": lambda m, v, a, i, k: m.nn.logsumexp(v),
    "astype": lambda m, v, a, i, k: v.astype("int32"),
    "arange": lambda m, v, a, i, k: m.numpy.arange(64),
    "random.normal": lambda m, v, a, i, k: m.random.normal(k, (64,)),
    "random.uniform": lambda m, v, a, i, k: m.random.uniform(k, (64,)),
    "random.split": lambda m, v, a, i, k: m.random.split(k),
}


def prepare(system: str, function: Callable[..., Any]) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The call, and what waits for its result."""
    module = importlib.import_module(system)
    array = module.numpy.asarray
    line = np.linspace(0.1, 3.0, ELEMENTS, dtype=np.float32)
    vector, matrix = array(line), array(line.reshape(8, 8))
    places, key = array(np.arange(0, 64, 9, dtype=np.int32)), module.random.key(0)
    wait = module.block_until_ready if system == "jax" else lambda result: None
    return lambda: function(module, vector, matrix, places, key), wait


def measure(name: str, systems: list[str], rounds: int) -> list[dict[str, Any]]:
    """A row for each system."""
    rows: list[dict[str, Any]] = []
    entries: list[Entry] = []
    wanted: list[np.ndarray] | None = None
    for system in systems:
        row: dict[str, Any] = {"case": name, "system": system}
        rows.append(row)
        try:
            call, wait = prepare(system, CASES[name])
            start = time.perf_counter()
            result = call()
            wait(result)
            row["first_call_s"] = time.perf_counter() - start
            values = [_plain(system, leaf) for leaf in _leaves(result)]
            wanted = values if wanted is None else wanted
            row["correct"] = all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(values, wanted, strict=True))
            entries.append(Entry(system, call, wait, row, calls_per_sample(call, SAMPLE_SECONDS, wait=wait)))
        except Exception as error:
            row["failure"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    _rounds(entries, rounds)
    return rows


def _plain(system: str, leaf: Any) -> np.ndarray:
    """A result as an ndarray, random keys by their words."""
    module = importlib.import_module(system)
    keys = module.dtypes.issubdtype(leaf.dtype, module.dtypes.prng_key)
    return np.asarray(module.random.key_data(leaf) if keys else leaf)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """fuser's time divided by JAX's: the geometric mean, and the cases above 1, the worst first."""
    found = {(r["case"], r["system"]): r["median_s"] for r in rows if "median_s" in r}
    ratios = {case: t / found[case, "jax"] for (case, s), t in found.items() if s == "fuser" and (case, "jax") in found}
    slower = dict(sorted(((c, r) for c, r in ratios.items() if r > EACH), key=lambda pair: -pair[1]))
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if ratios else math.nan
    return {"ratios": ratios, "geometric_mean": mean, "slower": slower}


def table(rows: list[dict[str, Any]]) -> Table:
    """One line a function."""
    found = Table(title=f"one call on {ELEMENTS} elements", title_justify="left")
    for head in ("function", "fuser", "jax", "÷ JAX"):
        found.add_column(head, justify="left" if head == "function" else "right", no_wrap=True)
    ratios = summary(rows)["ratios"]
    for case in dict.fromkeys(row["case"] for row in rows):
        cells = {row["system"]: row for row in rows if row["case"] == case}
        shown = [
            report.seconds(r["median_s"]) if "median_s" in r else r.get("failure", "")[:40] for r in cells.values()
        ]
        found.add_row(case, *shown, f"{ratios[case]:.2f}" if case in ratios else "")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.eager", description="What one call outside of jit costs.")
    parser.add_argument("names", nargs="*", help="functions (default: all)")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each system in each case")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go")
    options = parser.parse_args(arguments)
    console = report.open_console()
    rows: list[dict[str, Any]] = []
    with Console(stderr=True).status("starting") as status:
        for name in options.names or CASES:
            status.update(name)
            rows += measure(name, ["fuser", "jax"], options.rounds)
    found = summary(rows)
    document = {"schema": 1, "machine": machine.describe(False), "rounds": options.rounds, "rows": rows, **found}
    console.print(table(rows))
    verdict = "PASS" if found["geometric_mean"] <= MEAN else "MISS"
    console.print(
        f"geometric mean {found['geometric_mean']:.2f} of JAX's time (≤ {MEAN} {verdict}); slower: {len(found['slower'])}"
    )
    if options.json:
        options.json.write_text(json.dumps(document, indent=1))
    return int(any(not row.get("correct", row["system"] != "fuser") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
