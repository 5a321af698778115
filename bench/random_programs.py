"""Random programs as people write them with NumPy's names, drawn by a seed: the same for every library that has the names.

In: a seed. Out: a function of a library's `numpy` and of arrays, the arrays, and a line a step that says what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Step = Callable[[Any, list[Any]], Any]

SHAPES = ((400, 300), (2_000, 64), (64, 2_000), (120, 90, 30), (1_000, 1_000), (30, 40, 50), (3_000, 8), (512, 512))
MOST = 4_000_000  # elements of a value


@dataclass(frozen=True)
class RandomProgram:
    """`function(numpy, *arrays)` gives a tuple of arrays."""

    seed: int
    function: Callable[..., tuple[Any, ...]]
    arguments: tuple[np.ndarray, ...]
    steps: tuple[str, ...]


def draw(seed: int) -> RandomProgram:
    """The program of a seed: four to fourteen steps on arrays of one shape, and those that they lead to."""
    random = np.random.default_rng(seed)
    shape = SHAPES[random.integers(len(SHAPES))]
    arguments = tuple(random.standard_normal(s).astype(np.float32) for s in (shape, shape, shape[-1:]))
    drawing = _Drawing(random, [a.shape for a in arguments])
    for _ in range(random.integers(4, 15)):
        drawing.step()
    return RandomProgram(seed, drawing.function(), arguments, tuple(text for text, _ in drawing.steps))


class _Drawing:
    """Values by number, with their shapes; each step makes one more."""

    def __init__(self, random: np.random.Generator, shapes: list[tuple[int, ...]]) -> None:
        self.random, self.shapes = random, list(shapes)
        self.first = len(shapes)
        self.steps: list[tuple[str, Step]] = []

    def step(self) -> None:
        kinds = (
            self.unary,
            self.binary,
            self.binary,
            self.normalised,
            self.reduced,
            self.moved,
            self.shifted,
            self.joined,
            self.running,
            self.outer,
            self.chosen,
            self.gathered,
        )
        kinds[self.random.integers(len(kinds))]()

    def function(self) -> Callable[..., tuple[Any, ...]]:
        steps, unread = list(self.steps), self._unread()

        def program(xnp: Any, *arrays: Any) -> tuple[Any, ...]:
            values = list(arrays)
            for _, step in steps:
                values.append(step(xnp, values))
            return tuple(values[n] for n in unread)

        return program

    def _unread(self) -> list[int]:
        return [n for n in range(self.first, len(self.shapes)) if n not in self.read] or [len(self.shapes) - 1]

    @property
    def read(self) -> set[int]:
        return {
            int(word[1:]) for text, _ in self.steps for word in text.split() if word[0] == "v" and word[1:].isdigit()
        }

    # What steps are made of.

    def _pick(self, least: int = 1) -> int:
        """A value, a late one rather than an early one."""
        found = [n for n, s in enumerate(self.shapes) if len(s) >= least]
        weights = np.arange(1, len(found) + 1, dtype=float)
        return int(self.random.choice(found, p=weights / weights.sum()))

    def _partner(self, number: int) -> int:
        """Another value that broadcasts with it to a shape that is not too large."""
        shape = self.shapes[number]
        fitting = [n for n, s in enumerate(self.shapes) if _broadcast(shape, s) is not None]
        return int(self.random.choice(fitting))

    def _add(self, text: str, shape: tuple[int, ...], step: Step) -> None:
        self.steps.append((text, step))
        self.shapes.append(shape)

    # Kinds of steps.

    def unary(self) -> None:
        n = self._pick()
        name = self.random.choice(["tanh", "sin", "exp", "abs", "square", "sqrt", "log1p", "negative", "floor"])
        safe = name in ("sqrt", "log1p")
        if name == "exp":
            self._add(f"exp clip v{n}", self.shapes[n], lambda xnp, v: xnp.exp(xnp.clip(v[n], -5, 5)))
        else:
            self._add(
                f"{name} v{n}", self.shapes[n], lambda xnp, v: getattr(xnp, name)(xnp.abs(v[n]) if safe else v[n])
            )

    def binary(self) -> None:
        a = self._pick()
        b = self._partner(a)
        name = self.random.choice(["add", "subtract", "multiply", "maximum", "minimum", "divide"])
        shape = _broadcast(self.shapes[a], self.shapes[b])
        assert shape is not None
        if name == "divide":
            self._add(f"divide v{a} v{b}", shape, lambda xnp, v: v[a] / (1 + xnp.abs(v[b])))
        else:
            self._add(f"{name} v{a} v{b}", shape, lambda xnp, v: getattr(xnp, name)(v[a], v[b]))

    def normalised(self) -> None:
        n = self._pick()
        axis = int(self.random.integers(len(self.shapes[n])))
        name = self.random.choice(["sum", "max", "mean"])
        self._add(
            f"v{n} - {name} axis {axis}",
            self.shapes[n],
            lambda xnp, v: v[n] - getattr(xnp, name)(v[n], axis=axis, keepdims=True) * 0.5,
        )

    def reduced(self) -> None:
        n = self._pick(2)
        axis = int(self.random.integers(len(self.shapes[n])))
        name = self.random.choice(["sum", "max", "mean", "min", "prod", "argmax", "var"])
        shape = tuple(e for d, e in enumerate(self.shapes[n]) if d != axis)
        if name == "prod":
            step: Step = lambda xnp, v: xnp.prod(xnp.tanh(v[n]) + 0.5, axis=axis)
        elif name == "argmax":
            step = lambda xnp, v: xnp.argmax(v[n], axis=axis).astype("float32")
        else:
            step = lambda xnp, v: getattr(xnp, name)(v[n], axis=axis)
        self._add(f"{name} v{n} axis {axis}", shape, step)

    def moved(self) -> None:
        n = self._pick(2)
        order = tuple(int(d) for d in self.random.permutation(len(self.shapes[n])))
        shape = tuple(self.shapes[n][d] for d in order)
        if self.random.integers(3) == 0:
            flat = (int(np.prod(shape[:2])), *shape[2:]) if len(shape) > 2 else (shape[0] * shape[1],)
            self._add(
                f"transpose v{n} {order}, flat", flat, lambda xnp, v: xnp.reshape(xnp.transpose(v[n], order), flat)
            )
        else:
            self._add(f"transpose v{n} {order}", shape, lambda xnp, v: xnp.transpose(v[n], order))

    def shifted(self) -> None:
        n = self._pick()
        axis = int(self.random.integers(len(self.shapes[n])))
        by = int(self.random.integers(1, 4))
        kind = self.random.choice(["roll", "reverse", "stencil", "diff"])
        shape = list(self.shapes[n])
        if kind == "diff" and shape[axis] > 2:
            shape[axis] -= 1
            self._add(f"diff v{n} axis {axis}", tuple(shape), lambda xnp, v: xnp.diff(v[n], axis=axis))
        elif kind == "reverse":
            self._add(f"flip v{n} axis {axis}", tuple(shape), lambda xnp, v: xnp.flip(v[n], axis))
        elif kind == "stencil":
            self._add(
                f"stencil v{n} axis {axis}",
                tuple(shape),
                lambda xnp, v: v[n] * 0.5 + 0.25 * (xnp.roll(v[n], by, axis) + xnp.roll(v[n], -by, axis)),
            )
        else:
            self._add(f"roll v{n} {by} axis {axis}", tuple(shape), lambda xnp, v: xnp.roll(v[n], by, axis))

    def joined(self) -> None:
        a = self._pick()
        alike = [n for n, s in enumerate(self.shapes) if s == self.shapes[a]]
        b = int(self.random.choice(alike))
        axis = int(self.random.integers(len(self.shapes[a])))
        shape = list(self.shapes[a])
        shape[axis] *= 2
        if np.prod(shape) > MOST:
            return self.unary()
        self._add(
            f"concatenate v{a} v{b} axis {axis}", tuple(shape), lambda xnp, v: xnp.concatenate([v[a], v[b]], axis)
        )
        return None

    def running(self) -> None:
        n = self._pick()
        axis = int(self.random.integers(len(self.shapes[n])))
        self._add(f"cumsum v{n} axis {axis}", self.shapes[n], lambda xnp, v: xnp.cumsum(v[n] * 0.01, axis=axis))

    def outer(self) -> None:
        lines = [n for n, s in enumerate(self.shapes) if len(s) == 1 and s[0] <= 2_000]
        if not lines:
            return self.unary()
        a, b = (int(x) for x in self.random.choice(lines, 2))
        shape = (self.shapes[a][0], self.shapes[b][0])
        self._add(f"outer v{a} v{b}", shape, lambda xnp, v: xnp.sin(v[a])[:, None] * v[b][None, :])
        return None

    def chosen(self) -> None:
        a = self._pick()
        b = self._partner(a)
        shape = _broadcast(self.shapes[a], self.shapes[b])
        assert shape is not None
        self._add(f"where v{a} v{b}", shape, lambda xnp, v: xnp.where(v[a] > 0, v[a] * 0.5, v[b]))

    def gathered(self) -> None:
        n = self._pick()
        extent = self.shapes[n][0]
        rows = self.random.integers(0, extent, max(extent // 2, 1)).astype(np.int32)
        self._add(f"take v{n}", (len(rows), *self.shapes[n][1:]), lambda xnp, v: v[n][xnp.asarray(rows)])


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return shape if np.prod(shape) <= MOST else None
