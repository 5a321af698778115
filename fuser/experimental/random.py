"""Random numbers from a generator with state, a Ref that counts draws, under jax.experimental.random's names."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser import random
from fuser.ref import new_ref
from fuser.tree_util import register_dataclass

__all__ = ["StatefulPRNG", "stateful_rng"]


def _shape(size: Any, *operands: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*map(np.shape, operands))
    return (operator.index(size),) if isinstance(size, (int, np.integer)) else tuple(map(operator.index, size))


@register_dataclass
@dataclass(frozen=True)
class StatefulPRNG:
    """A key and a count of draws, which each draw raises by one; made by `stateful_rng`."""

    _base_key: Any
    _counter: Any

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """A new key, or an array of them; ValueError of a generator that was split and is not mapped over."""
        if self._base_key.shape:
            raise ValueError("cannot operate on split stateful generator: map over it with vmap")
        found = random.fold_in(self._base_key, self._counter[...])
        self._counter[...] = self._counter[...] + 1
        extents = _shape(shape)
        return random.split(found, extents) if extents else found

    def random(self, size: Any = None, dtype: Any = float) -> Any:
        """Floats in [0, 1)."""
        return random.uniform(self.key(), _shape(size), dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: Any = None, *, dtype: Any = float) -> Any:
        """Floats in [low, high)."""
        return random.uniform(self.key(), _shape(size, low, high), dtype, minval=low, maxval=high)

    def normal(self, loc: Any = 0, scale: Any = 1, size: Any = None, *, dtype: Any = float) -> Any:
        """Normal floats of this mean and standard deviation."""
        values = random.normal(self.key(), _shape(size, loc, scale), dtype)
        return (fnp.asarray(loc) + fnp.asarray(scale) * values).astype(dtype)

    def integers(self, low: Any, high: Any = None, size: Any = None, *, dtype: Any = int) -> Any:
        """Integers in [low, high), in [0, low) without `high`."""
        low, high = (0, low) if high is None else (low, high)
        return random.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """An array of independent generators, to be mapped over with vmap."""
        return StatefulPRNG(self.key(num), new_ref(fnp.zeros(num, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """Independent generators."""
        return [StatefulPRNG(key, new_ref(fnp.zeros((), int))) for key in self.key(n_children)]


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator from a seed, an integer or a key; from the system's entropy without one."""
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0]) & 0x7FFFFFFF
    is_key = hasattr(seed, "dtype") and seed.dtype.names is not None
    key = seed if is_key else random.key(seed, impl=impl)
    return StatefulPRNG(key, new_ref(fnp.zeros((), int)))
