"""Access patterns against this machine's copy: `python -m bench.access [words of cases] [--json file]`.

A case is a few lines of NumPy code whose time is all memory: transposes, strides, edges, stencils, short rows. Its ideal
bytes are its inputs read once and its results written once; the yardstick is a copy of as many bytes in the same round.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bench import machine
from bench.timing import calls_per_sample, sample, take_turns

SAMPLE_SECONDS = 0.002
PAUSE_SECONDS = 0.003
NUMPY_ROUNDS = 3  # the most: it is slow, and no yardstick
F32, F64, I8 = "float32", "float64", "int8"
BF16, F16, C64, BOOL, U8, I32 = "bfloat16", "float16", "complex64", "bool", "uint8", "int32"
DTYPES = {BF16: ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """`function(xp, *inputs)` over arrays of (shape, dtype); `halves` are inputs of which only a part is read, by share."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    shares: tuple[float, ...] = ()


def case(name: str, function: Callable[..., Any], *inputs: tuple[Any, str], shares: tuple[float, ...] = ()) -> Case:
    return Case(name, function, tuple(inputs), shares)


def five_point(xp: Any, x: Any) -> Any:
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def nine_point(xp: Any, x: Any) -> Any:
    n, m = x.shape
    parts = [x[i : n - 2 + i, j : m - 2 + j] for i in range(3) for j in range(3)]
    return sum(parts[1:], parts[0]) * (1 / 9)


def seven_point(xp: Any, x: Any) -> Any:
    near = x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1]
    return near + x[1:-1, 1:-1, :-2] + x[1:-1, 1:-1, 2:] - 6.0 * x[1:-1, 1:-1, 1:-1]


def five_point_kept(xp: Any, x: Any) -> Any:
    """The borders keep their values: what a solver writes with `at[].set` or `pad`."""
    return xp.pad(five_point(xp, x), 1) + 0.5 * x


def blur(xp: Any, x: Any) -> Any:
    p = xp.pad(x, ((2, 2), (0, 0)), mode="edge")
    rows = p[:-4] + 4 * p[1:-3] + 6 * p[2:-2] + 4 * p[3:-1] + p[4:]
    q = xp.pad(rows, ((0, 0), (2, 2)), mode="edge")
    return (q[:, :-4] + 4 * q[:, 1:-3] + 6 * q[:, 2:-2] + 4 * q[:, 3:-1] + q[:, 4:]) * (1 / 256)


def normalise(xp: Any, x: Any) -> Any:
    return (x - x.mean((0, 1))) / x.std((0, 1))


SQUARE, ODD, SMALL = (4096, 4096), (3001, 4099), (300, 301)


def transposes() -> list[Case]:
    """Dimensions in another order."""
    found = [case(f"x.T + y {d} 4096²", lambda xp, x, y: x.T + y, (SQUARE, d), (SQUARE, d)) for d in (F32, F64, I8)]
    found += [
        case("x.T copy f32 4096²", lambda xp, x: x.T + 0, (SQUARE, F32)),
        case("x.T + y f32 3001×4099", lambda xp, x, y: x.T + y, (ODD, F32), (ODD[::-1], F32)),
        case("x.T + y f32 300×301", lambda xp, x, y: x.T + y, (SMALL, F32), (SMALL[::-1], F32)),
        case("x.T + x f32 4096²", lambda xp, x: x.T + x, (SQUARE, F32)),
        case("exp(x.T) * z f32 4096²", lambda xp, x, z: xp.exp(x.T) * z, (SQUARE, F32), (SQUARE, F32)),
        case("x.T.sum(0) f32", lambda xp, x: (x.T * 2).sum(0), (SQUARE, F32)),
        case("x.T + y bf16", lambda xp, x, y: x.T + y, (SQUARE, BF16), (SQUARE, BF16)),
    ]
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2):
            found.append(case(f"transpose {order} 200×210×220", _transposed(order), ((200, 210, 220), F32)))
    nchw = (32, 64, 56, 57)
    for order in [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0), (1, 0, 3, 2), (0, 1, 3, 2), (2, 3, 0, 1)]:
        found.append(case(f"transpose {order} 32×64×56×57", _transposed(order), (nchw, F32)))
    return found


def strides() -> list[Case]:
    """Every second element, and backwards."""
    found = [
        case(
            "NHWC→NCHW RGB u8→f32",
            lambda xp, x: xp.transpose(x, (0, 3, 1, 2)) * np.float32(0.1),
            ((8, 512, 512, 3), U8),
        ),
        case("x[::2] 1-d", lambda xp, x: x[::2] * 2, ((1 << 24,), F32)),
        case("x[::3] + x[1::3] 1-d", lambda xp, x: x[::3] + x[1::3], ((3 << 22,), F32)),
        case("x[:, ::2] 4096²", lambda xp, x: x[:, ::2] * 2, (SQUARE, F32)),
        case("x[:, ::3] 4096²", lambda xp, x: x[:, ::3] * 2, (SQUARE, F32)),
        case("x[::3] 4096²", lambda xp, x: x[::3] * 2, (SQUARE, F32), shares=(1 / 3,)),
        case("x[::-1] 1-d", lambda xp, x: x[::-1] * 2, ((1 << 24,), F32)),
        case("x[:, ::-1] 4096²", lambda xp, x: x[:, ::-1] * 2, (SQUARE, F32)),
        case("flip both", lambda xp, x: x[::-1, ::-1] * 2, (SQUARE, F32)),
    ]
    return found


def reductions() -> list[Case]:
    """Sums and the like along any dimensions."""
    found = []
    for shape in [(256, 256, 256), (2048, 2048, 3), (3, 2048, 2048), (2048, 3, 2048)]:
        for axis in (0, 1, 2, (0, 1), (1, 2), (0, 2)):
            name = f"sum {axis} {'×'.join(map(str, shape))}"
            found.append(case(name, _summed(axis), (shape, F32)))
    found += [
        case("normalise channels RGB", normalise, ((2048, 2048, 3), F32)),
        case("mean RGB u8", lambda xp, x: x.astype(np.float32).mean(-1), ((2048, 2048, 3), U8)),
        case("grey RGB", lambda xp, x: x[..., 0] * 0.3 + x[..., 1] * 0.59 + x[..., 2] * 0.11, ((2048, 2048, 3), F32)),
        case("sum 0 tall 4M×4", lambda xp, x: x.sum(0), ((1 << 22, 4), F32)),
        case("sum 0 tall 1M×16", lambda xp, x: x.sum(0), ((1 << 20, 16), F32)),
        case("sum 0 tall 100k×100", lambda xp, x: x.sum(0), ((100_000, 100), F32)),
        case("sum 0 4096²", lambda xp, x: x.sum(0), (SQUARE, F32)),
        case("sum 0 wide 8×1M", lambda xp, x: x.sum(0), ((8, 1 << 20), F32)),
        case("sum 0 wide 64×200k", lambda xp, x: x.sum(0), ((64, 200_000), F32)),
        case("sum 0 300×301", lambda xp, x: x.sum(0), (SMALL, F32)),
        case("sum 0 bf16 4096²", lambda xp, x: x.sum(0), (SQUARE, BF16)),
        case("max 0 4096²", lambda xp, x: x.max(0), (SQUARE, F32)),
        case("argmax 0 4096²", lambda xp, x: x.argmax(0), (SQUARE, F32)),
        case("argmax 1 4096²", lambda xp, x: x.argmax(1), (SQUARE, F32)),
        case("argmax all", lambda xp, x: x.argmax(), ((1 << 24,), F32)),
        case("var 0 4096²", lambda xp, x: x.var(0), (SQUARE, F32)),
        case("sum of x.T[::2]", lambda xp, x: x.T[::2].sum(), (SQUARE, F32)),
        case("sum of x[:, ::2]", lambda xp, x: x[:, ::2].sum(), (SQUARE, F32)),
        case("sum i8", lambda xp, x: x.sum(dtype=np.int32), ((1 << 25,), I8)),
        case("any bool", lambda xp, x: x.any(1), ((4096, 8192), BOOL)),
    ]
    for width in (2, 8, 16, 33, 100):
        found.append(case(f"sum rows of {width}", lambda xp, x: x.sum(1), (((1 << 23) // width, width), F32)))
        found.append(case(f"softmax rows of {width}", _softmax, (((1 << 22) // width, width), F32)))
    return found


def joins() -> list[Case]:
    """Values repeated, put together, moved and padded."""
    found = [
        case("x + row 4096²", lambda xp, x, r: x + r, (SQUARE, F32), ((4096,), F32)),
        case("x + column 4096²", lambda xp, x, c: x + c[:, None], (SQUARE, F32), ((4096,), F32)),
        case("x * channel RGB", lambda xp, x, c: x * c, ((2048, 2048, 3), F32), ((3,), F32)),
        case("outer 4096²", lambda xp, r, c: r[:, None] * c, ((4096,), F32), ((4096,), F32)),
        case("roll 1 axis 4096²", lambda xp, x: xp.roll(x, 5, 1) + x, (SQUARE, F32)),
        case("roll 2 axes 1000×1001", lambda xp, x: xp.roll(x, (5, -3), (0, 1)) * 2, ((1000, 1001), F32)),
        case("concatenate 0", lambda xp, x, y: xp.concatenate([x, y]) * 2, (SQUARE, F32), (SQUARE, F32)),
        case("concatenate 1", lambda xp, x, y: xp.concatenate([x, y], 1) * 2, (SQUARE, F32), (SQUARE, F32)),
        case("stack -1", lambda xp, x, y: xp.stack([x, y], -1), ((1 << 23,), F32), ((1 << 23,), F32)),
        case("stack RGB", lambda xp, x, y, z: xp.stack([x, y, z], -1), *[((1 << 22,), F32)] * 3),
        case("gather rows", lambda xp, x, i: x[i] * 2, ((10_000, 512), F32), ((10_000,), I32)),
    ]
    for mode in ("constant", "edge", "reflect", "wrap", "symmetric"):
        found.append(case(f"pad {mode} 1-d", _padded(mode, 7), ((1 << 24,), F32)))
        found.append(case(f"pad {mode} 2-d", _padded(mode, 3), (SQUARE, F32)))
    return found


def neighbourhoods() -> list[Case]:
    """Stencils."""
    found = [
        case("5 points 4096²", five_point, (SQUARE, F32)),
        case("5 points 4098² f64", five_point, ((4098, 4098), F64)),
        case("5 points 300×301", five_point, (SMALL, F32)),
        case("5 points, padded 4096²", five_point_kept, (SQUARE, F32)),
        case("9 points 4096²", nine_point, (SQUARE, F32)),
        case("7 points 256³", seven_point, ((256, 256, 256), F32)),
        case("blur 4096²", blur, (SQUARE, F32)),
        case("3 points 1-d", lambda xp, x: x[:-2] + x[1:-1] + x[2:], ((1 << 24,), F32)),
        case("diff 0", lambda xp, x: x[1:] - x[:-1], (SQUARE, F32)),
    ]
    return found


def types() -> list[Case]:
    """Other dtypes, element by element."""
    found = [
        *(
            case(f"2x + y {d}", lambda xp, x, y: x * x + y, ((1 << 24,), d), ((1 << 24,), d))
            for d in (BF16, F16, I8, C64)
        ),
        case("a & ~b bool", lambda xp, x, y: x & ~y, ((1 << 25,), BOOL), ((1 << 25,), BOOL)),
        case("x > 0 bool", lambda xp, x: x > 0, ((1 << 24,), F32)),
        case("f32 → bf16", lambda xp, x: x.astype(ml_dtypes.bfloat16), ((1 << 24,), F32)),
        case("x + y in cache", lambda xp, x, y: x + y, ((60_000,), F32), ((60_000,), F32)),
    ]
    return found


def cases() -> list[Case]:
    """All of them."""
    return [*transposes(), *strides(), *reductions(), *joins(), *neighbourhoods(), *types()]


def _transposed(order: tuple[int, ...]) -> Callable[..., Any]:
    return lambda xp, x: xp.transpose(x, order) * 2


def _summed(axis: Any) -> Callable[..., Any]:
    return lambda xp, x: x.sum(axis)


def _padded(mode: str, width: int) -> Callable[..., Any]:
    return lambda xp, x: xp.pad(x, width, mode=mode) * 2


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def arrays(case: Case) -> list[np.ndarray]:
    """Inputs of a case: small numbers, so that nothing overflows; indices for int32."""
    generator = np.random.default_rng(0)
    made = []
    for shape, dtype in case.inputs:
        kind = DTYPES.get(dtype, np.dtype(dtype))
        numbers = (
            generator.integers(0, 100, shape, dtype=np.int8) if dtype != I32 else generator.integers(0, 10_000, shape)
        )
        made.append((numbers > 50) if dtype == BOOL else numbers.astype(kind))
    return made


def systems(case: Case, inputs: list[np.ndarray]) -> dict[str, Callable[[], Any]]:
    """One call each of fuser, JAX and NumPy."""
    import jax
    import jax.numpy as jnp

    import fuser
    import fuser.numpy as fnp

    ours = fuser.jit(lambda *arguments: case.function(fnp, *arguments))
    theirs = jax.jit(lambda *arguments: case.function(jnp, *arguments))
    our_inputs, their_inputs = [fnp.asarray(x) for x in inputs], [jnp.asarray(x) for x in inputs]
    return {
        "fuser": lambda: ours(*our_inputs),
        "jax": lambda: jax.block_until_ready(theirs(*their_inputs)),
        "numpy": lambda: np.ascontiguousarray(case.function(np, *inputs)),  # not a view
    }


def copier(size: int) -> Callable[[], Any]:
    """A copy of so many bytes, half read and half written, by all cores."""
    from fuser.runtime import roofline

    source, target = (np.ones(max(size // 8, 16), np.float32) for _ in range(2))
    library = roofline._library()
    if library is None:
        return lambda: np.copyto(target, source)

    def copy() -> None:
        library.copy(_pointer(source), _pointer(target), ctypes.c_int64(source.size))

    return copy


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """The row of one case: milliseconds of each system, of a copy of the ideal bytes, and what of the copy is reached."""
    inputs = arrays(case)
    calls = systems(case, inputs)
    row: dict[str, Any] = {"case": case.name}
    results = {name: call() for name, call in calls.items()}
    row["correct"] = _agree(results["fuser"], results["jax"])
    shares = case.shares or (1.0,) * len(inputs)
    size = int(sum(x.nbytes * s for x, s in zip(inputs, shares, strict=True))) + np.asarray(results["fuser"]).nbytes
    del results
    calls["copy"] = copier(size)
    counts = {name: calls_per_sample(call, SAMPLE_SECONDS) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}

    def turn(name: str) -> None:
        if name == "numpy" and len(samples[name]) >= NUMPY_ROUNDS:
            return
        time.sleep(PAUSE_SECONDS)
        calls[name]()
        samples[name].append(sample(calls[name], counts[name]))

    take_turns([functools.partial(turn, name) for name in calls], rounds)
    for name, times in samples.items():
        row[name] = min(times) * 1e3
        row[f"{name} median"] = statistics.median(times) * 1e3
    row |= {"bytes": size, "share": row["copy"] / row["fuser"], "gb": size / row["fuser"] * 1e-6}
    return row | {"jax/fuser": row["jax"] / row["fuser"], "numpy/fuser": row["numpy"] / row["fuser"]}


def _agree(ours: Any, theirs: Any) -> bool:
    a, b = (
        np.asarray(r).astype(np.complex128 if np.iscomplexobj(np.asarray(r)) else np.float64) for r in (ours, theirs)
    )
    return a.shape == b.shape and bool(
        np.allclose(a, b, rtol=2e-2 if a.size == 0 else 1e-3, atol=1e-3 * np.abs(b).max())
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text: milliseconds, share of the copy, and times of the peers over fuser's."""
    lines = [f"{'case':34} {'fuser ms':>9} {'GB/s':>6} {'of copy':>8} {'jax':>6} {'numpy':>6}"]
    for row in rows:
        wrong = "" if row["correct"] else "  WRONG"
        lines.append(
            f"{row['case']:34} {row['fuser']:9.3f} {row['gb']:6.1f} {row['share']:8.0%} "
            f"{row['jax/fuser']:5.1f}x {row['numpy/fuser']:5.1f}x{wrong}"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.access", description=__doc__)
    parser.add_argument("words", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(arguments)
    rows = []
    print(table([]))
    for each in cases():
        if not options.words or any(word in each.name for word in options.words):
            rows.append(measure(each, options.rounds))
            print(table(rows[-1:]).splitlines()[1], flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine.describe(gpu=False), "rows": rows}, indent=1))
    below = [r["case"] for r in rows if r["share"] < 0.85]
    slower = [r["case"] for r in rows if min(r["jax/fuser"], r["numpy/fuser"]) < 0.95]
    print(f"{len(rows)} cases; below 85 % of the copy: {len(below)}; slower than a peer: {', '.join(slower) or 'none'}")
    return 0 if all(r["correct"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
