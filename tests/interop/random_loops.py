"""Random NumPy functions whose loops and branches depend on values, with views, aliases, writes in place and early exits."""

from __future__ import annotations

import random
from collections.abc import Callable

HELPER = [
    "    def helper(w, low):",
    "        for q in w:",
    "            if q > 0.9:",
    "                return low",
    "            low = 0.9 * low + 0.01 * q",
    "        return low",
]
ARRAYS, SCALARS = ("u", "v", "x"), ("s", "t")


class Writer:
    """Writes one function's source. With `sequences` loops go over arrays too, and ranges between bounds that values decide."""

    def __init__(self, seed: int, sequences: bool = False) -> None:
        self.random, self.sequences = random.Random(seed), sequences
        self.loops = 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def array(self) -> str:
        a, b, s = self.pick(*ARRAYS), self.pick(*ARRAYS), self.pick(*SCALARS)
        return self.pick(
            f"np.tanh({a} + {b})",
            f"0.5 * {a} - 0.3 * {b}",
            f"np.sin({a} * {s})",
            f"{a}.copy()",
            f"np.where({a} > {s}, {a}, 0.9 * {b})",
            f"np.roll({a}, 1)",
            f"{a}[::-1] * 0.7",
            f"np.clip({a}, -1, k)",
        )

    def scalar(self) -> str:
        a, s, t = self.pick(*ARRAYS), self.pick(*SCALARS), self.pick(*SCALARS)
        return self.pick(
            f"np.abs({a}).max()",
            f"{a}.mean()",
            f"0.7 * {s}",
            f"abs({s} - {t})",
            f"{a}[k % 5]",
            f"max({s}, {t})",
            f"float({a}[0])",
            "0.5",
            f"{s} if {s} > {t} else {t}",
        )

    def test(self) -> str:
        s, t, c = self.pick(*SCALARS), self.pick(*SCALARS), self.pick("0.1", "0.3", "0.6")
        a = self.pick(*ARRAYS)
        return self.pick(
            f"{s} > {c}", f"{s} < {t}", f"not {s} > {c}", f"{s} > {c} and {t} < 0.8", f"{a}[0] > {c} or k > 3",
            "k % 3 == 1", f"0.1 < {s} < 0.7", f"{a}.sum() > {c}",
        )  # fmt: skip

    def simple(self) -> str:
        a, b, s, t = self.pick(*ARRAYS), self.pick(*ARRAYS), self.pick(*SCALARS), self.pick(*SCALARS)
        n = self.random.random()
        if n < 0.3:
            return f"{self.pick('u', 'v')} = {self.array()}"
        if n < 0.55:
            return f"{s} = {self.scalar()}"
        return self.pick(
            f"{a}[1:-1] = 0.5 * ({b}[2:] + {b}[:-2])", f"{a} *= 0.9", f"{a}[k % 5] = {s}", f"{a}[{b} > 0.5] = {s}",
            f"{a} += 0.1 * {b}", f"{s} = {t}", "k += 1", "k += 1",
            self.pick("u, v = v, u", f"{self.pick('u', 'v')} = {b}", f"u = {b}[::-1]") if n > 0.9 else f"{a} = {self.array()}",
        )  # fmt: skip

    def block(self, depth: int, indent: str, in_loop: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            n = self.random.random()
            if depth and n < 0.25:
                lines += [f"{indent}if {self.test()}:", *self.block(depth - 1, indent + "    ", in_loop)]
                if self.random.random() < 0.5:
                    lines += [f"{indent}else:", *self.block(depth - 1, indent + "    ", in_loop)]
            elif depth and n < 0.45 and self.loops < 2:
                lines += self.loop(depth, indent)
            else:
                lines.append(indent + self.simple())
        if in_loop and self.random.random() < 0.2:
            lines += [
                f"{indent}if {self.test()}:",
                f"{indent}    {self.pick('break', 'continue', 'return u, s, k', 'break')}",
            ]
        return lines

    def loop(self, depth: int, indent: str) -> list[str]:
        self.loops += 1
        counter = f"n{self.loops}"
        inner = indent + "    "
        if self.sequences and self.random.random() < 0.6:
            return [*self.over_sequence(indent, counter), *self.block(depth - 1, inner, True)]
        if self.random.random() < 0.5:
            head = [f"{indent}for {counter} in range({self.pick('4', '19', '1, 24, 2')}):"]
            return head + self.block(depth - 1, inner, True)
        limit = self.pick("5", "20")
        head = [
            f"{indent}{counter} = 0",
            f"{indent}while ({self.test()}) and {counter} < {limit}:",
            f"{inner}{counter} += 1",
        ]
        return head + self.block(depth - 1, inner, True)

    def over_sequence(self, indent: str, counter: str) -> list[str]:
        a, b, s, item = self.pick(*ARRAYS), self.pick(*ARRAYS), self.pick(*SCALARS), f"i{counter}"
        head = self.pick(
            f"{item} in {a}", f"{counter}, {item} in enumerate({a})", f"{item}, _ in zip({a}, {b})", f"{item} in reversed({a})",
            f"{counter}, ({item}, _) in enumerate(zip(range(2, 40), {b}))", f"{item} in range(k % 6)", f"{item} in range(2, k + 3)",
            f"{item} in range(int(10 * {s}) % 7, -1, -2)",
        )  # fmt: skip
        use = self.pick(
            f"{s} = 0.5 * {s} + 0.01 * {item}", f"u[k % 5] = 0.1 * {item}", f"{s} = helper({a}, {s}) + 0 * {item}"
        )
        return [f"{indent}for {head}:", f"{indent}    {use}"]

    def function(self, name: str) -> str:
        v, t = self.pick("y", "2 * y", "2 * y"), self.pick("0.4", "tolerance / 2")
        lines = [
            f"def {name}(x, y, tolerance):",
            *(HELPER if self.sequences else []),
            f"    u, v, s, t, k = x.copy(), {v}, tolerance, {t}, 0",
        ]
        lines += self.block(1, "    ", False) + self.loop(2, "    ") + self.block(1, "    ", False)
        return "\n".join([*lines, f"    return {self.pick('u, v, s, k', 'u, s', 'u + v, t * 1.0, k', 'v, t')}", ""])


def functions(seeds: range, folder: str, sequences: bool = False) -> list[Callable[..., object]]:
    """The functions of some seeds, from a file in this folder, where their source can be found."""
    import pathlib

    import numpy as np

    text = "import numpy as np\n\n\n" + "\n\n".join(Writer(seed, sequences).function(f"f{seed}") for seed in seeds)
    path = pathlib.Path(folder) / f"random_loops_{seeds.start}{'_sequences' * sequences}.py"
    path.write_text(text)
    scope: dict[str, object] = {"np": np, "__name__": path.stem}
    exec(compile(text, str(path), "exec"), scope)
    return [scope[f"f{seed}"] for seed in seeds]  # type: ignore[misc]
