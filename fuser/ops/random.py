"""Random numbers: keys from seeds, keys from keys, and random bits, by the counter-based generator Threefry-2x32.

A key is one element of dtype `KEY`; inside kernels it is a number of 64 bits, the first word in the low half. Bits and
split keys are functions of a key and of the place in the result, in JAX's partitionable layout: the place is the counter.
So all of it is index arithmetic and integers, which fuse into whatever uses the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.index import Affine, linearise
from fuser.ir.primitive import Fusion, Movement, Primitive, register
from fuser.ir.scalar import Scalar
from fuser.ir.types import INTEGERS, KEY, UNSIGNED, ArrayType, is_key, key_dtype
from fuser.ops.family import SHAPE, batch_elementwise, common_shape, sample
from fuser.runtime.core import native
from fuser.trace.batch import moved

Read = Callable[..., Scalar]
Index = tuple[Affine, ...]

IMPLEMENTATION = "threefry2x32"
KEY_DTYPES = {IMPLEMENTATION: KEY}  # by generator
WORD, WIDE = UNSIGNED[2], UNSIGNED[3]
FEW = 8
BLOCK = 1 << 15  # counters that are hashed at a time in NumPy, so that they stay in the core's own cache


def register_key_dtype(name: str, tag: str, words: tuple[int, ...]) -> None:
    """Give a generator's keys a dtype. ValueError for a name that is taken."""
    if name in KEY_DTYPES:
        raise ValueError(f"a generator named {name!r} is registered already")
    KEY_DTYPES[name] = key_dtype(tag, words)


def keys_of(words: np.ndarray, dtype: np.dtype = KEY) -> np.ndarray:
    """The keys made of the words along the last dimensions, two of them for Threefry."""
    kept = words.ndim - dtype[0].ndim
    flat = np.ascontiguousarray(words, WORD).reshape(*words.shape[:kept], math.prod(dtype[0].shape))
    return flat.view(dtype)[..., 0]


def words_of(keys: np.ndarray) -> np.ndarray:
    """The words of keys, along new last dimensions."""
    keys = np.asarray(keys)
    return keys[keys.dtype.names[0]]  # type: ignore[index]


# In kernels. Numbers above 16 become arguments of a kernel, so a shift by 32 is two by 16.
def _pack(first: Scalar, second: Scalar) -> Scalar:
    high = S.shift_left(S.shift_left(S.cast(second, WIDE), 16), 16)
    return S.bitcast(S.cast(first, WIDE) | high, KEY)


def _unpack(key: Scalar) -> tuple[Scalar, Scalar]:
    if key.op == "bitcast" and key.args[0].op == "or":  # packed in the same kernel
        first, high = key.args[0].args
        return _word(first), _word(high.args[0].args[0])
    both = S.bitcast(key, WIDE)
    return S.cast(both, WORD), S.cast(S.shift_right_logical(S.shift_right_logical(both, 16), 16), WORD)


def _word(wide: Scalar) -> Scalar:
    return wide.args[0] if wide.op == "cast" else S.cast(wide, WORD)


def _counter(index: Index, shape: tuple[int, ...]) -> tuple[Scalar, Scalar]:
    """The position in `shape` as two words, the high one first."""
    position = linearise(index, shape)
    low = S.cast(S.as_scalar(position), WORD)
    if position.bounds[1] < 1 << 32:
        return S.constant(0, WORD), low
    wide = S.shift_right_logical(S.shift_right_logical(S.as_scalar(position), 16), 16)
    return S.cast(wide, WORD), low


def _hash(key: Scalar, count: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
    operands = (*_unpack(key), *count)
    return S.apply("threefry0", *operands), S.apply("threefry1", *operands)


# In NumPy.
def _hashes(keys: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Both words for each position of `shape` under each of the keys, in blocks along the flattened result."""
    words = words_of(keys).reshape(-1, 2)
    size = math.prod(shape)
    total = len(words) * size
    if 0 < total <= FEW and native is None:
        pairs = [_hash_of_ints(words[n // size], n % size) for n in range(total)]
        yield slice(0, total), *np.array(pairs, WORD).T
        return
    if native is not None:
        words = np.ascontiguousarray(words)
        for start in range(0, total, BLOCK):
            first, second = np.empty((2, min(BLOCK, total - start)), WORD)
            native.threefry(words, size, start, first, second)
            yield slice(start, start + BLOCK), first, second
        return
    for start in range(0, total, BLOCK):
        place = np.arange(start, min(start + BLOCK, total), dtype=np.uint64)
        owner, count = (0, place) if len(words) == 1 else np.divmod(place, np.uint64(size))
        high, low = (count >> np.uint64(32)).astype(WORD), count.astype(WORD)
        yield slice(start, start + BLOCK), *S.threefry(words[owner, 0], words[owner, 1], high, low)


def _hash_of_ints(words: np.ndarray, count: int) -> tuple[int, int]:
    """Threefry of a count below 2^32 in Python's integers: for few of them NumPy takes longer to start."""
    k0, k1 = int(words[0]), int(words[1])
    most, keys = 0xFFFFFFFF, (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = k0, (count + k1) & most
    for number, turns in enumerate(S.THREEFRY_TURNS):
        for turn in turns:
            x0 = (x0 + x1) & most
            x1 = ((x1 << turn) & most | x1 >> 32 - turn) ^ x0
        x0 = (x0 + keys[(number + 1) % 3]) & most
        x1 = (x1 + keys[(number + 2) % 3] + number + 1) & most
    return x0, x1


def _only_keys(name: str, aval: ArrayType, any_generator: bool = False) -> None:
    if aval.dtype != KEY and not (any_generator and is_key(aval.dtype)):
        raise TypeRuleError(f"{name} takes an array of keys, got {aval}; make keys with fuser.random.key")


def _leading(primitive: Primitive) -> Callable[..., Any]:
    """The batch rule of what treats leading dimensions of keys alike: a batch is one more of them."""

    def rule(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = operands, dims
        return primitive.bind(moved(x, dim, 0), **params), 0

    return rule


def _random(name: str, *, jvp: Any = (None,), **rules: Any) -> Primitive:
    primitive = register(Primitive(name, jvp=jvp, **rules))
    primitive.batch = _leading(primitive)
    return primitive


def _samples(*cases: tuple[tuple[int, ...], dict[str, Any]]) -> Callable[[], Any]:
    """Keys of a shape, and params."""

    def samples() -> Iterator[tuple[tuple[np.ndarray, ...], dict[str, Any]]]:
        for shape, params in cases:
            words = np.random.default_rng(0).integers(0, 1 << 32, (*shape, 2), WORD)
            yield (keys_of(words),), params

    return samples


# random_bits: shape of keys + shape, of unsigned integers
def _bits_type(keys: ArrayType, bit_width: int, shape: Any) -> ArrayType:
    _only_keys("random_bits", keys)
    if bit_width not in (8, 16, 32, 64):
        raise TypeRuleError(f"random_bits makes numbers of 8, 16, 32 or 64 bits, got {bit_width}")
    return ArrayType((*keys.shape, *shape), np.dtype(f"uint{bit_width}"))


def _bits_eval(keys: np.ndarray, bit_width: int, shape: Any) -> np.ndarray:
    shape = tuple(shape)
    dtype = np.dtype(f"uint{bit_width}")
    if dtype == WORD and native is not None and keys.size * math.prod(shape) > 0:
        first, second = np.empty((2, keys.size * math.prod(shape)), WORD)
        native.threefry(np.ascontiguousarray(words_of(keys)), math.prod(shape), 0, first, second)
        return np.bitwise_xor(first, second, out=first).reshape(keys.shape + shape)
    result = np.empty(keys.size * math.prod(shape), dtype)
    for place, first, second in _hashes(keys, shape):
        if bit_width == 64:
            result[place] = first.astype(dtype) << np.uint64(32) | second
        else:
            result[place] = (first ^ second).astype(dtype)
    return result.reshape(keys.shape + shape)


def _bits_lower(read: Read, index: Index, keys: ArrayType, bit_width: int, shape: Any) -> Scalar:
    first, second = _hash(read(0, index[: keys.ndim]), _counter(index[keys.ndim :], tuple(shape)))
    if bit_width == 64:
        return S.bitcast(_pack(second, first), WIDE)
    return S.cast(first ^ second, np.dtype(f"uint{bit_width}"))


random_bits_p = _random(
    "random_bits",
    fusion=Fusion.MOVEMENT,
    type=_bits_type,
    eval=_bits_eval,
    lower=_bits_lower,
    samples=_samples(
        *(((), {"bit_width": width, "shape": (5, 7)}) for width in (8, 16, 32, 64)),
        ((3,), {"bit_width": 32, "shape": (4,)}),
        ((2, 3), {"bit_width": 32, "shape": ()}),
    ),
)


# random_split: shape of keys + shape, of keys
def _split_type(keys: ArrayType, shape: Any) -> ArrayType:
    _only_keys("random_split", keys)
    return ArrayType((*keys.shape, *shape), KEY)


def _split_eval(keys: np.ndarray, shape: Any) -> np.ndarray:
    words = np.empty((keys.size * math.prod(shape), 2), WORD)
    for place, first, second in _hashes(keys, tuple(shape)):
        words[place, 0], words[place, 1] = first, second
    return keys_of(words).reshape(keys.shape + tuple(shape))


random_split_p = _random(
    "random_split",
    fusion=Fusion.MOVEMENT,
    type=_split_type,
    eval=_split_eval,
    lower=lambda read, index, keys, shape: _pack(
        *_hash(read(0, index[: keys.ndim]), _counter(index[keys.ndim :], tuple(shape)))
    ),
    samples=_samples(((), {"shape": (3,)}), ((2,), {"shape": (3, 2)}), ((2,), {"shape": ()})),
    movement=Movement.DERIVE,
)


# random_fold_in: a key and a number to another key
def _fold_in_type(keys: ArrayType, msgs: ArrayType) -> ArrayType:
    _only_keys("random_fold_in", keys)
    if msgs.dtype != WORD:
        raise TypeRuleError(f"random_fold_in takes numbers of type {ArrayType((), WORD)}, got {msgs}")
    return ArrayType(common_shape("random_fold_in", (keys, msgs)), KEY)


def _fold_in_eval(keys: np.ndarray, msgs: np.ndarray) -> np.ndarray:
    words = words_of(keys)
    if not keys.shape and not msgs.shape:
        return keys_of(np.array(_hash_of_ints(words, int(msgs)), WORD))
    high = np.zeros(np.broadcast_shapes(keys.shape, msgs.shape), WORD)
    return keys_of(np.stack(S.threefry(words[..., 0], words[..., 1], high, msgs + high), axis=-1))


def _fold_in_samples() -> Iterator[tuple[tuple[np.ndarray, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    yield (sample(rng, SHAPE, KEY), sample(rng, SHAPE, WORD)), {}


random_fold_in_p = register(
    Primitive(
        "random_fold_in",
        Fusion.ELEMENTWISE,
        type=_fold_in_type,
        eval=_fold_in_eval,
        lower=lambda key, msg: _pack(*_hash(key, (S.constant(0, WORD), msg))),
        jvp=(None, None),
        samples=_fold_in_samples,
    )
)
random_fold_in_p.batch = batch_elementwise(random_fold_in_p)


# random_hash: a key and a counter of two words, the high one first, to the two words that Threefry makes of them, as a key
def _hash_type(keys: ArrayType, high: ArrayType, low: ArrayType) -> ArrayType:
    _only_keys("random_hash", keys)
    if (high.dtype, low.dtype) != (WORD, WORD):
        raise TypeRuleError(f"random_hash takes counters of type {ArrayType((), WORD)}, got {high} and {low}")
    return ArrayType(common_shape("random_hash", (keys, high, low)), KEY)


def _hash_eval(keys: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    words = words_of(keys)
    zero = np.zeros(np.broadcast_shapes(keys.shape, high.shape, low.shape), WORD)
    return keys_of(np.stack(S.threefry(words[..., 0], words[..., 1], high + zero, low + zero), axis=-1))


def _hash_samples() -> Iterator[tuple[tuple[np.ndarray, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    yield (sample(rng, SHAPE, KEY), sample(rng, SHAPE, WORD), sample(rng, SHAPE, WORD)), {}


random_hash_p = register(
    Primitive(
        "random_hash",
        Fusion.ELEMENTWISE,
        type=_hash_type,
        eval=_hash_eval,
        lower=lambda key, high, low: _pack(*_hash(key, (high, low))),
        jvp=(None, None, None),
        samples=_hash_samples,
    )
)
random_hash_p.batch = batch_elementwise(random_hash_p)


# random_seed: integers to keys
def _seed_type(seeds: ArrayType, impl: str = IMPLEMENTATION) -> ArrayType:
    if seeds.dtype not in INTEGERS:
        raise TypeRuleError(f"PRNG key seed must be an integer; got {seeds}")
    return ArrayType(seeds.shape, KEY)


def _seed_eval(seeds: np.ndarray, impl: str = IMPLEMENTATION) -> np.ndarray:
    wide = seeds.dtype.itemsize == 8
    high = (seeds.view(WIDE) >> np.uint64(32)).astype(WORD) if wide else np.zeros(seeds.shape, WORD)
    return keys_of(np.stack([high, seeds.astype(WORD)], axis=-1))


def _seed_lower(seed: Scalar, impl: str = IMPLEMENTATION) -> Scalar:
    if seed.dtype.itemsize < 8:
        return _pack(S.constant(0, WORD), S.cast(seed, WORD))
    high = S.shift_right_logical(S.shift_right_logical(seed, 16), 16)
    return _pack(S.cast(high, WORD), S.cast(seed, WORD))


random_seed_p = register(
    Primitive(
        "random_seed",
        Fusion.ELEMENTWISE,
        type=_seed_type,
        eval=_seed_eval,
        lower=_seed_lower,
        jvp=(None,),
        samples=lambda: (((sample(np.random.default_rng(0), SHAPE, dtype),), {}) for dtype in INTEGERS),
    )
)
random_seed_p.batch = batch_elementwise(random_seed_p)


# random_wrap and random_unwrap: words of keys along a last dimension of 2
def _wrap_type(words: ArrayType, impl: str = IMPLEMENTATION) -> ArrayType:
    dtype = KEY_DTYPES[impl]
    kept = words.ndim - dtype[0].ndim
    if words.dtype != WORD or kept < 0 or words.shape[kept:] != dtype[0].shape:
        raise TypeRuleError(f"random_wrap takes u32[...,{','.join(map(str, dtype[0].shape))}], got {words}")
    return ArrayType(words.shape[:kept], dtype)


def _wrap_lower(read: Read, index: Index, words: ArrayType, impl: str = IMPLEMENTATION) -> Scalar:
    return _pack(read(0, (*index, Affine.of(0))), read(0, (*index, Affine.of(1))))


random_wrap_p = _random(
    "random_wrap",
    fusion=Fusion.MOVEMENT,
    type=_wrap_type,
    eval=lambda words, impl=IMPLEMENTATION: keys_of(words, KEY_DTYPES[impl]),
    lower=_wrap_lower,
    samples=lambda: (
        ((np.random.default_rng(0).integers(0, 1 << 32, shape, WORD),), {}) for shape in ((2,), (3, 2), (2, 2, 2))
    ),
    movement=Movement.DERIVE,
)


def _unwrap_type(keys: ArrayType) -> ArrayType:
    _only_keys("random_unwrap", keys, any_generator=True)
    return ArrayType((*keys.shape, *keys.dtype[0].shape), WORD)


def _unwrap_lower(read: Read, index: Index, keys: ArrayType) -> Scalar:
    first, second = _unpack(read(0, index[:-1]))
    if not index[-1].terms:
        return second if index[-1].offset else first
    return S.where(S.equal(S.as_scalar(index[-1]), 0), first, second)


random_unwrap_p = _random(
    "random_unwrap",
    fusion=Fusion.MOVEMENT,
    type=_unwrap_type,
    eval=lambda keys: words_of(keys),
    lower=_unwrap_lower,
    samples=_samples(((), {}), ((3,), {}), ((2, 2), {})),
    movement=Movement.DERIVE,
)


# random_clone: the same key, for those who check that keys are used once
random_clone_p = register(
    Primitive(
        "random_clone",
        Fusion.ELEMENTWISE,
        type=lambda keys: keys,
        eval=lambda keys: np.array(keys),
        lower=lambda key: key,
        jvp=(None,),
        samples=lambda: (((sample(np.random.default_rng(0), SHAPE, KEY),), {}),),
    )
)
random_clone_p.batch = batch_elementwise(random_clone_p)
