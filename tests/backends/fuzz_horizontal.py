"""`python -m tests.backends.fuzz_horizontal --programs N --seed S`: many unrelated kernels in one program of the C backend.

Each program is 10 to 30 pieces drawn from a pool, of all dtypes; its kernels share bundles, functions that their loops became,
and translation units. The expected results are those of each piece by itself, by NumPy. A tenth of the programs is compiled
as usual, the others without optimisation (FUSER_CC names a compiler that is told so). One child process a batch keeps memory
bounded; the cache is thrown away.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from fuser.backends import get
from fuser.backends.c.compilation import outlining, translation_units
from fuser.compile import load, lower
from fuser.config import config
from fuser.ir.graph import Graph
from fuser.ir.types import KEY, is_complex
from fuser.runtime import toolchain
from tests.backends.horizontal_cases import Piece, piece

BATCH, POOL = 100, 300  # programs of a process, and the pieces that they share
CACHE_BYTES = 300 << 20
FULL = 10  # one program in so many is optimised


def pool(seed: int, count: int = POOL) -> list[Piece]:
    """Pieces, the same for the same seed."""
    found: list[Piece] = []
    number = 0
    while len(found) < count and number < 20 * count:
        made = piece(seed * 1_000_003 + number)
        found += [] if made is None else [made]
        number += 1
    return found


def joined(pieces: Sequence[Piece]) -> Graph:
    """One graph of all pieces, none of which has to do with another."""
    graphs = [p.graph for p in pieces]
    parts = [
        tuple(x for graph in graphs for x in getattr(graph, name))
        for name in ("invars", "constvars", "consts", "eqns", "outvars")
    ]
    return Graph(*parts, "many")


@contextlib.contextmanager
def limits(choices: random.Random) -> Iterator[None]:
    """From how many loops on they are shared, and how long a translation unit is: as usual, or so that all of it happens."""
    few = choices.random() < 0.5
    workers = choices.choice((1, 1, 2, 3))
    changes = [
        mock.patch.object(outlining, "MANY", 2 if few else outlining.MANY),
        mock.patch.object(outlining, "LIKE", 2 if few else outlining.LIKE),
        mock.patch.object(outlining, "LONG", 3 if few else outlining.LONG),
        mock.patch.object(translation_units, "LONG", 3000 if workers > 2 else translation_units.LONG),
        mock.patch.object(translation_units, "cpu_count", lambda: workers),
        mock.patch.object(translation_units, "_symbols", {}),
    ]
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        yield


def run(pieces: Sequence[Piece], choices: random.Random) -> list[np.ndarray]:
    """The results of the program by the C backend."""
    backend = get("c")
    graph = joined(pieces)
    with limits(choices):
        compiled = load(lower(graph, backend), backend)
        junk = np.full(1 << 14, 0x7E7E7E7E, np.uint32)  # what memory holds that a kernel forgets to write
        del junk
        results = compiled.executable(*(a for p in pieces for a in p.arrays))
        return [np.asarray(r).reshape(v.aval.shape) for r, v in zip(results, graph.outvars)]  # some are views of others


def wrong(part: Piece, found: Sequence[np.ndarray]) -> str | None:
    """What differs from the expected results; None if nothing does."""
    for number, (x, y) in enumerate(zip(found, part.expected, strict=True)):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return f"result {number} is {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}"
        bad = _differs(x, y, part)
        if bad.any():
            place = tuple(np.argwhere(bad)[0])
            return f"result {number}: {bad.sum()} of {bad.size} differ, at {place} {x[place]}, expected {y[place]}"
    return None


def _differs(x: np.ndarray, y: np.ndarray, part: Piece) -> Any:
    if x.dtype == KEY or x.dtype.kind in "biu":
        return np.asarray(x != y)
    if is_complex(x.dtype):
        return _differs(x.real, y.real, part) | _differs(x.imag, y.imag, part)
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(b)
        scale = 1 + np.abs(np.where(finite, b, 0)).max(initial=0)
        cancelled = 4 * part.weight if part.loose else 0  # what sums may round off that are zero but for rounding
        near = np.abs(a - b) <= ((1000 if part.loose else 4) * scale + cancelled) * part.eps
        beyond = (
            part.loose & (np.abs(a) > 1e4) & (np.abs(b) > 1e4)
        )  # what overflows where sums are taken in another order
    return ~(same | near | beyond)


def check(pieces: Sequence[Piece], seed: Any) -> list[tuple[Piece, str]]:
    """The pieces of a program whose results are wrong, and how. A program that does not compile is wrong as a whole."""
    try:
        results = iter(run(pieces, random.Random(seed)))
    except Exception as error:
        return [(pieces[0], f"{type(error).__name__}: {str(error)[:2000]}")]
    found = []
    for part in pieces:
        if reason := wrong(part, [next(results) for _ in part.expected]):
            found.append((part, reason))
    return found


def reduced(pieces: Sequence[Piece], seed: Any) -> list[Piece]:
    """Fewer pieces with which the program is still wrong."""
    left, size = list(pieces), max(1, len(pieces) // 2)
    while size:
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if fewer and check(fewer, seed):
                left = fewer
                break
        else:
            size //= 2
    return left


def program(seed: int, number: int, made: Sequence[Piece]) -> list[Piece]:
    """The pieces of one program."""
    choices = random.Random(f"{seed}/{number}")
    return choices.sample(list(made), choices.randint(10, 30))


def batch(seed: int, count: int, quick: str) -> int:
    """Run the programs of one seed; gives how many were wrong. `quick`: the compiler for programs that are not optimised."""
    failures = kernels = 0
    start = time.time()
    with config.using(enable_x64=True):
        made = pool(seed)
        for number in range(count):
            pieces = program(seed, number, made)
            kernels += len(pieces)
            with config.using(cc="" if number % FULL == 0 else quick):
                if not check(pieces, f"{seed}/{number}"):
                    continue
                failures += 1
                left = reduced(pieces, f"{seed}/{number}")
                print(f"WRONG seed {seed} program {number}: {len(pieces)} pieces, {len(left)} of them suffice")
                for part, reason in check(left, f"{seed}/{number}"):
                    print(f"  {part.name}: {reason}")
                made = [part for part in made if part not in left] if len(left) == 1 else made  # it is known now
                print("  with " + "; ".join(part.name for part in left), flush=True)
    print(
        f"seed {seed}: {count} programs of {kernels} kernels, {failures} wrong, {time.time() - start:.0f} s", flush=True
    )
    return failures


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A cache that is thrown away, and a compiler that does not optimise."""
    with tempfile.TemporaryDirectory(prefix="fuzz-bundles-") as folder:
        quick = pathlib.Path(folder) / "quick-cc"
        quick.write_text(f'#!/bin/sh\nexec {toolchain.find_compiler()} "$@" -O0\n')
        quick.chmod(0o755)
        with config.using(cache_dir=os.path.join(folder, "cache")):
            yield str(quick)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.backends.fuzz_horizontal")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument(
        "--seed", type=int, default=0, help=f"of the first {BATCH} programs; the next ones have the next"
    )
    parser.add_argument("--quick", help=argparse.SUPPRESS)  # of a child: the compiler that does not optimise
    options = parser.parse_args(arguments)
    if options.quick:
        return min(batch(options.seed, options.programs, options.quick), 100)
    failures = 0
    with scratch() as quick:
        environment = os.environ | {"FUSER_CACHE_DIR": config.cache_dir, "FUSER_CACHE_LIMIT": str(CACHE_BYTES)}
        for first in range(0, options.programs, BATCH):
            seed, count = options.seed + first // BATCH, min(BATCH, options.programs - first)
            command = [sys.executable, "-m", "tests.backends.fuzz_horizontal", "--quick", quick]
            done = subprocess.run([*command, "--programs", str(count), "--seed", str(seed)], env=environment)
            if done.returncode not in range(101):
                print(f"WRONG seed {seed}: the process ended with {done.returncode}", flush=True)
            failures += done.returncode if done.returncode > 0 else done.returncode != 0
    print(f"{options.programs} programs, {failures} wrong")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
