"""Random NumPy functions with views, writes in place and branches on values, against NumPy: `python -m tests.interop.random_segments 5000`."""

from __future__ import annotations

import argparse
import linecache
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.interop import accelerate, segments
from fuser.interop.numpy import host_kernels

VALUES = (
    *("{a} + {b}", "{a} * {b} - {c}", "{a} / (1 + {b} ** 2)", "{a} - {a}.mean()", "{a} * {n}", "{a}"),
    *("np.where({a} > {b}, {a}, {c})", "np.abs({a}) + 0.5", "np.sqrt(np.abs({a}))", "np.clip({a}, -1, 1)"),
    *("np.sort({a})", "{a}[::-1] * 0.5", "{a}.copy()", "np.roll({a}, {n})", "{a} + G", "np.cumsum({a}) / 8"),
    *("np.maximum({a}, {b}.min())", "{a} + float({b}[{n}])", "np.zeros(8) + {a}[0]", "np.zeros_like({a})"),
    *(
        "np.concatenate([{a}[4:], {b}[:4]])",
        "{a}.reshape(2, 4).T.ravel()",
        "{a}[np.argsort({b}, kind='stable')]",
        "box.u * {x}",
    ),
    *("{a} - np.percentile({a}, 30)", "np.where({a} > np.median({a}), {a}, {b})", "np.resize({a}[{a} > {b}], 8)"),
    "np.bincount(np.flatnonzero({a} > {b}), minlength=8) + {c}",
    "np.unique(np.round({a}).astype(int), return_inverse=True)[1] + {b}",
)
WRITES = (
    *("{a} += {b}", "{a}[1:-1] = {b}[2:]", "{a}[{a} > {x}] = {x}", "{a}[{n}] = {b}.max()", "{a} -= {a}.mean()"),
    *("{v} = {a}[::2]; {v} *= {x}", "{v} = {a}[1:5]; {v}[:] = {b}[3:7]; {c} = {c} + {v}.sum()", "{a}[:] = {a}[::-1]"),
    *("np.add({a}, {b}, out={c})", "np.multiply({a}, {x}, {a})", "np.add.at({a}, [1, 1], {x})", "G[{n}:] = {a}[{n}:]"),
    *("G *= 0.5", "{v} = {a}[2:]; {a} = {a} * {x}; {v} += 1", "kept.append({a} * 2)", "kept.append({a}[:3])"),
    *("{a} **= 2; {a} = np.tanh({a})", "{a}.sort()", "{a}.fill({x})", "{v} = {a}.reshape(2, 4); {v}[1] -= {v}[0]"),
    *(
        "box.u[{n}] = {a}[0]",
        "box.u = {a} + 1",
        "np.copyto({a}, {b})",
        "{a}[[1, 3]] = {b}[[3, 1]]",
        "{a}.T[...] += {x}",
    ),
)
TESTS = (
    *("{a}.sum() > {x}", "{a}[{n}] < {b}[{n}]", "len(np.unique({a})) > 4", "np.any({a} > {x})"),
    *("float({a}.max()) > {x}", "({a} > 0).sum() % 2", "np.allclose({a}, {b})", "{n} > 3"),
)
RESULTS = ("x", "y", "z", "z.sum()", "x[1:4]", "G", "box.u", "y[::-1]", "{'z': z}", "[x, y * 2]")


class Box:
    """An argument that holds an array."""

    def __init__(self, u: np.ndarray) -> None:
        self.u = u


def program(rng: random.Random) -> str:
    """The text of a function of x, y (float arrays of 8 elements), a list `kept`, a Box, and the global G."""

    def filled(text: str) -> str:
        a, b, c = (rng.choice("xyz") for _ in range(3))
        return text.format(a=a, b=b, c=c, v="v", n=rng.randrange(7), x=round(rng.uniform(-1, 1), 2))

    def block(indent: str, count: int) -> Iterator[str]:
        for _ in range(count):
            draw = rng.random()
            if draw < 0.5:
                yield f"{indent}{rng.choice('xyz')} = {filled(rng.choice(VALUES))}"
            elif draw < 0.8 or len(indent) > 8:
                yield indent + filled(rng.choice(WRITES))
            else:
                yield f"{indent}if {filled(rng.choice(TESTS))}:" if draw < 0.93 else f"{indent}for _ in range(3):"
                yield from block(indent + "    ", rng.randrange(1, 4))

    head = ["def f(x, y, kept, box):", *["    global G"] * (rng.random() < 0.5), "    z = x * 0.5 + y"]
    body = [*head, *block("    ", rng.randrange(3, 9)), f"    return {', '.join(rng.sample(RESULTS, 3))}", ""]
    text = "\n".join(body)
    return text if "global" in text else text.replace("G *= 0.5", "G[:] = G * 0.5")


def outcome(call: Any, space: dict[str, Any], alias: str) -> Any:
    """What one call gives and leaves behind, and which arrays share memory; the type of its error, if it raises one."""
    data = np.random.default_rng(0)
    x, y, kept = data.normal(size=8), data.normal(size=8), []
    space["G"] = x[::-1] if "G" in alias else data.normal(size=8)
    y = x[:] if "y" in alias else y
    box = Box(y[::-1] if "b" in alias else data.normal(size=8))
    given = [x, y, space["G"], box.u]
    try:
        result = call(x, y, kept, box)
    except Exception as error:
        return type(error), given, kept, box.u
    arrays = [v for v in (*result, *kept, box.u, *given) if isinstance(v, np.ndarray)]
    shares = [np.shares_memory(a, b) for a in arrays for b in arrays]
    return result, given, kept, space["G"], box.u, shares


def differs(a: Any, b: Any) -> bool:
    """Whether two outcomes differ in types, shapes or, beyond rounding, in values."""
    if type(a) is not type(b):
        return True
    if isinstance(a, (tuple, list)):
        return len(a) != len(b) or any(map(differs, a, b))
    if isinstance(a, dict):
        return list(a) != list(b) or any(map(differs, a.values(), b.values()))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b, 1e-8, 1e-8, equal_nan=True)
    return bool(a != b)


def check(seed: int, fallback: str = "segments", backend: str = "reference") -> str | None:
    """The text of the seed's program where it is wrong, else None."""
    rng = random.Random(seed)
    text, alias = program(rng), rng.choice(("", "", "", "G", "y", "b", "Gb"))
    name = f"random_{seed}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"np": np, "__name__": "random_segments"}
    exec(compile(text, name, "exec"), space)
    fast = accelerate(space["f"], fallback=fallback, measure=False, backend=backend)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = outcome(space["f"], space, alias)
        for turn in range(3):
            found = outcome(fast, space, alias)
            if differs(wanted, found):
                return f"seed {seed}, call {turn}, alias {alias!r}\n{text}\nwanted {wanted}\nfound  {found}\n{fast.explain()}"
    return None


def run(seeds: range) -> list[str]:
    """What is wrong among the programs of these seeds; segments are compiled, and kernels of the host taken, however small they are."""
    fewest, segments.FEWEST_ELEMENTS = segments.FEWEST_ELEMENTS, 2
    large, host_kernels.FEWEST = host_kernels.FEWEST, 2
    try:
        return [words for seed in seeds if (words := check(seed)) is not None]
    finally:
        segments.FEWEST_ELEMENTS, host_kernels.FEWEST = fewest, large


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    wrong = run(range(given.first, given.first + given.count))
    print("\n\n".join(wrong[:5]), f"{given.count} programs, {len(wrong)} wrong", sep="\n")
    sys.exit(bool(wrong))
