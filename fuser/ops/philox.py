"""`rng_bit_generator`: random bits and the next state, from a state of 128 bits, by the counter-based generator Philox-4x32.

The state's first two words are the key, and with the other two the counter of the first block of four words; bit for bit
what JAX gives on the CPU. Eagerly in NumPy; within programs it is expanded to integer arithmetic, which fuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import UNSIGNED, ArrayType
from fuser.ops import elementwise as E
from fuser.ops import movement
from fuser.ops.conversion import bitcast_convert_type_p
from fuser.ops.family import constant
from fuser.trace.batch import moved

WORD, WIDE = UNSIGNED[2], UNSIGNED[3]
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # what the key grows by from round to round

# (number, multiplier) -> the high and the low word of their product
Product = Callable[[Any, int], tuple[Any, Any]]
Number = Callable[[int], Any]


def _rounds(counter: Sequence[Any], key: Sequence[Any], product: Product, number: Number) -> tuple[Any, ...]:
    """The four words that stand for a counter of four words under a key of two.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    (a, b, c, d), (first, second) = counter, key
    for _ in range(ROUNDS):
        (high_a, low_a), (high_c, low_c) = product(a, MULTIPLIERS[0]), product(c, MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
        first, second = first + number(WEYL[0]), second + number(WEYL[1])
    return a, b, c, d


def _type(key: ArrayType, shape: Any, dtype: Any, algorithm: int = 0) -> tuple[ArrayType, ArrayType]:
    if (key.shape, key.dtype) not in (((4,), WORD), ((2,), WIDE)):
        raise TypeRuleError(f"rng_bit_generator takes a key of type u32[4] or u64[2], got {key}")
    if np.dtype(dtype) not in UNSIGNED:
        raise TypeRuleError(f"rng_bit_generator: unsupported dtype {dtype}; it makes u8, u16, u32 or u64")
    return key.update(weak_type=False), ArrayType(tuple(shape), np.dtype(dtype))


def _blocks(shape: Any, dtype: np.dtype) -> tuple[int, int]:
    """How many numbers, and how many blocks of four words they take; of 64 bits they take two words, else one."""
    count = math.prod(shape)
    return count, -(-count * (2 if dtype == WIDE else 1) // 4)


def _product(x: np.ndarray, multiplier: int) -> tuple[np.ndarray, np.ndarray]:
    both = x.astype(WIDE) * WIDE.type(multiplier)
    return (both >> WIDE.type(32)).astype(WORD), both.astype(WORD)


def _eval(key: np.ndarray, shape: Any, dtype: Any, algorithm: int = 0) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.dtype(dtype)
    count, blocks = _blocks(shape, dtype)
    words = np.ascontiguousarray(key).view(WORD)
    state = np.ascontiguousarray(words[2:]).view(WIDE)
    with np.errstate(over="ignore"):
        low = state + np.arange(blocks, dtype=WIDE)
        high = words[:2].view(WIDE) + (low < state)
        counter = [word for wide in (low, high) for word in (wide.astype(WORD), (wide >> WIDE.type(32)).astype(WORD))]
        found = _rounds(counter, (words[:1], words[1:2]), _product, WORD.type)
        after = np.concatenate([words[:2], (state + WIDE.type(blocks)).view(WORD)])
    drawn = np.ascontiguousarray(np.stack(found, axis=-1))
    bits = drawn.view(WIDE).ravel() if dtype == WIDE else drawn.ravel().astype(dtype)
    return after.view(key.dtype), bits[:count].reshape(tuple(shape))


def _convert(x: Any, dtype: np.dtype) -> Any:
    return E.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)


def _halves(wide: Any) -> tuple[Any, Any]:
    """The low and the high word of numbers of 64 bits."""
    return _convert(wide, WORD), _convert(E.shift_right_logical_p.bind(wide, constant(32, wide)), WORD)


def _joined(low: Any, high: Any) -> Any:
    wide = _convert(high, WIDE)
    return E.or_p.bind(_convert(low, WIDE), E.shift_left_p.bind(wide, constant(32, wide)))


def _expanded_product(x: Any, multiplier: int) -> tuple[Any, Any]:
    wide = _convert(x, WIDE)
    return _halves(E.mul_p.bind(wide, constant(multiplier, wide)))[::-1]


def _expand(key: Any, shape: Any, dtype: Any, algorithm: int = 0) -> list[Any]:
    dtype = np.dtype(dtype)
    count, blocks = _blocks(shape, dtype)
    if key.dtype == WIDE:
        words = movement.reshape_p.bind(bitcast_convert_type_p.bind(key, new_dtype=WORD), new_sizes=(4,))
    else:
        words = key
    parts = [_element(words, n) for n in range(4)]
    state, above = _joined(parts[2], parts[3]), _joined(parts[0], parts[1])
    after = [*parts[:2], *_halves(E.add_p.bind(state, constant(blocks, state)))]
    new = movement.concatenate_p.bind(*(movement.reshape_p.bind(w, new_sizes=(1,)) for w in after), dimension=0)
    if key.dtype == WIDE:
        new = bitcast_convert_type_p.bind(movement.reshape_p.bind(new, new_sizes=(2, 2)), new_dtype=WIDE)
    position = movement.iota_p.bind(dtype=WIDE, shape=(blocks,), dimension=0)
    low = E.add_p.bind(position, state)
    high = E.add_p.bind(_convert(E.lt_p.bind(low, state), WIDE), above)
    number = lambda value: constant(value, parts[0])
    found = _rounds((*_halves(low), *_halves(high)), parts[:2], _expanded_product, number)
    if dtype == WIDE:
        found = (_joined(*found[:2]), _joined(*found[2:]))
    columns = [movement.reshape_p.bind(w, new_sizes=(blocks, 1)) for w in found]
    drawn = movement.concatenate_p.bind(*columns, dimension=1)
    flat = movement.reshape_p.bind(drawn, new_sizes=(blocks * len(columns),))
    bits = movement.slice_p.bind(flat, start_indices=(0,), limit_indices=(count,), strides=None)
    return [new, movement.reshape_p.bind(_convert(bits, dtype), new_sizes=tuple(shape))]


def _element(words: Any, n: int) -> Any:
    part = movement.slice_p.bind(words, start_indices=(n,), limit_indices=(n + 1,), strides=None)
    return movement.reshape_p.bind(part, new_sizes=())


def _batch(operands: Sequence[Any], dims: Sequence[int], **params: Any) -> tuple[list[Any], tuple[int, int]]:
    """The first key of a batch draws for all, and alone is replaced, as in JAX."""
    keys = moved(operands[0], dims[0], 0)
    size = keys.shape[0]
    first = movement.slice_p.bind(keys, start_indices=(0, 0), limit_indices=(1, keys.shape[1]), strides=None)
    key = movement.reshape_p.bind(first, new_sizes=keys.shape[1:])
    shape = (size, *params.pop("shape"))
    new, bits = rng_bit_generator_p.bind(key, shape=shape, **params)
    row = movement.reshape_p.bind(new, new_sizes=first.shape)
    rest = movement.slice_p.bind(keys, start_indices=(1, 0), limit_indices=keys.shape, strides=None)
    return [movement.concatenate_p.bind(row, rest, dimension=0), bits], (0, 0)


def _samples() -> Iterator[tuple[tuple[np.ndarray, ...], dict[str, Any]]]:
    key = np.array([1, 2, 0xFFFFFFFF, 0xFFFFFFFF], WORD)
    for bits in (8, 16, 32, 64):
        yield (key,), {"shape": (3, 7), "dtype": np.dtype(f"uint{bits}"), "algorithm": 0}
    yield (key.view(WIDE),), {"shape": (5,), "dtype": WORD, "algorithm": 2}


rng_bit_generator_p: Primitive = register(
    Primitive(
        "rng_bit_generator",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        eval=_eval,
        expand=_expand,
        jvp=(None,),
        batch=_batch,
        samples=_samples,
    )
)
