"""Random numbers in accelerated functions: NumPy's own generator draws them, at each call, in the order of the function.

A draw whose size and parameters are known does not depend on the program, so it is an input of it: a call draws first, then runs.
Normal, uniform and exponential numbers with computed parameters are standard ones, scaled as NumPy scales them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.interop.impure import DRAWS, Refusing
from fuser.interop.numpy import draws
from fuser.interop.numpy.context import Context, supported, untraceable
from fuser.interop.numpy.dispatch import unwrap, wrap_known
from fuser.interop.numpy.indexing import setitem
from fuser.interop.numpy.traced import TracedArray
from fuser.ir.types import ArrayType
from fuser.trace.core import current

GENERATORS = (np.random.Generator, np.random.RandomState)
DRAW_OUTSIDE = "draw the numbers outside and pass them in"
_GLOBAL: Any = np.random.mtrand._rand  # type: ignore[attr-defined]  # whose methods np.random's functions are
_OTHERS = ("bit_generator", "spawn", "get_state", "set_state")


@dataclass(frozen=True)
class Draw:
    """`generator.method(*args, **kwargs)`, of the generator at a position among the values that a trace's guards return."""

    position: int
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    used: bool = True  # whether the result is an input of the program

    def __call__(self, generator: Any) -> Any:
        found = draws.draw(generator, self.method, self.args, self.kwargs)
        return getattr(generator, self.method)(*self.args, **self.kwargs) if found is None else found


def with_draws(run: Callable[..., Any], draws: Sequence[Draw], first: int, declined: object) -> Callable[..., Any]:
    """`run` with the draws as further inputs; generators stand as before where it does not answer."""
    if not draws:
        return run

    def drawing(arrays: Sequence[Any], leaves: Sequence[Any], captured: Sequence[Any]) -> Any:
        generators = [captured[first + draw.position] for draw in draws]
        states = {id(g): (g, _state(g)) for g in generators}
        answered = False
        try:
            drawn = [(draw, draw(generator)) for draw, generator in zip(draws, generators)]
            result = run([*arrays, *(np.asarray(value) for draw, value in drawn if draw.used)], leaves, captured)
            answered = result is not declined
            return result
        finally:
            if not answered:
                for generator, state in states.values():
                    _restore(generator, state)

    return drawing


def _state(generator: Any) -> Any:
    legacy = isinstance(generator, np.random.RandomState)
    return generator.get_state(legacy=False) if legacy else generator.bit_generator.state


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


class TracedGenerator:
    """What stands for a generator of the caller's in a traced function."""

    def __init__(self, context: Context, generator: Any, position: int, name: str) -> None:
        self._parts = context, generator, position, name

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._parts[1])

    def __getattr__(self, method: str) -> Any:
        _, generator, _, name = self._parts
        if method.startswith("_") or not callable(getattr(generator, method)) or method in _OTHERS:
            raise untraceable(f"{name}.{method} {DRAWS}", DRAW_OUTSIDE)
        special = _SPECIAL.get(method)
        return lambda *args, **kwargs: (special or _drawn)(self, method, *args, **kwargs)


def _drawn(self: TracedGenerator, method: str, *args: Any, **kwargs: Any) -> Any:
    """A draw with known parameters; what it gives is an input of the program."""
    context, generator, position, name = self._parts
    if context.draws is None:
        raise untraceable(f"{name}.{method} {DRAWS}", DRAW_OUTSIDE)
    if any(_is_traced(value) for value in (*args, *kwargs.values())):
        raise untraceable(f"{name}.{method} with computed parameters cannot be traced", DRAW_OUTSIDE)
    args, kwargs = unwrap(args), unwrap(kwargs)
    sample = getattr(copy.deepcopy(generator), method)(*args, **kwargs)
    context.draws.append((Draw(position, method, args, kwargs, sample is not None), None))
    if sample is None:
        return None
    like = np.asarray(sample)
    tracer = current().new_input(ArrayType(like.shape, supported(like.dtype, f"a result of {name}.{method}")))  # type: ignore[attr-defined]
    context.draws[-1] = (context.draws[-1][0], tracer)
    weak = type(sample) if type(sample) in (int, float) else None
    return TracedArray(context, tracer, scalar=not isinstance(sample, np.ndarray), weak=weak)


def _is_traced(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_is_traced(v) for v in value)
    return isinstance(value, TracedArray) and not value.known


def _scaled(standard: str, count: int, parameters: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """A distribution of `count` parameters that NumPy makes of a standard one: `low + scale * standard`."""

    def draw(self: TracedGenerator, method: str, *args: Any, size: Any = None, **kwargs: Any) -> Any:
        size = args[count] if len(args) > count else size
        if not any(_is_traced(value) for value in (*args, *kwargs.values())):
            return _drawn(self, method, *args[:count], size=size, **kwargs)
        low, scale = parameters(*args[:count], **kwargs)
        if size is None:
            size = np.broadcast_shapes(np.shape(low), np.shape(scale)) or None
        return low + scale * _drawn(self, standard, size=size)

    return draw


def _normal(loc: Any = 0.0, scale: Any = 1.0) -> tuple[Any, Any]:
    return loc, scale


def _uniform(low: Any = 0.0, high: Any = 1.0) -> tuple[Any, Any]:
    return low, high - low


def _exponential(scale: Any = 1.0) -> tuple[Any, Any]:
    return 0.0, scale


def _order(self: TracedGenerator, length: int) -> TracedArray:
    """Positions in the order that `shuffle` gives to so many elements."""
    found: TracedArray = _drawn(self, "permutation", length)
    return found


def _shuffle(self: TracedGenerator, method: str, x: Any, axis: int = 0) -> None:
    if not isinstance(x, TracedArray) or axis:
        raise untraceable("rng.shuffle of a list, or along another axis, cannot be traced", "use rng.permutation(x)")
    setitem(x, Ellipsis, x[_order(self, x.shape[0])])  # type: ignore[index]


def _permutation(self: TracedGenerator, method: str, x: Any, axis: int = 0) -> Any:
    if not _is_traced(x):
        return _drawn(self, method, x, *((axis,) if axis else ()))
    if axis:
        raise untraceable("rng.permutation along another axis cannot be traced", "move that axis to the front")
    return x[_order(self, x.shape[0])]


def _choice(self: TracedGenerator, method: str, a: Any, *args: Any, axis: int = 0, **kwargs: Any) -> Any:
    if not _is_traced(a) or not np.ndim(a):
        return _drawn(self, method, a, *args, **kwargs, **({"axis": axis} if axis else {}))
    return np.take(a, _drawn(self, method, a.shape[axis], *args, **kwargs), axis=axis)


def _filling(self: TracedGenerator, method: str, *args: Any, out: Any = None, **kwargs: Any) -> Any:
    if out is None:
        return _drawn(self, method, *args, **kwargs)
    setitem(out, Ellipsis, _drawn(self, method, out.shape, dtype=out.dtype.type, **kwargs))
    return out


_SPECIAL: dict[str, Callable[..., Any]] = {
    "normal": _scaled("standard_normal", 2, _normal),
    "uniform": _scaled("random", 2, _uniform),
    "exponential": _scaled("standard_exponential", 1, _exponential),
    "shuffle": _shuffle,
    "permutation": _permutation,
    "choice": _choice,
    "random": _filling,
    "standard_normal": _filling,
}


class RandomModule:
    """What stands for `np.random`: its functions draw from its own generator, new generators need a seed."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        value = getattr(np.random, name)
        if name in ("default_rng", "RandomState"):
            return lambda seed=None: self._made(name, value, seed)
        of_global = getattr(value, "__self__", None) is _GLOBAL or value is np.random.seed
        if of_global and self._context.outside is not None:
            outside = self._context.outside
            number = outside.held_node(_GLOBAL, "np.random")
            return getattr(stand_in(outside, self._context, _GLOBAL, number, "np.random"), name)
        return value if value in GENERATORS else Refusing(f"np.random.{name}", DRAWS, DRAW_OUTSIDE)

    def _made(self, name: str, make: Callable[..., Any], seed: Any) -> Any:
        if isinstance(seed, (TracedGenerator, KnownGenerator)):
            return seed
        if seed is None or _is_traced(seed):
            return Refusing(f"np.random.{name}", DRAWS, f"give it a seed, or {DRAW_OUTSIDE}")()
        return KnownGenerator(self._context, make(unwrap(seed)))


class KnownGenerator:
    """A generator that the traced function makes with a seed: every call draws the same, so the numbers are constants."""

    def __init__(self, context: Context, generator: Any) -> None:
        self._parts = context, generator

    def __getattr__(self, method: str) -> Any:
        context, generator = self._parts

        def draw(*args: Any, **kwargs: Any) -> Any:
            if any(_is_traced(value) for value in (*args, *kwargs.values())):
                raise untraceable(
                    f"rng.{method} with computed parameters cannot be traced", "make the generator outside"
                )
            return wrap_known(context, getattr(generator, method)(*unwrap(args), **unwrap(kwargs)))

        return draw


def stand_in(outside: Any, context: Context, generator: Any, number: int, name: str) -> Any:
    """What stands for a generator that is reached at a node."""
    from fuser.interop.guards import Test

    outside.require(number, Test.TYPE, type(generator))
    return TracedGenerator(context, generator, outside.hand_over(number), name)
