"""Random keys: from seeds, from other keys, and to and from the words that they are made of.

A key is an element of an array of dtype `key<fry>`, or of that of another generator. Functions also take the older form of
a key, uint32 words along a last dimension (2 of them for Threefry), and give back that form to those who came with it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.config import config
from fuser.ir.dim import as_extent
from fuser.ir.names import printable
from fuser.ir.types import ArrayType, is_float, is_inexact, is_integer, is_key
from fuser.lax.values import VALUES, as_value, broadcast_shapes, from_numpy, literal
from fuser.numpy.creation import asarray
from fuser.ops import random as R
from fuser.ops.elementwise import add_p
from fuser.random.generators import GENERATORS, THREEFRY, default_name, generator_of, key_of, threefry_split, words_of
from fuser.trace.core import bind

WORD = R.WORD


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A key made from an integer; `dtype` (or `impl`) may name the generator: "threefry2x32", "rbg" or "unsafe_rbg"."""
    return _seeded("key", seed, _implementation("key", impl, dtype))


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """A key of the older form: an array u32[2], u32[4] of rbg; with the setting `enable_custom_prng` as `key`."""
    found = _seeded("PRNGKey", seed, _implementation("PRNGKey", impl, None))
    return found if config.enable_custom_prng else words_of(found)


def _implementation(name: str, impl: Any, dtype: Any) -> str:
    """The generator's name that the arguments say, or the default one."""
    if dtype is not None and impl is not None:
        raise ValueError(f"Cannot specify both `impl` and `dtype` arguments to fuser.random.{name}")
    wanted = impl if dtype is None else dtype
    if wanted is None:
        return default_name()
    if isinstance(wanted, np.dtype) and is_key(wanted):
        return next(n for n, dtype in R.KEY_DTYPES.items() if dtype == wanted)
    wanted = getattr(wanted, "name", wanted)  # a generator
    if not isinstance(wanted, str):
        raise TypeError(f"unrecognized type {type(wanted)} for specifying PRNG implementation.")
    if wanted not in GENERATORS:
        known = ", ".join(f'"{n}"' for n in GENERATORS)
        raise ValueError(f'unrecognized PRNG implementation "{printable(wanted)}". Did you mean one of: {known}?')
    return wanted


def _seeded(name: str, seed: Any, implementation: str) -> Any:
    if isinstance(getattr(seed, "dtype", None), np.dtype) and is_key(seed.dtype):
        raise TypeError(f"{name} accepts a scalar seed, but was given a PRNG key.")
    if np.ndim(seed):
        raise TypeError(
            f"{name} accepts a scalar seed, but was given an array of shape {np.shape(seed)} != (). "
            "Use fuser.vmap for batching"
        )
    if isinstance(seed, int) and not isinstance(seed, bool):
        wide = np.int64(seed)  # an OverflowError beyond
        value: Any = from_numpy(wide if config.enable_x64 else wide.astype(np.int32))
    else:
        value = as_value(seed, name)
    if not is_integer(value.dtype):
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
    if config.random_seed_offset:
        value = bind(add_p, value, literal(config.random_seed_offset, value.dtype))
    generator = GENERATORS[implementation]
    return bind(R.random_seed_p, value) if generator is None else key_of(generator.seed(value), implementation)


def key_dtype(impl_spec: Any = None) -> np.dtype:
    """The dtype of arrays of keys of a generator."""
    return R.KEY_DTYPES[_implementation("key_dtype", impl_spec, None)]


def typed(name: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """A key as an array of a dtype of keys, and whether it came as words. Raises for what is no single key."""
    wrapped = False
    if not (isinstance(key, VALUES) and is_key(key.dtype)):
        if not isinstance(key, (*VALUES, np.ndarray)):
            raise TypeError(
                f"unexpected PRNG key type {type(key)}: {name} takes a key; make one of a number with fuser.random.key(0), and more of it "
                "with fuser.random.split"
            )
        key, wrapped = wrap_key_data(key), True
        if config.legacy_prng_key != "allow":
            _legacy()
    if not batched and key.ndim:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {key.shape} != (). "
            "Use fuser.vmap for batching."
        )
    return key, wrapped


def _legacy() -> None:
    """A UserWarning or a ValueError for a key of the older form, as the setting `legacy_prng_key` says."""
    text = (
        "Legacy uint32 key array passed as key to jax.random function. Make keys with fuser.random.key, or wrap words with "
        "fuser.random.wrap_key_data"
    )
    if config.legacy_prng_key == "error":
        raise ValueError(text)
    warnings.warn(text, UserWarning, stacklevel=4)


def _as_given(wrapped: bool, key: Any) -> Any:
    return words_of(key) if wrapped else key


def split(key: Any, num: int | Sequence[int] = 2) -> Any:
    """`num` new keys (or an array of keys of the shape `num`), made from one that should not be used again."""
    key, wrapped = typed("split", key)
    return _as_given(wrapped, split_key(key, num))


def split_key(key: Any, num: int | Sequence[int] = 2) -> Any:
    """As `split`, of a key that is known to be one."""
    shape = tuple(as_extent(n) for n in (num if isinstance(num, Sequence) else (num,)))
    generator = generator_of(key)
    if generator is None:
        return threefry_split(key, shape)
    return key_of(generator.split(words_of(key), shape), generator.name)


def fold_in(key: Any, data: Any) -> Any:
    """A new key made of a key and an integer of 32 bits."""
    key, wrapped = typed("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {np.shape(data)} != (). "
            "Use fuser.vmap for batching."
        )
    generator, number = generator_of(key), asarray(data, WORD)
    if generator is None:
        return _as_given(wrapped, bind(R.random_fold_in_p, key, number))
    folded = generator.fold_in(words_of(key), number)
    return folded if wrapped else key_of(folded, generator.name)


def key_data(keys: Any) -> Any:
    """The words of keys: u32 with a last dimension of 2, of 4 for rbg."""
    keys, _ = typed("key_data", keys, batched=True)
    return words_of(keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Keys of the words along the last dimension of a u32 array."""
    implementation = _implementation("wrap_key_data", impl, dtype)
    words, shape = key_bits_array, R.KEY_DTYPES[implementation][0].shape
    kept = np.ndim(words) - len(shape) if isinstance(words, (*VALUES, np.ndarray)) else -1
    expected = f"JAX encountered invalid PRNG key data: expected key data of dtype uint32 with a last dimension of {shape[-1]}, as {implementation} has it"
    if not isinstance(words, (*VALUES, np.ndarray)):
        raise TypeError(f"{expected}, got {type(words).__name__}")
    if words.dtype != WORD or kept < 0 or tuple(words.shape[kept:]) != shape:
        raise TypeError(f"{expected}, got {ArrayType(tuple(words.shape), words.dtype)}")
    return (
        bind(R.random_wrap_p, as_value(words))
        if implementation == THREEFRY
        else key_of(as_value(words), implementation)
    )


def key_impl(keys: Any) -> str:
    """The name of the generator that keys belong to."""
    generator = generator_of(typed("key_impl", keys, batched=True)[0])
    return THREEFRY if generator is None else generator.name


def clone(key: Any) -> Any:
    """The key, for a second use that is meant."""
    key, wrapped = typed("clone", key, batched=True)
    return _as_given(wrapped, bind(R.random_clone_p, key))


# What the distributions' arguments go through.


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape argument, a number standing for one dimension, as a tuple of ints."""
    try:
        found = tuple(as_extent(e) for e in _extents(shape))
    except TypeError:
        raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.") from None
    if any(e < 0 for e in found):
        raise TypeError(f"Shapes must be 1D sequences of integers ≥ 0, got {shape}.")
    return found


def _extents(shape: Any) -> Iterable[Any]:
    try:
        return tuple(shape)
    except TypeError:
        return (shape,)


def check_shape(name: str, shape: tuple[int, ...], *parameters: tuple[int, ...]) -> None:
    """ValueError unless the shapes of parameters broadcast to `shape`."""
    found = broadcast_shapes(shape, *parameters, function=name)
    if found != shape:
        raise ValueError(
            f"{name} parameter shapes must be broadcast-compatible with shape argument, and the result of broadcasting "
            f"the shapes must equal the shape argument, but got result {found} for shape argument {shape}."
        )


def common_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The result's shape: as given, or that to which the parameters broadcast."""
    shapes = [tuple(np.shape(p)) for p in parameters]
    if shape is None:
        return broadcast_shapes(*shapes, function=name)
    found = shape_of(shape)
    check_shape(name, found, *shapes)
    return found


def float_dtype(name: str, dtype: Any) -> np.dtype:
    """The dtype argument of a distribution of real numbers; the default float for None."""
    found = dtypes.requested(float if dtype is None else dtype, name)
    if not is_float(found):
        raise ValueError(f"dtype argument to `{name}` must be a float dtype, got {found.name}")
    return found


def inexact_dtype(name: str, dtype: Any) -> np.dtype:
    """As `float_dtype`, complex numbers allowed."""
    found = dtypes.requested(float if dtype is None else dtype, name)
    if not is_inexact(found):
        raise ValueError(f"dtype argument to `{name}` must be a float or complex dtype, got {found.name}")
    return found


def castable(name: str, dtype: np.dtype, *parameters: Any) -> None:
    """TypePromotionError where a parameter's dtype would be cut to `dtype`."""
    for parameter in parameters:
        found, weak = dtypes.of(parameter)
        if dtypes.result_of((found, weak), (dtype, False))[0] != dtype:
            raise dtypes.TypePromotionError(
                f"In arguments to {name}, cannot safely cast argument of type {found.name} to {dtype.name}"
            )


def count(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
