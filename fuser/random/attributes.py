"""What arrays of keys have beside other arrays, by JAX's names: `_impl`, their generator, and `_base_array`, their words.

Libraries that store keys or look at their generator read these; for other arrays they raise AttributeError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.types import is_key
from fuser.ops import random as R
from fuser.random.generators import THREEFRY, Generator, generator_of, key_of, threefry_bits, threefry_split, words_of
from fuser.runtime.array import Array, install
from fuser.trace.core import Tracer, bind

_threefry = Generator(
    R.KEY_DTYPES[THREEFRY][0].shape,
    lambda seed: words_of(bind(R.random_seed_p, seed)),
    lambda words, shape: words_of(threefry_split(key_of(words, THREEFRY), shape)),
    lambda words, bit_width, shape: threefry_bits(key_of(words, THREEFRY), bit_width, shape),
    lambda words, data: words_of(bind(R.random_fold_in_p, key_of(words, THREEFRY), data)),
    THREEFRY,
    "fry",
)


def _generator(keys: Any) -> Generator:
    _check(keys, "_impl")
    return generator_of(keys) or _threefry


def _words(keys: Any) -> Any:
    """The words of keys over the same memory; of deleted keys, deleted too."""
    _check(keys, "_base_array")
    if not keys.is_deleted():
        return words_of(keys)
    words = Array(np.empty((*keys.shape, *keys.dtype[0].shape), R.WORD))
    words.delete("it is the words of keys that were deleted")
    return words


def _check(keys: Any, name: str) -> None:
    if not is_key(keys.dtype):
        raise AttributeError(f"{name} is an attribute of arrays of keys, got an array {keys.aval}")


install("_impl", property(_generator))
install("_base_array", property(_words))
Tracer._impl = property(_generator)  # type: ignore[attr-defined]
