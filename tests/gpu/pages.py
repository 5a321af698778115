"""README, docs and examples where a GPU is the default device, in several processes: `python -m tests.gpu.pages --rows pages.jsonl`.

Out: a JSON line a page or example as soon as it is done, `{"page", "wrong", "seconds"}`. `wrong` is empty where each block prints what stands below
it on the page, but for the last digits of numbers; reports, which name the backend and its kernels, only have to come without an error.
An example has to end with 0. `--stand-in`: pages alone, on a GPU that is none. Exit status 1: something is wrong.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tests import page_blocks

EXAMPLES = {  # and the arguments of a small run
    "black_scholes": ("--size", "10000", "--rounds", "1"),
    "digits_classifiers": ("--size", "600", "--epochs", "2"),
    "hamiltonian_monte_carlo": ("--draws", "40", "--chains", "2", "--steps", "8"),
    "image_pipeline": ("--size", "96", "--rounds", "1"),
    "kmeans_digits": ("--size", "500", "--rounds", "8"),
    "lotka_volterra": ("--size", "1000", "--steps", "100"),
    "option_pricing": ("--paths", "10000"),
    "private_gradients": ("--steps", "20"),
    "sharded_transformer": ("--steps", "20", "--batch", "16"),
}
REPORTS = re.compile(r"explain|\.lower\(|\.sources\b|\.plan\b")  # of the backend and its kernels
NUMBER = re.compile(r"[-+]?\d+\.\d*(?:e[-+]?\d+)?")
CLOSE = 1e-5  # relative to a number, and to 1
Row = dict[str, Any]


def agrees(code: str, wanted: str, printed: str, failed: bool) -> bool:
    """Whether a block of a page does what the page says."""
    if printed == wanted or (not failed and REPORTS.search(code) is not None):
        return True
    ours, theirs = ([float(x) for x in NUMBER.findall(text)] for text in (printed, wanted))
    same_words = NUMBER.sub("", printed).split() == NUMBER.sub("", wanted).split()
    return same_words and all(
        math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE) for a, b in zip(ours, theirs, strict=True)
    )


def page(name: str, environment: Callable[[pathlib.Path], dict[str, str]], *options: str) -> list[str]:
    """What is wrong with the blocks of a page."""
    blocks = page_blocks.blocks(name)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        try:
            found = page_blocks.run([code for code, _ in blocks], path, environment(path), *options) if blocks else []
        except RuntimeError as error:
            return [str(error)]
    return [
        f"block {number} ends in {code.splitlines()[-1]!r} and prints {printed[-600:]!r}"
        for number, ((code, wanted), (printed, failed)) in enumerate(zip(blocks, found, strict=True), 1)
        if not agrees(code, wanted, printed, failed)
    ]


def example(name: str, environment: Callable[[pathlib.Path], dict[str, str]]) -> list[str]:
    """What is wrong with an example."""
    command = [sys.executable, str(page_blocks.ROOT / "examples" / f"{name}.py"), *EXAMPLES[name]]
    with tempfile.TemporaryDirectory() as folder:
        settings = environment(pathlib.Path(folder))
        run = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    return [f"it ends with {run.returncode}: {(run.stdout + run.stderr)[-600:]}"] if run.returncode else []


def rows(names: list[str], processes: int, seconds: float, options: tuple[str, ...], cache: str) -> Any:
    """The rows in the order in which they come; none begins after so many seconds."""
    environment = lambda folder: page_blocks.settings(folder, FUSER_CACHE_DIR=cache)
    start = time.monotonic()

    def row(name: str) -> Row:
        begin = time.monotonic()
        if begin - start > seconds:
            return {"page": name, "left_out": True}
        wrong = example(name, environment) if name in EXAMPLES else page(name, environment, *options)
        return {"page": name, "wrong": wrong, "seconds": round(time.monotonic() - begin, 1)}

    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        for done in concurrent.futures.as_completed([pool.submit(row, name) for name in names]):
            yield done.result()


def main(arguments: list[str]) -> int:
    """Write the rows; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.pages", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="*", help="pages, and names of examples (default: all)")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60, help="after which no more pages begin")
    parser.add_argument("--rows", type=pathlib.Path, help="a file to which each row is added as a line of JSON")
    parser.add_argument("--stand-in", action="store_true", help="on the driver's stand-in")
    options = parser.parse_args(arguments)
    with_blocks = [name for name in page_blocks.PAGES if page_blocks.blocks(name)]
    names = options.pages or [*with_blocks, *(() if options.stand_in else EXAMPLES)]
    wrong = left_out = 0
    with tempfile.TemporaryDirectory() as folder:
        cache = os.environ.get("FUSER_CACHE_DIR", folder)
        inside = ("--stand-in",) if options.stand_in else ()
        for row in rows(names, options.processes, options.seconds, inside, cache):
            line = json.dumps(row)
            print(line, flush=True)
            if options.rows:
                with options.rows.open("a") as file:
                    file.write(line + "\n")
            wrong += bool(row.get("wrong"))
            left_out += "left_out" in row
    print(f"{len(names) - left_out} pages and examples, {wrong} with something wrong, {left_out} left out")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
