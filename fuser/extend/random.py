"""jax.extend.random's names: random generators of one's own, whose keys go wherever keys do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser import random
from fuser.gaps import absent
from fuser.random.generators import GENERATORS, Generator, register

__all__ = [
    "define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry_prng_impl", "unsafe_rbg_prng_impl",
]  # fmt: skip


def define_prng_impl(
    *,
    key_shape: Sequence[int],
    seed: Callable[[Any], Any],
    split: Callable[[Any, tuple[int, ...]], Any],
    random_bits: Callable[[Any, int, tuple[int, ...]], Any],
    fold_in: Callable[[Any, Any], Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> Generator:
    """A generator, to be named as `impl` where keys are made; ValueError for a name that is known.

    Keys are u32 words of shape `key_shape`: `seed(integer) -> words`, `split(words, shape) -> (*shape, *key_shape)`,
    `random_bits(words, bit_width, shape)` and `fold_in(words, u32) -> words`.
    """
    return register(Generator(tuple(key_shape), seed, split, random_bits, fold_in, name, tag))


threefry_prng_impl = "threefry2x32"
rbg_prng_impl = GENERATORS["rbg"]
unsafe_rbg_prng_impl = GENERATORS["unsafe_rbg"]


def random_seed(seeds: Any, impl: Any) -> Any:
    """A key of that generator for a seed, an integer or an array of rank 0."""
    return random.key(seeds, impl=impl)


def seed_with_impl(impl: Any, seed: Any) -> Any:
    """A key of that generator for a seed."""
    return random.key(seed, impl=impl)


__getattr__ = absent(__name__)
