"""`python -m bench.gpu`: what a GPU has to confirm, in order of importance, a JSON line for each figure as soon as it is there.

    python -m bench.gpu --warm; python -m bench.gpu --rows gpu.jsonl    by many processes what is compiled, then all parts, each by a process
    python -m bench.gpu irregular programs                              some parts
    python -m bench.gpu --rows gpu.jsonl --dry-run     the same by the driver's stand-in at small sizes, which runs the C backend's twin of each
                                                       kernel: that all parts get through is shown, neither times nor results of a GPU

A row: device ("stand-in" in a dry run), part, name, number; seconds of a call among many; of calls host_us, median_us and at_most_us; error and
tolerance (against float64); bytes, share_of_copy, flops, tflops, step_s of a loop's step; torch_seconds (cuBLAS, attention, what torch or CuPy calls,
torch.compile of pairs), jax_seconds and inductor_seconds of programs. `failure` says what went wrong instead. A part begins nothing after its
share of the budget. Exit status 1: a result is wrong or a row has a failure; 2: no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import operator
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench import device_calls, gpu_irregular, gpu_updates, static, systems
from bench.kernel_pairs import PAIRS, torch_forms
from bench.workload import Workload
from bench.workloads import WORKLOADS
from fuser import config, lax
from fuser.backends.triton import memory
from fuser.ir.types import ArrayType, bfloat16
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.core import native

SAMPLES = 5
LONGEST = 30.0  # seconds that a case may take
DEAD = 3  # exit status of a process whose GPU answers no more
SAMPLE_SECONDS = 0.01
LONG_SAMPLE = 2.0  # seconds after which one sample is enough
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}  # of the largest element of a result
SMALL = 1 << 14  # elements of an argument in a dry run
CHECKED = 1 << 26  # scores that an attention may have for NumPy to check it
PROGRAMS = (  # that come first
    *(
        "mlp_train_step",
        "gelu_mlp",
        "black_scholes",
        "cross_entropy_gradient",
        "attention",
        "stencil",
        "nbody",
        "jacobi_2d",
    ),
    *(
        "scan_of_eight",
        "k_means",
        "image_layer",
        "histogram",
        "monte_carlo_loop",
        "softmax",
        "layer_norm",
        "column_sum",
    ),
)
Row = dict[str, Any]
Cases = Iterator[tuple[str, Callable[[], Row]]]


class Run:
    """How parts measure: the sizes of a dry run or of a GPU, and the rate of a copy there. `first` ends a case after its first call."""

    def __init__(self, dry: bool, first: bool = False) -> None:
        self.dry, self.first = dry, first
        self.device = "stand-in" if dry else str(native.cuda_name())

    @functools.cached_property
    def copy(self) -> float:
        """Bytes a second that a copy reads and writes."""
        size = SMALL if self.dry else 1 << 28
        x = _put(np.ones(size, np.float32))
        return 2 * x.nbytes / self.seconds(fuser.jit(fnp.negative, backend="triton"), (x,))

    def seconds(self, run: Callable[..., Any], arguments: Any) -> float:
        """Seconds of a call among many that are queued, the least of some samples."""
        _wait(run(*arguments))
        calls, found = 1, []
        while len(found) < (1 if self.dry else SAMPLES) and not self.first:
            start = time.perf_counter()
            for _ in range(calls):
                result = run(*arguments)
            _wait(result)
            taken = time.perf_counter() - start
            if taken < SAMPLE_SECONDS and not self.dry and calls < 1000:
                calls *= 4
            else:
                found.append(taken / calls)
                if taken > LONG_SAMPLE:
                    break
        return min(found, default=1.0)


def calls(run: Run) -> Cases:
    """The host's time of a call."""
    for name, function, arguments in device_calls.cases():
        yield name, functools.partial(_called, run, name, function, arguments)


def _called(run: Run, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Row:
    rounds, several = (2, 20) if run.dry else (9, 1000)
    compiled = fuser.jit(function, backend="triton")
    for _ in range(3 if run.dry or run.first else 50):
        _wait(compiled(*arguments))
    if run.first:
        return {}
    least, median = device_calls.cost(compiled, arguments, rounds, several)
    seconds = run.seconds(compiled, arguments)
    return {"host_us": least, "median_us": median, "at_most_us": device_calls.TARGETS.get(name), "seconds": seconds}


def kernels(run: Run) -> Cases:
    """Generated kernels, and their share of the rate of a copy. Of each form one comes first, which is compared with float64; the others are
    timed, as the host takes seconds for each."""
    forms: dict[str, list[Any]] = {}
    for case in static.cases():
        forms.setdefault(case[0].rstrip("0123456789 "), []).append(case)
    rounds = itertools.zip_longest(*(several[::-1] for several in forms.values()))
    for number, several in enumerate(rounds):
        for name, function, types in (case for case in several if case is not None):
            sized = _resized(types) if run.dry else types
            yield name, functools.partial(_measured, run, name, function, sized, judged=run.dry or number == 0)


def products(run: Run) -> Cases:
    """Products of matrices, those with an epilogue, and attention, beside what torch calls."""
    relu = lambda a, b: fnp.maximum(a @ b, 0)
    dequantised = lambda a, b: a @ (b.astype(a.dtype) * 0.5)
    for extents in (
        ((64, 64, 64), (128, 96, 80))
        if run.dry
        else ((4096, 4096, 4096), (8192, 1024, 8192), (16, 4096, 4096), (2560, 8192, 2560))
    ):
        m, k, n = extents
        types = ArrayType((m, k), bfloat16), ArrayType((k, n), bfloat16)
        weights = types[0], ArrayType((k, n), np.dtype("int8"))
        measured = functools.partial(_measured, run, flops=2 * m * k * n)
        words = "×".join(map(str, extents))
        for kind, function, of, peer in (
            ("product", operator.matmul, types, "matmul"),
            ("product and relu", relu, types, "matmul and relu"),
            ("dequantised product", dequantised, weights, ""),
        ):
            name = f"{kind} {words}"
            yield name, functools.partial(measured, name, function, of, peer=peer)
    shape = (1, 64, 2, 32) if run.dry else (1, 16384, 16, 128)
    batch, length, heads, features = shape
    flops = 2 * batch * heads * length * length * features  # half of the scores of two products
    name, types = f"causal attention of {length}", (ArrayType(shape, bfloat16),) * 3
    yield name, functools.partial(_measured, run, name, static.causal_attention, types, flops, "attention")


def irregular(run: Run) -> Cases:
    """Sorting, scattering, scans and loops beside torch's and CuPy's."""
    for case in gpu_irregular.cases(run.dry):
        yield case.name, functools.partial(_irregular, run, case)


def _irregular(run: Run, case: gpu_irregular.Case) -> Row:
    compiled = fuser.jit(case.function, backend="triton")
    placed = tuple(map(_put, case.arrays))
    results = [to_numpy(x) for x in _leaves(compiled(*placed))]
    row = {"bytes": sum(x.nbytes for x in (*case.arrays, *results)), "at_most_s": case.at_most}
    row |= _judged(results, case.function, list(case.arrays), case.exact)
    row["seconds"] = run.seconds(compiled, placed)
    if case.steps:
        row["step_s"] = row["seconds"] / case.steps
    if case.peer is not None and not run.dry:
        import torch

        tensors = [torch.from_numpy(a).to("cuda") for a in case.arrays]
        row["torch_seconds"] = run.seconds(case.peer(torch), tensors)
    return row


def updates(run: Run) -> Cases:
    """Programs that change what the caller gives away, beside JAX, and torch.compile where torch has such a form."""
    for case, small in zip(gpu_updates.cases(run.dry), gpu_updates.cases(True)):
        yield case.name, functools.partial(_updated, run, case, small)


def _updated(run: Run, case: gpu_updates.Update, small: gpu_updates.Update) -> Row:
    program = case.function(fnp, lax)
    compiled = fuser.jit(program, donate_argnums=0, backend="triton")
    put = lambda x: [_put(y) for y in x] if isinstance(x, list) else _put(x) if np.ndim(x) else x
    found = [to_numpy(x) for x in _leaves(compiled(put(small.given), *map(put, small.others)))]
    with config.using(backend="c"):
        expected = [to_numpy(x) for x in _leaves(fuser.jit(program)(small.given, *small.others))]
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(found, expected, strict=True)]
    row: Row = {"error": float(max(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in pairs))}
    row["tolerance"] = max(TOLERANCE[x.dtype.name] for x in found)
    row["bytes"] = sum(x.nbytes for x in case.given)
    row["seconds"] = run.seconds(_fed(compiled, put(case.given)), tuple(map(put, case.others)))
    return row if run.dry or run.first else row | _update_peers(run, case)


def _fed(step: Callable[..., Any], given: Any) -> Callable[..., Any]:
    """A step whose first result it is given in the next call; what it gives besides, or that result."""
    state = [given]

    def call(*others: Any) -> Any:
        result = step(state[0], *others)
        state[0] = result[0] if isinstance(result, tuple) else result
        return result

    return call


def _update_peers(run: Run, case: gpu_updates.Update) -> Row:
    """Seconds of JAX and of torch.compile, or why there are none."""
    row: Row = {}
    if (reason := systems.GPU["jax"].unavailable()) is not None:
        row["jax_left_out"] = reason
    else:
        import jax
        import jax.numpy as jnp

        step = jax.jit(case.function(jnp, jax.lax), donate_argnums=0)
        given, others = jax.device_put((case.given, case.others))
        row["jax_seconds"] = run.seconds(_fed(step, given), others)
    if case.torch_form is not None:
        import torch

        tensor = lambda x: torch.from_numpy(np.atleast_1d(x).astype(np.int64 if np.ndim(x) == 0 else np.float32)).to(
            "cuda"
        )
        placed = lambda x: [placed(y) for y in x] if isinstance(x, list) else tensor(x)
        half = lambda x: (
            [half(y) for y in x] if isinstance(x, list) else x.to(torch.bfloat16) if x.is_floating_point() else x
        )
        step = torch.compile(case.torch_form(torch))
        row["inductor_seconds"] = run.seconds(step, (half(placed(case.given)), *map(half, map(placed, case.others))))
    return row


def pairs(run: Run) -> Cases:
    """The functions of `bench.kernel_pairs` beside torch.compile."""
    for name, (function, word, types) in PAIRS.items():
        yield name, functools.partial(_paired, run, function, word, types)


def _paired(run: Run, function: Callable[..., Any], word: str, types: Any) -> Row:
    small = lambda t: ArrayType(tuple(min(n, 64) for n in t.shape), t.dtype)
    arrays = fuser.tree_util.tree_map(lambda t: _drawn(0, small(t) if run.dry else t, 1000), types)
    compiled = fuser.jit(function, backend="triton")
    row = {"seconds": run.seconds(compiled, fuser.tree_util.tree_map(_put, arrays))}
    if run.dry:
        return row
    import torch

    tensors = fuser.tree_util.tree_map(_tensor, arrays)
    theirs = torch.compile(torch_forms(torch)[word], dynamic=False)
    with torch.no_grad():
        row["torch_seconds"] = run.seconds(theirs, tensors)
    return row


def _tensor(array: np.ndarray) -> Any:
    import torch

    if array.dtype == bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to("cuda", torch.bfloat16)
    return torch.from_numpy(array).to("cuda")


def programs(run: Run) -> Cases:
    """Whole programs of the benchmark: right at a medium size, timed at the full one beside JAX and torch.compile."""
    first = [WORKLOADS[name] for name in PROGRAMS]
    for workload in [*first, *(w for w in WORKLOADS.values() if w not in first)]:
        yield workload.name, functools.partial(_program, run, workload)


def _program(run: Run, workload: Workload) -> Row:
    compiled = fuser.jit(lambda *arrays: workload.run(fuser, arrays), backend="triton")
    checked = workload.inputs("tiny" if run.dry else "medium")
    found = tuple(map(to_numpy, _leaves(compiled(*map(_put, checked)))))
    error, tolerance = workload.error(found, workload.reference(checked)), workload.tolerance("float32")
    inputs = checked if run.dry else workload.inputs("full")
    row: Row = {"error": float(error), "tolerance": tolerance}
    row["seconds"] = run.seconds(compiled, tuple(map(_put, inputs)))
    for name in () if run.dry else ("jax", "inductor"):
        system = systems.GPU[name]
        reason = system.unavailable() or system.refusal(workload, "float32")
        if reason is not None:
            row[f"{name}_left_out"] = reason
            continue
        try:
            row[f"{name}_seconds"] = run.seconds(system.prepare(workload, inputs, "float32").launch, ())
        except Exception as error:  # of a peer's: said, and no failure of ours
            row[f"{name}_left_out"] = f"{type(error).__name__}: {error}"[:300]
    return row


PARTS: dict[str, tuple[Callable[[Run], Cases], float]] = {  # and its share of the budget
    "calls": (calls, 0.05), "updates": (updates, 0.08), "kernels": (kernels, 0.16), "products": (products, 0.07),
    "irregular": (irregular, 0.12), "programs": (programs, 0.29), "pairs": (pairs, 0.23),
}  # fmt: skip


def _measured(
    run: Run,
    name: str,
    function: Callable[..., Any],
    types: tuple[ArrayType, ...],
    flops: int = 0,
    peer: str = "",
    judged: bool = True,
) -> Row:
    arrays = [_drawn(n, t) for n, t in enumerate(types)]
    placed = tuple(map(_put, arrays))
    compiled = fuser.jit(function, backend="triton")
    row: Row = {}
    results = [to_numpy(x) for x in _leaves(compiled(*placed))]
    small = "attention" not in name or math.prod(types[0].shape[:3]) * types[0].shape[1] <= CHECKED
    if judged and small:
        row |= _judged(results, function, arrays)
    row["seconds"] = run.seconds(compiled, placed)
    if flops:
        row |= {"flops": flops, "tflops": flops / row["seconds"] / 1e12} | _peer(run, peer, arrays, flops)
    else:
        row["bytes"] = sum(x.nbytes for x in (*arrays, *results))
        row["share_of_copy"] = row["bytes"] / row["seconds"] / run.copy
    return row


@functools.lru_cache(maxsize=24)
def _drawn(number: int, aval: ArrayType, below: int = 100) -> np.ndarray:
    """A random argument of that number and type; whole numbers from 0 or, where they are bytes, both sides of it."""
    random = np.random.default_rng(number)
    if aval.dtype.kind in "iu":
        return random.integers(-below if aval.dtype.itemsize == 1 else 0, below, aval.shape).astype(aval.dtype)
    return random.standard_normal(aval.shape, np.float32).astype(aval.dtype)


def _judged(
    results: list[np.ndarray], function: Callable[..., Any], arrays: list[np.ndarray], exact: bool = False
) -> Row:
    """The largest error as a part of a result's largest element, against the C backend in float64; `exact`: of the same dtypes."""
    wide = arrays if exact else [a.astype(np.float64) if a.dtype.kind not in "iu" else a for a in arrays]
    with config.using(backend="c", enable_x64=not exact):
        expected = [to_numpy(x).astype(np.float64) for x in _leaves(fuser.jit(function)(*wide))]
    found = [r.astype(np.float64) for r in results]
    errors = [np.abs(r - e).max() / max(np.abs(e).max(), 1e-30) for r, e in zip(found, expected, strict=True)]
    return {"error": float(max(errors)), "tolerance": 0.0 if exact else max(TOLERANCE[r.dtype.name] for r in results)}


def _peer(run: Run, name: str, arrays: list[np.ndarray], flops: int) -> Row:
    """The same by torch, where it has a GPU."""
    import torch

    if run.dry or not name or not torch.cuda.is_available():
        return {}
    tensors = [torch.from_numpy(a.astype(np.float32)).to("cuda", torch.bfloat16) for a in arrays]
    if name.startswith("matmul"):
        seconds = run.seconds((lambda a, b: torch.relu(a @ b)) if "relu" in name else torch.matmul, tensors)
    else:
        heads_first = [t.transpose(1, 2).contiguous() for t in tensors]
        attention = functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
        seconds = run.seconds(attention, heads_first)
    return {"torch_seconds": seconds, "torch_tflops": flops / seconds / 1e12}


def _resized(types: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
    """The same arguments with fewer rows, of attention with fewer of everything but features."""
    if len(types[0].shape) == 4:
        return tuple(ArrayType((1, 64, 2, t.shape[3]), t.dtype) for t in types)
    rank = max(len(t.shape) for t in types)
    small = lambda t: (min(t.shape[0], max(2, SMALL // math.prod(t.shape[1:]))), *t.shape[1:])
    return tuple(ArrayType(small(t), t.dtype) if len(t.shape) == rank else t for t in types)


def _put(array: np.ndarray) -> Array:
    return Array(native.device_upload(np.ascontiguousarray(array)))


def _leaves(result: Any) -> list[Any]:
    return fuser.tree_util.tree_leaves(result)


def _wait(result: Any) -> None:
    for leaf in _leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.synchronize()


def rows(run: Run, budget: float, part: str, first: int = 0, of: int = 1) -> Iterator[Row]:
    """The rows of one part from its case of number `first` on, every `of`th of them; one with a failure goes on if the device answers."""
    function, share = PARTS[part]
    deadline = time.perf_counter() + share * budget
    number = -1
    try:
        for number, (name, case) in enumerate(function(run)):
            if number < first or (number - first) % of:
                continue
            row = {"device": run.device, "part": part, "name": name, "number": number}
            if time.perf_counter() > deadline:
                yield row | {"left_out": "the part's time is over"}
                continue
            try:
                yield row | case()
            except Exception as error:
                yield row | {"failure": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-1500:]}
                if not _answers():
                    raise DeadDevice from None
    except DeadDevice:
        raise
    except Exception as error:  # where its cases are made
        failure = f"{type(error).__name__}: {error}"
        yield {"device": run.device, "part": part, "name": "rest", "number": number, "failure": failure}


class DeadDevice(Exception):
    """After an illegal access a process cannot use its GPU any more."""


def _answers() -> bool:
    try:
        return float(to_numpy(fuser.jit(fnp.negative, backend="triton")(_put(np.ones(1, np.float32))))[0]) == -1
    except Exception:
        return False


def _in_process(options: argparse.Namespace, part: str) -> int:
    """The rows of a part, written by this process."""
    run, wrong = Run(options.dry_run, options.warm), False
    try:
        for row in rows(run, options.budget, part, options.first, options.every):
            wrong |= "failure" in row or not row.get("error", 0) <= row.get("tolerance", 0)
            _write(row, None if options.warm else options.rows)
    except DeadDevice:
        return DEAD
    return int(wrong)


def _first_calls(options: argparse.Namespace, parts: list[str]) -> None:
    """The first calls of all cases by many processes at once, which leave what they compile on disk."""
    begun = time.perf_counter()
    share = sum(PARTS[part][1] for part in parts)
    started = []
    for part in parts:
        count = max(1, round(options.compilers * PARTS[part][1] / share))
        for n in range(count):
            command = [sys.executable, "-m", "bench.gpu", part, "--alone", "--warm", "--budget", "1e9"]
            words = [*command, "--first", str(n), "--every", str(count)]
            started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(1.0, options.warming - (time.perf_counter() - begun)))
        process.kill()
    print(json.dumps({"first calls, in seconds": time.perf_counter() - begun}), flush=True)


def _by_processes(options: argparse.Namespace, parts: list[str]) -> int:
    """Each part by a process, which begins again behind a case that ended it, that took longer than LONGEST, or after which its GPU answers
    no more."""
    wrong = False
    for part in parts:
        command = [sys.executable, "-m", "bench.gpu", part, "--alone", "--budget", str(options.budget)]
        next_case, status = 0, DEAD
        while status not in (0, 1):
            words = [*command, "--first", str(next_case), *(["--rows", str(options.rows)] if options.rows else [])]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            for line in _lines(process, LONGEST):
                print(line, end="", flush=True)
                with contextlib.suppress(ValueError):
                    next_case = json.loads(line).get("number", next_case) + 1
            status = process.wait()
            wrong |= status != 0
            if status not in (0, 1, DEAD):
                failure = f"the process ended with {status}"
                _write({"part": part, "number": next_case, "failure": failure}, options.rows)
                next_case += 1
    return int(wrong)


def _lines(process: subprocess.Popen[str], longest: float) -> Iterator[str]:
    """What a process prints, line by line; it is killed when it prints nothing for so many seconds."""
    while True:
        timer = threading.Timer(longest, process.kill)
        timer.start()
        line = process.stdout.readline() if process.stdout else ""
        timer.cancel()
        if not line:
            return
        yield line


def _write(row: Row, path: Path | None) -> None:
    """A row on the screen and in the file."""
    line = json.dumps(row)
    print(line, flush=True)
    if path is not None:
        with path.open("a") as file:
            file.write(line + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Write the rows; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rows", type=Path, help="a file to which each row is added as a line of JSON")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds")
    parser.add_argument("--compilers", type=int, default=16, help="processes that make first calls (compile) at once")
    parser.add_argument("--warming", type=float, default=90.0, help="seconds that first calls may take")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument(
        "--warm", action="store_true", help="make first calls alone, which leave what they compile on disk"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    for name, number in (("--first", 0), ("--every", 1)):
        parser.add_argument(name, type=int, default=number, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    parts = options.parts or list(PARTS)
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            from tests import cuda_stand_in

            stack.enter_context(cuda_stand_in.opened())
        if not memory.on_device():
            print(
                "bench.gpu: there is no GPU that torch and the native core see; --dry-run runs without one",
                file=sys.stderr,
            )
            return 2
        if options.dry_run or options.alone:
            return max(_in_process(options, part) for part in parts)
        if options.warm:
            _first_calls(options, parts)
            return 0
        return _by_processes(options, parts)


if __name__ == "__main__":
    sys.exit(main())
