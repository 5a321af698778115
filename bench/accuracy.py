"""`python -m bench.accuracy`: errors of sums, running sums and variances of fuser, NumPy and JAX, side by side.

Data that round badly, each in its own way, of 10³ to 10⁹ elements, summed along each axis. An error is the largest of all
results, in units of ε times the sum of the magnitudes that were added (a variance: times the variance), so that pairwise
summation stays below log2(n). 10⁹ elements are generated inside the compiled function, and NumPy, which would hold them,
is not measured there. Writes a table and a JSON document to bench/results.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import pathlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench import machine

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
SIZES = (10**3, 10**5, 10**7)
LARGEST = 10**9
DATA = ("constant", "random", "alternating", "cancelling")
ROWS = 10  # of the arrays with two axes
SYSTEMS = ("fuser", "numpy", "jax")
CHUNK = 10**7  # elements of what is generated that are added exactly at a time


@dataclass(frozen=True)
class Row:
    """The errors of one result; `bound` is that of pairwise summation. None: not measured, for the reason in `note`."""

    result: str
    dtype: str
    data: str
    elements: int
    fuser: float
    numpy: float | None
    jax: float | None
    bound: float
    note: str = ""

    @property
    def good(self) -> bool:
        """Within the bound, and not more than twice NumPy's error, or than a rounding or two where NumPy's is less."""
        return self.fuser <= self.bound and (self.numpy is None or self.fuser <= max(2 * self.numpy, 1.25))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description="Errors of sums, side by side.")
    parser.add_argument("--largest", type=int, default=LARGEST, help="elements of the largest arrays (default: 10**9)")
    parser.add_argument("--no-write", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    print(HEAD)
    rows = []
    for row in measured(options.largest):
        rows.append(row)
        print(_line(row), flush=True)
    if not options.no_write:
        _write(rows)
    return int(not all(row.good for row in rows))


def measured(largest: int) -> Iterator[Row]:
    """All rows of the table."""
    for dtype in (np.float32, np.float64):
        for size in (size for size in SIZES if size <= largest):
            for kind in DATA:
                yield from _of_arrays(np.dtype(dtype), size, kind)
            yield _variance(np.dtype(dtype), size)
    if largest > SIZES[-1]:
        for kind in DATA:
            yield _generated(kind, largest)


# Arrays that all three hold.


def data(kind: str, count: int, dtype: np.dtype) -> np.ndarray:
    """One array of the table."""
    rng = np.random.default_rng(0)
    numbers = {
        "constant": lambda: np.full(count, 0.1),
        "random": lambda: rng.random(count),
        "alternating": lambda: np.where(np.arange(count) % 2, -0.7, 0.9),
        "cancelling": lambda: rng.standard_normal(count) * np.exp(3 * rng.standard_normal(count)),
    }[kind]()
    return numbers.astype(dtype)


def _of_arrays(dtype: np.dtype, size: int, kind: str) -> Iterator[Row]:
    x = data(kind, size, dtype)
    layouts = {"sum": (x, 0), "sum of rows": (x.reshape(ROWS, -1), 1), "sum of columns": (x.reshape(-1, ROWS), 0)}
    for name, (array, axis) in layouts.items():
        exact, magnitude = _total(array, axis), _total(np.abs(array), axis)
        errors = {s: _error(_apply(s, "sum", array, axis), exact, magnitude, dtype) for s in SYSTEMS}
        yield Row(name, dtype.name, kind, size, **errors, bound=round(math.log2(array.shape[axis]), 1))
    exact, magnitude = _running(x), _running(np.abs(x))
    errors = {s: _error(_apply(s, "cumsum", x, 0), exact, magnitude, dtype) for s in SYSTEMS}
    yield Row("running sum", dtype.name, kind, size, **errors, bound=round(math.log2(size), 1))


def _variance(dtype: np.dtype, size: int) -> Row:
    x = (data("random", size, dtype) + 1000).astype(dtype)
    wide = x.astype(np.longdouble)
    exact = np.add.reduce((wide - np.add.reduce(wide) / size) ** 2) / size
    errors = {s: _error(_apply(s, "var", x, 0), exact, exact, dtype) for s in SYSTEMS}
    return Row("variance", dtype.name, "1000 + random", size, **errors, bound=round(math.log2(size), 1))


def _apply(system: str, name: str, x: np.ndarray, axis: int) -> np.ndarray:
    """The result of one system, in the dtype of `x`."""
    if system == "numpy":
        return np.asarray(getattr(np, name)(x, axis=axis))
    if system == "fuser":
        import fuser
        import fuser.numpy as library

        with fuser.config.using(enable_x64=True):
            return np.asarray(fuser.jit(lambda x: getattr(library, name)(x, axis=axis))(x))
    import jax

    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda x: getattr(jax.numpy, name)(x, axis=axis))(x))


def _error(found: Any, exact: Any, magnitude: Any, dtype: np.dtype) -> float:
    """The largest error in units of ε · magnitude."""
    wide = np.asarray(found).astype(np.longdouble)
    return float(np.max(np.abs(wide - exact) / (magnitude * np.finfo(dtype).eps)))


def _total(x: np.ndarray, axis: int) -> np.ndarray:
    """The sum in pairs of 80-bit numbers, each row of memory one sum."""
    return np.add.reduce(np.ascontiguousarray(np.moveaxis(x, axis, -1).astype(np.longdouble)), axis=-1)


def _running(x: np.ndarray, length: int = 1024) -> np.ndarray:
    """The running sum of 80-bit numbers, in blocks and blocks of these."""
    wide = x.astype(np.longdouble)
    if len(wide) <= length:
        return np.add.accumulate(wide)
    padded = np.zeros(-(-len(wide) // length) * length, np.longdouble)
    padded[: len(wide)] = wide
    inside = np.add.accumulate(padded.reshape(-1, length), axis=1)
    before = _running(inside[:, -1])
    inside[1:] += before[:-1, None]
    return inside.reshape(-1)[: len(wide)]


# Arrays that nobody holds.

WORDS = {"fuser": "fuser.numpy", "jax": "jax.numpy"}


def _generated(kind: str, count: int) -> Row:
    """The sum of numbers that are made where they are added."""
    exact, magnitude = _exact(kind, count)
    errors: dict[str, float | None] = {"numpy": None}
    for system in WORDS:
        errors[system] = _error(_sum_of_generated(system, kind, count), exact, magnitude, np.dtype(np.float32))
    note = "NumPy would hold 4 GB or more"
    return Row("sum", "float32", kind, count, **errors, bound=round(math.log2(count), 1), note=note)  # type: ignore[arg-type]


def _sum_of_generated(system: str, kind: str, count: int) -> np.ndarray:
    import importlib

    library = importlib.import_module(WORDS[system])
    jit = importlib.import_module(system).jit
    return np.asarray(jit(lambda: library.sum(_numbers(library, kind, library.arange(count, dtype=np.uint32))))())


def _numbers(library: Any, kind: str, place: Any) -> Any:
    """The numbers at places: in float32, and multiples of 2**-24 where they are random."""
    if kind == "constant":
        return library.where(place < np.uint32(2**32 - 1), np.float32(0.1), np.float32(0))
    if kind == "alternating":
        return library.where(place % np.uint32(2) == 0, np.float32(0.9), np.float32(-0.7))
    integers = (_mixed(place) >> np.uint32(8)).astype(np.float32)
    return (integers if kind == "random" else integers - np.float32(2**23)) * np.float32(2**-24)


def _mixed(place: Any) -> Any:
    """Bits that look random (Wellons, "Prospecting for hash functions", 2018)."""
    place = (place ^ (place >> np.uint32(16))) * np.uint32(0x7FEB352D)
    place = (place ^ (place >> np.uint32(15))) * np.uint32(0x846CA68B)
    return place ^ (place >> np.uint32(16))


def _exact(kind: str, count: int) -> tuple[np.longdouble, np.longdouble]:
    """The sum and the sum of magnitudes of what `_numbers` gives."""
    if kind == "constant":
        total = np.longdouble(np.float32(0.1)) * count
        return total, total
    if kind == "alternating":
        first, second = (np.longdouble(np.float32(v)) for v in (0.9, -0.7))
        return first * ((count + 1) // 2) + second * (count // 2), first * ((count + 1) // 2) - second * (count // 2)
    total = magnitude = 0
    for start in range(0, count, CHUNK):
        place = np.arange(start, min(start + CHUNK, count), dtype=np.uint32)
        integers = (_mixed(place) >> np.uint32(8)).astype(np.int64)
        integers = integers if kind == "random" else integers - 2**23
        total, magnitude = total + int(integers.sum()), magnitude + int(np.abs(integers).sum())
    return np.longdouble(total) * 2**-24, np.longdouble(magnitude) * 2**-24


# The table.

HEAD = (
    "| result | dtype | data | elements | fuser | NumPy | JAX | pairwise bound |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
)


def _line(row: Row) -> str:
    errors = ("not measured" if e is None else f"{e:.3g}" for e in (row.fuser, row.numpy, row.jax))
    words = (row.result, row.dtype, row.data, f"{row.elements:.0e}".replace("e+0", "e"), *errors, f"{row.bound:g}")
    return f"| {' | '.join(words)} |"


def _write(rows: list[Row]) -> None:
    about = machine.describe(gpu=False)
    now = datetime.datetime.now(datetime.UTC)
    name = f"{now:%Y-%m-%d-%H%M}-{machine.slug(about)}-accuracy"
    document = {"machine": about, "rows": [asdict(row) for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    text = f"# Errors of sums\n\n`python -m bench.accuracy` on {about['cpu']}, with {versions}.\n\n{HEAD}\n"
    text += "\n".join(map(_line, rows)) + "\n"
    text += "\nUnits: ε times the sum of the magnitudes that are added, of a variance ε times the variance; the largest of all\n"
    text += f"results, of which sums of rows and of columns have {ROWS}. "
    text += "\n".join(dict.fromkeys(f"{row.elements:.0e} elements: {row.note}." for row in rows if row.note)) + "\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(f"wrote {name}.md and {name}.json")


if __name__ == "__main__":
    sys.exit(main())
