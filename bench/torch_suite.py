"""`python -m bench --suite torch [models]`: torch.compile(backend="fuser") beside eager torch and inductor, inference and training steps.

A case (a model in one mode) runs in a process of its own with empty caches, where the systems take turns. Time to compile is
that of the first call (and its backward), after a small function was compiled by the same system; compilers' processes
count. With one thread processor time is measured, with more (`--threads`) the clock on the wall. `--caches` keeps what was
compiled: a second run times steps without compilers beside them. On a GPU (`--device cuda`) the clock on the wall is read where
the device is done; products are of float32, nothing is dropped, and batches are larger. Exit status 1: a case failed, a result
differs from eager torch, or on the CPU a limit is missed: a step 0.9 of inductor's in the geometric mean and 1.2 each,
compilation 0.5 in the mean.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.timing import CLOCKS, Clock, samples

ROOT = pathlib.Path(__file__).resolve().parent.parent
SYSTEMS = ("eager", "inductor", "fuser")
MODES = ("inference", "training")
SAMPLE_SECONDS = 0.1
LIMITS = {"steps": 0.9, "step": 1.2, "compile": 0.5}
TOLERANCE = 1e-3  # of the largest magnitude
COPIES_ON_GPU = 16  # of the batch that the CPU takes


def run_case(name: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    """One case in this process: seconds to compile, medians of a step, and the difference from eager torch."""
    import torch

    import fuser.torch  # noqa: F401
    from bench import torch_models

    clock = _clock(options)
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
        model, arguments = torch_models.model(name, options.short)
    else:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        model, arguments = torch_models.model_on(
            options.device, name, options.short, 1 if options.short else COPIES_ON_GPU
        )
    model.train(mode == "training")
    state = {key: value.clone() for key, value in model.state_dict().items()}
    row: dict[str, Any] = {"model": name, "mode": mode}
    steps, results = {}, {}
    for system in SYSTEMS:
        function = model if system == "eager" else torch.compile(model, backend=system)
        if system != "eager":
            _warm(system, options.device)
        model.load_state_dict(state)
        model.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        start = clock()
        found = torch_models.step(function, arguments, mode == "training")
        row[f"{system}_first_s"] = clock() - start
        gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        results[system] = {"result": found.clone()} | gradients
        steps[system] = lambda function=function: torch_models.step(function, arguments, mode == "training")
    row["error"] = _error(results["fuser"], results["eager"])
    row["inductor_error"] = _error(results["inductor"], results["eager"])
    return row | {f"{system}_s": seconds for system, seconds in _timed(steps, options.rounds, clock).items()}


def _warm(system: str, device: str) -> None:
    """What a system does once in a process is done: its imports above all."""
    import torch

    x = torch.ones(4, requires_grad=True, device=device)
    torch.compile(lambda x: (x * 2 + 1).sum(), backend=system)(x).backward()


def _error(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    """The greatest difference of a result or gradient, over the greatest magnitude of all."""
    scale = max(float(value.abs().max()) for value in wanted.values())
    return max(float((found[key] - value).abs().max()) for key, value in wanted.items()) / scale


def _timed(steps: dict[str, Any], rounds: int, clock: Clock) -> dict[str, float]:
    """Seconds of a step of each system, which take turns: medians."""
    found = samples(steps, rounds, SAMPLE_SECONDS, clock)
    return {system: statistics.median(values) for system, values in found.items()}


def _clock(options: argparse.Namespace) -> Clock:
    if options.device == "cpu":
        return CLOCKS["processor" if options.threads == 1 else "wall"]
    import torch

    def synchronised() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return synchronised


def measure(name: str, mode: str, options: argparse.Namespace, seconds: float | None = None) -> dict[str, Any]:
    """A case's row, or its failure, which it also is to take longer than `seconds`."""
    threads = str(options.threads)
    row: dict[str, Any] = {"model": name, "mode": mode, "device": options.device}
    row |= {"threads": options.threads} if options.device == "cpu" else {}
    with tempfile.TemporaryDirectory() as empty:
        folder = os.path.abspath(options.caches or empty)
        own = {
            "FUSER_CACHE_DIR": os.path.join(folder, "fuser"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
            "HF_HUB_OFFLINE": "1",
        }
        if options.device == "cpu":
            own |= {"FUSER_THREADS": threads, "OMP_NUM_THREADS": threads}
            own["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in processes that are waited for, so that their time counts
        command = [sys.executable, "-m", "bench.torch_suite", "--serve", mode, "--rounds", str(options.rounds), name]
        command += ["--threads", threads, "--device", options.device, *(["--short"] if options.short else [])]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, env=os.environ | own, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return row | {"failure": f"not done after {seconds:.0f} s"}
    if done.returncode:
        return row | {"failure": done.stderr[-1500:]}
    row |= json.loads(done.stdout.splitlines()[-1])
    return row | {
        "step": row["fuser_s"] / row["inductor_s"],
        "eager_step": row["fuser_s"] / row["eager_s"],
        "compile": row["fuser_first_s"] / row["inductor_first_s"],
    }


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.serve:
        print(json.dumps(run_case(options.names[0], options.serve, options)))
        return 0
    from bench import torch_models

    chosen = [n for n in torch_models.NAMES if not options.names or any(part in n for part in options.names)]
    if not chosen:
        print(f"error: no model of {options.names}; there are: {', '.join(torch_models.NAMES)}", file=sys.stderr)
        return 2
    if refusal := _refusal(options):
        print(f"error: {refusal}", file=sys.stderr)
        return 2
    rows = []
    deadline = time.monotonic() + options.budget if options.budget else None
    for name in chosen:
        for mode in options.mode or MODES:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left < 1:
                print(f"{name} {mode} | left out: {options.budget:.0f} s are over", file=sys.stderr, flush=True)
                continue
            rows.append(measure(name, mode, options, left))
            print(_words(rows[-1]), file=sys.stderr, flush=True)
            if options.rows:
                with open(options.rows, "a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    facts = {"limits": LIMITS, "short": options.short, "rows": rows}
    report.save("torch", options.json, facts, gpu=options.device == "cuda")
    return _print(rows, options.device)


def _refusal(options: argparse.Namespace) -> str | None:
    """Why nothing can be measured, or None."""
    if options.device != "cuda":
        return None
    import torch

    if options.threads != 1:
        return "--threads is for --device cpu"
    return None if torch.cuda.is_available() else "torch sees no GPU, which --device cuda is for"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench --suite torch", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of models (default: all)")
    parser.add_argument("--mode", action="append", choices=MODES, help="may be given twice (default: both)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="start no case after so long, and end the last (default: all)"
    )
    parser.add_argument("--rows", metavar="PATH", help="append a line of JSON for each case there, at once")
    parser.add_argument("--short", action="store_true", help="few layers of each kind")
    parser.add_argument("--threads", type=int, default=1, help="of each system (default: 1)")
    parser.add_argument(
        "--caches", metavar="FOLDER", help="keep what compilers make there (default: each case starts with none)"
    )
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    parser.add_argument("--suite", choices=["torch"], help=argparse.SUPPRESS)
    parser.add_argument("--serve", choices=MODES, help=argparse.SUPPRESS)
    return parser


def _words(row: dict[str, Any]) -> str:
    title = f"{row['model']} {row['mode']}"
    if "failure" in row:
        return f"{title} | {row['failure']}"
    times = ", ".join(f"{system} {row[f'{system}_s'] * 1e3:.3f} ms" for system in SYSTEMS)
    firsts = ", ".join(f"{system} {row[f'{system}_first_s']:.2f} s" for system in SYSTEMS[1:])
    return f"{title} | {times}, ratio {row['step']:.2f} | first {firsts}, ratio {row['compile']:.2f} | error {row['error']:.1e}"


def _print(rows: list[dict[str, Any]], device: str) -> int:
    """A row a case and the geometric means; gives the exit status."""
    table = Table(title="time of fuser ÷ time of inductor, and of eager torch")
    columns = ("step", "compile", "eager_step")
    for head in ("case", "step", "compile", "step ÷ eager", "error"):
        table.add_column(head, justify="left" if head == "case" else "right")
    good = [row for row in rows if "step" in row and row["error"] <= TOLERANCE]
    for row in rows:
        cells = (
            [*(f"{row[c]:.2f}" for c in columns), f"{row['error']:.0e}"] if "step" in row else ["failed", "", "", ""]
        )
        table.add_row(f"{row['model']} {row['mode']}", *cells)
    means = {c: statistics.geometric_mean([row[c] for row in good]) if good else float("inf") for c in columns}
    table.add_row("geometric mean", *(f"{means[c]:.2f}" for c in columns), "")
    Console().print(table)
    missed = means["step"] > LIMITS["steps"] or means["compile"] > LIMITS["compile"]
    missed |= any(row["step"] > LIMITS["step"] for row in good)
    return int(len(good) < len(rows) or (missed and device == "cpu"))


if __name__ == "__main__":
    raise SystemExit(main())
