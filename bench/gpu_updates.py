"""Programs that change arrays which the caller gives away, for `bench.gpu`: what they write is a small part of what they would copy.

A case: a function of an array module, of the module with `dynamic_update_slice`, of the arrays that are given away and of others, which
gives the former first; and the arrays at the sizes of a dry run or of a GPU. The decode step has a form of torch's, whose caches change in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.types import bfloat16


@dataclass(frozen=True)
class Update:
    """`function(np_, lib)` gives the program of `given`, a list of arrays that are given away, and `others`; `torch_form` the same of tensors."""

    name: str
    function: Callable[[Any, Any], Callable[..., Any]]
    given: list[np.ndarray]
    others: tuple[Any, ...]
    torch_form: Callable[..., Any] | None = None


def cases(dry: bool) -> Iterator[Update]:
    """All cases, the decode step first; also in a dry run arrays are large enough to be written in part."""
    random = np.random.default_rng(0)
    drawn = lambda *shape, dtype=np.float32: (random.standard_normal(shape, np.float32) / 8).astype(dtype)
    layers, batch, positions, heads, features = (1, 2, 512, 4, 32) if dry else (4, 8, 4096, 8, 128)
    width = heads * features
    caches = [drawn(batch, positions, heads, features, dtype=bfloat16) for _ in range(2 * layers)]
    weights = [drawn(width, width, dtype=bfloat16) for _ in range(4 * layers)]
    others = np.int32(positions // 2), drawn(batch, width, dtype=bfloat16), weights
    yield Update("decode step", _decode, caches, others, _torch_decode)
    rows, columns = (512, 130) if dry else (1 << 16, 1 << 10)
    array, row, places = drawn(rows, columns), drawn(columns), random.integers(0, rows, 50).astype(np.int32)
    yield Update("row of an array", lambda np_, lib: lambda x, i, y: [x[0].at[i].set(y)], [array], (np.int32(5), row))
    yield Update("column", lambda np_, lib: lambda x, i: [x[0].at[:, i].multiply(2)], [array], (np.int32(5),))
    yield Update("50 rows", lambda np_, lib: lambda x, i: [x[0].at[i].add(1.5)], [array], (places,))


def _decode(np_: Any, lib: Any) -> Callable[..., Any]:
    """One token through layers of attention to all tokens so far."""

    def step(caches: list[Any], i: Any, x: Any, weights: list[Any]) -> tuple[list[Any], Any]:
        found: list[Any] = []
        for n in range(0, len(caches), 2):
            keys, values = caches[n : n + 2]
            batch, positions, heads, features = keys.shape
            q, k, v, o = weights[2 * n : 2 * n + 4]
            split = lambda y, heads=heads, features=features: y.reshape(y.shape[0], heads, features)
            query, new = split(x @ q), (split(x @ k), split(x @ v))
            keys, values = (
                lib.dynamic_update_slice(c, y[:, None].astype(c.dtype), (0, i, 0, 0))
                for c, y in zip((keys, values), new)
            )
            scores = np_.einsum("bhd,bshd->bhs", query, keys).astype("float32") / features**0.5
            scores = np_.where(np_.arange(positions) <= i, scores, -np_.inf)
            weight = np_.exp(scores - scores.max(-1, keepdims=True))
            weight = (weight / weight.sum(-1, keepdims=True)).astype(x.dtype)
            x = x + np_.einsum("bhs,bshd->bhd", weight, values).reshape(batch, heads * features) @ o
            found += [keys, values]
        return found, x

    return step


def _torch_decode(torch: Any) -> Callable[..., Any]:
    def step(caches: list[Any], i: Any, x: Any, weights: list[Any]) -> tuple[list[Any], Any]:
        for n in range(0, len(caches), 2):
            keys, values = caches[n : n + 2]
            batch, positions, heads, features = keys.shape
            q, k, v, o = weights[2 * n : 2 * n + 4]
            split = lambda y, heads=heads, features=features: y.view(y.shape[0], heads, 1, features)
            keys.index_copy_(1, i, split(x @ k).transpose(1, 2))
            values.index_copy_(1, i, split(x @ v).transpose(1, 2))
            seen = (torch.arange(positions, device=x.device) <= i)[None, None, None]
            attention = torch.nn.functional.scaled_dot_product_attention
            mixed = attention(split(x @ q), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=seen)
            x = x + mixed.reshape(batch, heads * features) @ o
        return caches, x

    return step
