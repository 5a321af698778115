"""Random NumPy functions that fill lists in loops and comprehensions: windows, rows, shared items, writes to items and to their arrays.

`python -m tests.interop.random_lists COUNT [--first SEED]` compares so many with NumPy.
"""

from __future__ import annotations

import argparse
import copy
import pathlib
import random
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from fuser.interop import accelerate
from tests.interop.oracle import same


class Writer:
    """Writes one function's source."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def number(self) -> str:
        return self.pick(
            "r.sum()", "r[0] * r[1]", "x[i] - x[i + 1]", "x[i : i + 4].mean()", "x[i + 1 : i + 6].max()", "i * 2", "float(r[2])",
            "s", "np.abs(r).max()", "x[2 * i : 2 * i + 3].sum()", "len(r)", "np.float32(1) * r[0]", "int(i)", "x[i + 3 : i].sum()",
        )  # fmt: skip

    def array(self) -> str:
        return self.pick(
            "r * 2", "r", "np.cumsum(r)", "x[i : i + 3]", "x[i : i + 5] * r[0]", "r[::-1] + s", "v", "v + r", "m[i]", "np.sort(r)",
            "m[:, 1] * r[0]", "x[i + 1 : i + 9 : 2]", "np.where(r > 0, r, 0.5)", "m[:2].T * 1",
        )  # fmt: skip

    def item(self) -> str:
        return self.pick(
            self.number(), self.number(), self.array(), self.array(), f"({self.number()}, {self.number()})"
        )

    def step(self) -> str:
        return self.pick(
            "s = 0.5 * s + r[0]", "v = v * 0.5 + r", "v += r", "v[0] = i", "w = r * 2", "m[i, 0] += 0.1", "x[i] = 0.5", "s += 1",
            "v = r.copy()",
        )  # fmt: skip

    def latest(self, name: str) -> str:
        """An item made of the last one."""
        last = f"{name}[-1]"
        return self.pick(
            f"{last} * 0.5 + i", f"{last} + r[0]", f"{last} * r", last, f"{last} if r[0] > 0 else s", f"np.sin({last})", f"r - {last}",
        )  # fmt: skip

    def loop(self, name: str, follows: bool = False) -> list[str]:
        head = self.pick("for i in range(24):", "for i, r in enumerate(m):", "for i, (r, q) in enumerate(zip(m, x)):")
        body = ["        r = m[i]"] if head.startswith("for i in range") else []
        body += [f"        {self.step()}" for _ in range(self.random.randint(0, 2))]
        if follows and self.random.random() < 0.5:
            reads = self.pick(
                "w = {}[-1]", "v = v + {}[-1]", "v += {}[-1]", "s = 0.5 * np.sum({}[-1])", "{}[-1][0] = s"
            )
            body.append(f"        {reads.format(name)}")
        item = self.latest(name) if follows else self.item()
        body.insert(self.random.randint(len(body) - 1, len(body)) if body else 0, f"        {name}.append({item})")
        if self.random.random() < 0.1:
            body.append("        if s > 3:\n            break")
        body += [f"        {self.step()}" for _ in range(self.random.randint(0, 1))]
        return [f"    {head}", *body]

    def comprehension(self, name: str) -> str:
        source = self.pick("range(24)", "enumerate(m)", "zip(range(24), m)")
        if source == "range(24)":
            item = self.pick(
                "x[i] * 3", "x[i : i + 4].mean()", "m[i] * 2", "m[i, 0]", "m[i]", "i * s", "x[2 * i : 2 * i + 3]"
            )
            return f"    {name} = [{item} for i in {source}]"
        return f"    {name} = [{self.item()} for i, r in {source}]"

    def use(self, name: str) -> str:
        return self.pick(
            f"np.array({name})", f"np.array({name})", name, f"{name}[3]", f"len({name})", f"np.mean({name})", f"np.stack({name})",
            f"{name}[2:5]", f"np.concatenate({name})", f"sum(e * 2 for e in {name})", f"max({name})", f"np.vstack({name})",
        )  # fmt: skip

    def function(self, name: str) -> str:
        lines = [f"def {name}(x, m):", "    s, v, w = 0.25, np.zeros(8), np.ones(8)"]
        names = ["a", "b"][: self.random.randint(1, 2)]
        for each in names:
            if self.random.random() < 0.6:
                first = self.pick("", "", "", "", "1.5", "0", "v", "m[0]", "np.ones(8)", "np.float64(2)")
                follows = bool(first) and self.random.random() < 0.7
                lines += [f"    {each} = [{first}]", *self.loop(each, follows)]
            else:
                lines.append(self.comprehension(each))
            if self.random.random() < 0.25:
                lines.append(
                    f"    {self.pick(f'{each}[2][0] = 9', 'x[5] = 7', 'm[3, 1] = -1', 'v[1] = 4', f'{each}.append(1)')}"
                )
        uses = [self.use(self.random.choice(names)) for _ in range(self.random.randint(1, 3))]
        return "\n".join([*lines, f"    return {', '.join([*uses, self.pick('s', 'v', 'w'), 'x', 'm'])}", ""])


def functions(seeds: range, folder: str) -> list[tuple[str, Callable[..., Any]]]:
    """(source, function) of some seeds, from a file in this folder, where their source can be found."""
    sources = [Writer(seed).function(f"f{seed}") for seed in seeds]
    path = pathlib.Path(folder) / f"random_lists_{seeds.start}.py"
    path.write_text("import numpy as np\n\n\n" + "\n\n".join(sources))
    scope: dict[str, Any] = {"np": np, "__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return [(source, scope[f"f{seed}"]) for source, seed in zip(sources, seeds)]


def arguments(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal(60), generator.standard_normal((24, 8))


def outcome(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """What a call gives, the error's type where it raises, and its arguments afterwards."""
    given = copy.deepcopy(given)
    with np.errstate(all="ignore"):
        try:
            return function(*given), given
        except Exception as error:
            return type(error).__name__, given


def difference(function: Callable[..., Any], seed: int) -> str | None:
    """How the accelerated function, whose loops are staged however few operations they have, differs from NumPy's, in words."""
    accelerated = accelerate(function, backend="reference", measure=False)
    for turn in range(2):
        given = arguments(seed + turn)
        with mock.patch.object(sys.modules["fuser.interop.accelerate"], "FEW_OPERATIONS", 4):
            wanted, found = outcome(function, given), outcome(accelerated, given)
        try:
            same(wanted, found, 1e-12)
        except AssertionError as error:
            return f"call {turn}: {error}\n{accelerated.explain()}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        found = functions(range(options.first, options.first + options.count), folder)
        for seed, (source, function) in enumerate(found, options.first):
            if (words := difference(function, seed)) is not None:
                wrong += 1
                print(f"seed {seed}\n{source}\n{words}\n")
    print(f"{options.count} programs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
