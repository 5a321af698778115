"""Generators of random bits beside Threefry: what each makes of the words of its keys, in array operations.

A generator's functions see the words of one key; `vmap` over keys is their batching. Their keys have a dtype of their own,
`key<rbg>`, which no kernel holds: what is drawn is computed from the words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.config import config
from fuser.ir.types import KEY
from fuser.ops import random as R
from fuser.trace.core import bind

THREEFRY = R.IMPLEMENTATION


@dataclass(frozen=True)
class Generator:
    """`seed(integer) -> words`, `split(words, shape) -> (*shape, *key_shape)`, `random_bits(words, bit_width, shape)` and
    `fold_in(words, u32) -> words`; `key_shape` words make a key, and `tag` stands in its dtype."""

    key_shape: tuple[int, ...]
    seed: Callable[[Any], Any]
    split: Callable[[Any, tuple[int, ...]], Any]
    random_bits: Callable[[Any, int, tuple[int, ...]], Any]
    fold_in: Callable[[Any, Any], Any]
    name: str
    tag: str

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its keys."""
        return R.KEY_DTYPES[self.name]


# Threefry's own are primitives; it is here under its name alone.
GENERATORS: dict[str, Generator | None] = {THREEFRY: None}
_of_dtype: dict[np.dtype, Generator] = {}


def register(generator: Generator) -> Generator:
    """Make a generator known by its name. ValueError for a name that is known."""
    R.register_key_dtype(generator.name, generator.tag, generator.key_shape)
    GENERATORS[generator.name] = generator
    _of_dtype[generator.dtype] = generator
    return generator


def generator_of(key: Any) -> Generator | None:
    """The generator that a key belongs to, None for Threefry."""
    return None if key.dtype == KEY else _of_dtype[key.dtype]


def default_name() -> str:
    """The name of the generator of keys that name none."""
    return config.default_prng_impl  # type: ignore[no-any-return]


def words_of(key: Any) -> Any:
    """The words of keys, u32 along the last dimensions."""
    return bind(R.random_unwrap_p, key)


def key_of(words: Any, name: str) -> Any:
    """Keys of a generator from their words."""
    return bind(R.random_wrap_p, words, impl=name)


# Threefry in the two layouts that the setting `threefry_partitionable` chooses from. Off: words are of counters of 32 bits, hashed
# in pairs of the first and the second half, as JAX drew before its version 0.5.


def threefry_split(key: Any, shape: tuple[int, ...]) -> Any:
    """Keys of that shape, made of one key."""
    if config.threefry_partitionable:
        return bind(R.random_split_p, key, shape=shape)
    return key_of(fnp.reshape(_counted(key, 2 * math.prod(shape)), (*shape, 2)), THREEFRY)


def threefry_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    """Unsigned integers of that width and shape, of one key."""
    if config.threefry_partitionable:
        return bind(R.random_bits_p, key, bit_width=bit_width, shape=shape)
    size, dtype = math.prod(shape), np.dtype(f"uint{bit_width}")
    words = _counted(key, -(-bit_width * size // 32))
    if bit_width == 64:
        high, low = (lax.convert_element_type(half, dtype) for half in fnp.split(words, 2))
        words = lax.bitwise_or(lax.shift_left(high, dtype.type(32)), low)
    elif bit_width < 32:
        offsets = np.arange(0, 32, bit_width, dtype=R.WORD)
        words = lax.convert_element_type(fnp.right_shift(words[:, None], offsets), dtype)
    return fnp.reshape(fnp.reshape(words, -1)[:size], shape)


def _counted(key: Any, count: int) -> Any:
    """The words of counters 0 to `count`, which are hashed two at a time; an odd one out is hashed with 0."""
    if count >= 1 << 32:
        raise ValueError(
            f"{count} words are more than a counter of 32 bits has; with the setting threefry_partitionable on it has 64"
        )
    half = -(-count // 2)
    first = lax.iota(R.WORD, half)
    second = lax.add(first, R.WORD.type(half))
    if count % 2:
        second = fnp.where(second == R.WORD.type(count), R.WORD.type(0), second)
    hashed = words_of(bind(R.random_hash_p, fnp.broadcast_to(key, (half,)), first, second))
    return fnp.reshape(hashed.T, (2 * half,))[:count]


# rbg: bits by XLA's generator, which is Philox here; keys are split by Threefry, each half for itself.


def _threefry_halves(words: Any) -> Any:
    return key_of(fnp.reshape(words, (2, 2)), THREEFRY)


def _rbg_seed(seed: Any) -> Any:
    half = words_of(bind(R.random_seed_p, seed))
    return fnp.concatenate([half, half])


def _rbg_split(words: Any, shape: tuple[int, ...]) -> Any:
    halves = _threefry_halves(words)
    return fnp.concatenate([words_of(threefry_split(halves[n], shape)) for n in (0, 1)], -1)


def _rbg_fold_in(words: Any, data: Any) -> Any:
    keys = bind(R.random_fold_in_p, _threefry_halves(words), fnp.broadcast_to(data, (2,)))
    return fnp.reshape(words_of(keys), (4,))


def _rbg_bits(words: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    return lax.rng_bit_generator(words, shape, np.dtype(f"uint{bit_width}"))[1]


def _unsafe_split(words: Any, shape: tuple[int, ...]) -> Any:
    count = math.prod(shape)
    drawn = lax.rng_bit_generator(words, (10 * count, 4))[1]
    return fnp.reshape(lax.slice_in_dim(drawn, 0, 10 * count, 10), (*shape, 4))


def _unsafe_fold_in(words: Any, data: Any) -> Any:
    drawn = lax.rng_bit_generator(_rbg_seed(data), (10, 4))[1]
    return lax.bitwise_xor(words, lax.index_in_dim(drawn, 9, keepdims=False))


register(Generator((4,), _rbg_seed, _rbg_split, _rbg_bits, _rbg_fold_in, "rbg", "rbg"))
register(Generator((4,), _rbg_seed, _unsafe_split, _rbg_bits, _unsafe_fold_in, "unsafe_rbg", "urbg"))
