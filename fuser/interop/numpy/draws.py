"""Large draws of NumPy's default generator by a C kernel on all threads: the same stream, bit for bit, and the same state after it.

In: a Generator over PCG64, a method's name and arguments. Out: an ndarray, or None where NumPy is to draw. The layers of NumPy's
ziggurats are learned from NumPy's own functions, which a generator's module exports, and what the kernel draws is compared with
what NumPy draws before it is used.
"""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.c.library import prebuilt
from fuser.errors import ToolchainError
from fuser.runtime import sources, toolchain
from fuser.runtime.memory import empty

FEWEST = 1 << 13  # numbers, below which NumPy draws as soon
COMPARED = 1 << 15  # numbers that are compared before a kernel is used
LAYERS, NOTED, PIECE = 256, 64, 32768  # of draws.c
PIECE_BYTES = 8 * (4 + NOTED + PIECE)  # of its `piece`
_KINDS = {"standard_normal": 0, "standard_exponential": 1, "integers": 2}
_LOW_BITS = (1 << 64) - 1
_SEED = 12345


class _Decoder(ctypes.Structure):
    """draws.c's `decoder`."""

    _fields_ = [
        ("kind", ctypes.c_int64),
        ("function", ctypes.c_void_p),
        ("accepted", ctypes.c_uint64 * LAYERS),
        ("scale", ctypes.c_double * LAYERS),
        ("range", ctypes.c_uint64),
        ("least", ctypes.c_int64),
        ("scaled", ctypes.c_int64),
        ("low", ctypes.c_double),
        ("width", ctypes.c_double),
    ]


def draw(generator: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> np.ndarray | None:
    """`generator.method(*args, **kwargs)`, or None with the generator as it was."""
    if type(generator) is not np.random.Generator or type(generator.bit_generator) is not np.random.PCG64:
        return None
    parameters = _PARAMETERS.get(method)
    if parameters is None:
        return None
    try:
        plan = parameters(*args, **kwargs)
    except TypeError:  # names that the kernel does not serve, or that NumPy will refuse
        return None
    if plan is None or not _is_large(plan[1]) or not _agrees(plan[0]):
        return None
    return _drawn(generator, *plan)


def _is_large(size: Any) -> bool:
    sizes = size if isinstance(size, tuple) else (size,)
    if not all(isinstance(n, numbers.Integral) for n in sizes) or min(map(int, sizes), default=0) < 0:
        return False
    return math.prod(map(int, sizes)) >= FEWEST


def _drawn(generator: Any, standard: str, size: Any, low: float, width: float, scaled: bool) -> np.ndarray:
    shape = tuple(int(n) for n in size) if isinstance(size, tuple) else (int(size),)
    bits = generator.bit_generator
    with bits.lock:
        if standard == "integers":
            return _integers(generator, shape, int(low), int(width))
        state = bits.state
        words = _words(state)
        out = empty(shape, np.dtype(np.float64))
        if standard == "random":
            _function("draw_doubles")(
                _pointer(words),
                ctypes.c_int64(out.size),
                _pointer(out),
                ctypes.c_int64(toolchain.thread_count()),
                ctypes.c_int64(scaled),
                ctypes.c_double(low),
                ctypes.c_double(width),
            )
            used = out.size
        else:
            decoder = _decoder(standard)
            decoder.scaled, decoder.low, decoder.width = scaled, low, width
            used = _decoded(decoder, words, out)
        _advance(words, used)
        state["state"]["state"] = int(words[1]) << 64 | int(words[0])
        bits.state = state
    return out


def _integers(generator: Any, shape: tuple[int, ...], low: int, count: int) -> np.ndarray:
    """Integers from `low` on, `count` different ones."""
    bits = generator.bit_generator
    out = empty(shape, np.dtype(np.int64))
    flat, first = out.reshape(-1), 0
    while bits.state["has_uint32"]:  # half of a word is left, which comes first
        flat[first] = generator.integers(low, low + count)
        first += 1
    state = bits.state
    words = _words(state)
    decoder = _decoder("integers")
    decoder.range, decoder.least = count, low
    used = _decoded(decoder, words, flat[first:])
    _advance(words, (used + 1) // 2)
    state["state"]["state"] = int(words[1]) << 64 | int(words[0])
    state["has_uint32"], state["uinteger"] = used % 2, int(words[2]) >> 32
    bits.state = state
    return out


def _words(state: dict[str, Any]) -> np.ndarray:
    value, step = state["state"]["state"], state["state"]["inc"]
    return np.array([value & _LOW_BITS, value >> 64, step & _LOW_BITS, step >> 64], np.uint64)


def _decoded(decoder: _Decoder, words: np.ndarray, out: np.ndarray) -> int:
    """The words of the stream that `out` took."""
    threads = toolchain.thread_count() if out.size >= 2 * PIECE else 1
    pieces = np.empty(threads * PIECE_BYTES if threads > 1 else 0, np.uint8)
    return int(
        _function("draw")(
            _pointer(words),
            ctypes.byref(decoder),
            ctypes.c_int64(out.size),
            _pointer(out),
            ctypes.c_int64(threads),
            _pointer(pieces),
        )
    )


def _advance(words: np.ndarray, count: int) -> None:
    _function("advance_draws")(_pointer(words), ctypes.c_int64(count))


def _pointer(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


@functools.cache
def _function(name: str) -> Any:
    """A function of draws.c; None where nothing compiles it."""
    try:
        function = prebuilt.function(name) or getattr(_library(), name)
    except ToolchainError:
        return None
    function.restype = ctypes.c_int64 if name == "draw" else None
    return function


@functools.cache
def _library() -> ctypes.CDLL:
    return toolchain.load_shared(toolchain.compile_shared(sources.read("draws.c")).path)


@functools.cache
def _layers(standard: str) -> _Decoder | None:
    """What the kernel knows of a distribution; None where NumPy's module does not export its function."""
    decoder = _Decoder(kind=_KINDS[standard])
    if standard != "integers":
        from numpy.random import _generator

        function = getattr(ctypes.CDLL(_generator.__file__), f"random_{standard}", None)
        if function is None:
            return None
        decoder.function = ctypes.cast(function, ctypes.c_void_p)
        _function("learn_layers")(ctypes.byref(decoder))
    return decoder


def _decoder(standard: str) -> _Decoder:
    """A copy that a call may write its parameters into."""
    layers = _layers(standard)
    assert layers is not None
    return _Decoder.from_buffer_copy(layers)


@functools.cache
def _agrees(standard: str) -> bool:
    """Whether the kernel draws what NumPy does: NumPy may change a stream from one release to the next."""
    if _function("draw") is None or (standard != "random" and _layers(standard) is None):
        return False
    mine, numpys = (np.random.default_rng(_SEED) for _ in range(2))
    arguments: tuple[int, ...] = (0, 1000, COMPARED) if standard == "integers" else (COMPARED,)
    plan = _PARAMETERS[standard](*arguments)
    assert plan is not None
    found, wanted = _drawn(mine, *plan), getattr(numpys, standard)(*arguments)
    return np.array_equal(found, wanted) and mine.bit_generator.state == numpys.bit_generator.state


# What methods make of their arguments: a standard distribution, the size, a first and a second parameter, whether numbers are scaled.
Plan = tuple[str, Any, float, float, bool]


def _is_number(*values: Any) -> bool:
    return all(isinstance(v, numbers.Real) and math.isfinite(v) for v in values)


def _is_scale(value: Any) -> bool:
    return _is_number(value) and math.copysign(1.0, value) > 0


def _standard(name: str) -> Callable[..., Plan | None]:
    def parameters(size: Any = None, dtype: Any = np.float64, method: str = "zig") -> Plan | None:
        return (name, size, 0.0, 1.0, False) if dtype in (np.float64, "d", float) and method == "zig" else None

    return parameters


def _normal(loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Plan | None:
    return ("standard_normal", size, float(loc), float(scale), True) if _is_number(loc) and _is_scale(scale) else None


def _uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Plan | None:
    if not _is_number(low, high) or not 0 <= float(high) - float(low) < math.inf:
        return None
    return "random", size, float(low), float(high) - float(low), True


def _exponential(scale: Any = 1.0, size: Any = None) -> Plan | None:
    return ("standard_exponential", size, 0.0, float(scale), True) if _is_scale(scale) else None


def _bounded(
    low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
) -> Plan | None:
    low, high = (0, low) if high is None else (low, high)
    if dtype not in (np.int64, int) or not all(isinstance(v, numbers.Integral) for v in (low, high)):
        return None
    count = int(high) - int(low) + bool(endpoint)
    fits = 1 < count < 1 << 32 and int(low) >= -(1 << 63) and int(high) < 1 << 63
    return ("integers", size, int(low), count, False) if fits else None


def _chosen(a: Any, size: Any = None) -> Plan | None:
    return _bounded(0, a, size) if isinstance(a, numbers.Integral) else None


_PARAMETERS: dict[str, Callable[..., Plan | None]] = {
    "random": _standard("random"),
    "standard_normal": _standard("standard_normal"),
    "standard_exponential": _standard("standard_exponential"),
    "normal": _normal,
    "uniform": _uniform,
    "exponential": _exponential,
    "integers": _bounded,
    "choice": _chosen,
}
