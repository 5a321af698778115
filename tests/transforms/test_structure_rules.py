"""Derivatives and batching of movement, reductions, prefix scans, products, indexing and sorting, against real JAX.

Each case of `structure_cases` goes through jvp, vjp, the derivative of its vjp, and vmap with the batch dimension of each
operand in several places; on Arrays at once, and jitted for the C backend.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fuser
from tests.transforms.structure_cases import CASES, Case

SIZE = 3
# What JAX itself fails at: the cotangent of a padding value alone.
REFUSED = {("pad", "vjp of operand 1")}


def leaves(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def is_float(x: Any) -> bool:
    return np.dtype(x.dtype).kind == "f"


def rules(lib: Any, name: str, case: Case) -> Iterator[tuple[str, Any]]:
    """What every rule gives for a case; `lib` is jax or fuser."""
    call, operands = case
    rng = np.random.default_rng(zlib.crc32(repr([o.shape for o in operands]).encode()))
    active = [n for n, o in enumerate(operands) if is_float(o)]

    def function(*floats: Any) -> list[Any]:
        full = list(operands)
        for n, x in zip(active, floats):
            full[n] = x
        return [o for o in leaves(call(lib.lax, *full)) if is_float(o)]

    def normal(shape: tuple[int, ...]) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    primals = [lib.numpy.asarray(operands[n]) for n in active]
    shapes = [o.shape for o in lib.eval_shape(function, *primals)] if active else []
    if shapes:
        tangents = [normal(p.shape) for p in primals]
        cotangents = [normal(s) for s in shapes]
        yield "jvp", lib.jvp(function, primals, tangents)
        for n in range(len(active)) if len(active) > 1 else ():
            alone = lambda x, n=n: function(*primals[:n], x, *primals[n + 1 :])
            yield f"jvp of operand {n}", lib.jvp(alone, primals[n : n + 1], tangents[n : n + 1])
            if (name, f"vjp of operand {n}") not in REFUSED:
                yield f"vjp of operand {n}", lib.vjp(alone, primals[n])[1](cotangents)
        back = lambda *xs: lib.vjp(lambda *ys: [o * o for o in function(*ys)], *xs)[1](cotangents)
        yield "vjp", lib.vjp(function, *primals)[1](cotangents)
        yield "jvp of vjp", lib.jvp(back, primals, tangents)
    batches = [np.stack([_variant(rng, o) for _ in range(SIZE)]) for o in operands]
    whole = lambda *xs: leaves(call(lib.lax, *xs))
    for axes in _axes(operands):
        given = [o if a is None else np.moveaxis(b, 0, a) for o, b, a in zip(operands, batches, axes)]
        yield f"vmap over {axes}", lib.vmap(whole, in_axes=axes)(*map(lib.numpy.asarray, given))
    if shapes:
        axes = tuple(0 for _ in active)
        stacked = [lib.numpy.asarray(batches[n]) for n in active]
        over = lambda *xs: lib.vmap(function, in_axes=axes)(*xs)
        many = [normal((SIZE, *s)) for s in shapes]
        yield "vjp of vmap", lib.vjp(over, *stacked)[1](many)
        yield "vmap of vjp", lib.vmap(lambda xs, cts: lib.vjp(function, *xs)[1](cts))(stacked, many)


def _variant(rng: np.random.Generator, operand: np.ndarray) -> np.ndarray:
    """Another array of this kind: floats of the same sort, integers in another order."""
    if operand.dtype.kind == "f" and not np.array_equal(operand, np.rint(operand)):
        return rng.normal(size=operand.shape).astype(operand.dtype)
    if operand.dtype.kind == "i" and not operand.ndim:
        return operand + rng.integers(-1, 2, dtype=operand.dtype)
    return rng.permutation(operand.reshape(-1)).reshape(operand.shape)


def _axes(operands: tuple[np.ndarray, ...]) -> Iterator[tuple[int | None, ...]]:
    yield tuple(0 for _ in operands)
    if any(o.ndim for o in operands):
        yield tuple(o.ndim for o in operands)
    for n, operand in enumerate(operands) if len(operands) > 1 else ():
        yield tuple(operand.ndim // 2 if m == n else None for m in range(len(operands)))


Found = dict[tuple[int, str], Any]


def eager(lib: Any, name: str) -> Found:
    return {(n, what): value for n, case in enumerate(CASES[name]) for what, value in rules(lib, name, case)}


def jitted(lib: Any, name: str, every: int = 1) -> Found:
    """The same of each `every`th case, in one program."""
    names: list[tuple[int, str]] = []

    def program() -> list[Any]:
        cases = list(enumerate(CASES[name]))[::every]
        found = {(n, what): value for n, case in cases for what, value in rules(lib, name, case)}
        names[:] = found
        return list(found.values())

    return dict(zip(names, lib.jit(program)()))


def compiled(lib: Any, name: str) -> Found:
    """In C, where compiling takes its time, of at most four cases."""
    return jitted(lib, name, -(-len(CASES[name]) // 4))


_known: dict[str, Found] = {}


def oracle(name: str) -> Found:
    if name not in _known:
        _known[name] = jitted(jax, name)
    return _known[name]


def flat(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(value)]


@pytest.mark.parametrize("how", [eager, compiled], ids=["eager", "c"])
@pytest.mark.parametrize("name", list(CASES))
def test_rules_agree_with_jax(name: str, how: Callable[..., Found]) -> None:
    wrong = []
    expected = oracle(name)
    for key, value in how(fuser, name).items():
        for x, y in zip(flat(value), flat(expected[key]), strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{name} case {key}"
            if not np.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True):
                wrong.append(f"{name} case {key}:\n{x}\nexpected\n{y}")
    assert not wrong, "\n".join(wrong[:6])
