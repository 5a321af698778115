"""Rules of sharding of what runs in libraries: computed part by part along each link, an operation gives what it gives on the whole."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser
from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.family import CALLS
from fuser.parallel.library_links import _RULES
from fuser.parallel.links import Link, links, local_params
from fuser.trace.core import infer, type_of

PRIMITIVES = sorted({*_RULES, *CALLS, conv_general_dilated_p}, key=lambda p: p.name)
UNTRIED = {
    "reduce_window",
    "select_and_gather_add",
    "select_and_scatter_add",
    "schur",
}  # no sample has what could be split


def _equation(primitive: Primitive, arrays: Any, params: dict[str, Any]) -> Eqn:
    avals = tuple(type_of(a) for a in arrays)
    types = infer(primitive, avals, params)
    results = tuple(Var(t) for t in (types if primitive.multiple_results else [types]))
    return Eqn(primitive, tuple(Var(a) for a in avals), params, results, current_source())


def _part(array: Any, number: int, dims: Any, n: int, parts: int) -> Any:
    for d in (d for operand, d in dims if operand == number):
        array = np.split(array, parts, d)[n]
    return array


def _evaluated(primitive: Primitive, arrays: Any, params: dict[str, Any]) -> list[np.ndarray]:
    found = primitive.rule("eval")(*arrays, **params)
    return [np.asarray(f) for f in (found if primitive.multiple_results else [found])]


def _by_parts(eqn: Eqn, link: Link, arrays: Any, parts: int) -> list[np.ndarray]:
    each = []
    for n in range(parts):
        operands = [np.ascontiguousarray(_part(a, i, link.operands, n, parts)) for i, a in enumerate(arrays)]
        shapes = [_part(np.empty(v.aval.shape), i, link.results, n, parts).shape for i, v in enumerate(eqn.outvars)]
        each.append(_evaluated(eqn.primitive, operands, local_params(eqn, [o.shape for o in operands], shapes)))
    if link.reduction == "sum":
        return [np.sum(found, axis=0) for found in zip(*each)]
    along = dict(link.results)
    return [np.concatenate(found, along[i]) for i, found in enumerate(zip(*each))]


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda p: p.name)
def test_parts_make_the_whole(primitive: Primitive) -> None:
    tried = 0
    for arrays, params in itertools.islice(primitive.rule("samples")(), 12):
        if any(a.dtype.itemsize < 4 for a in arrays):
            continue
        eqn = _equation(primitive, arrays, params)
        wanted = _evaluated(primitive, arrays, params)
        for parts in {size for a in arrays for size in a.shape if size > 1}:
            for link in links(eqn, parts):
                tried += 1
                for a, b in zip(_by_parts(eqn, link, arrays, parts), wanted, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert tried or primitive.name in UNTRIED, "no sample has a dimension that can be split"


def _network(lib: Any) -> Any:
    lax, rng = lib.lax, np.random.default_rng(0)
    mesh = mesh_of(lib, data=4, model=2)
    lay = lambda value, *spec: lib.device_put(value.astype(np.float32), lib.NamedSharding(mesh, lib.P(*spec)))
    weights = {
        "first": lay(rng.normal(size=(3, 3, 2, 8)), None, None, None, "model"),
        "depth": lay(rng.normal(size=(3, 3, 1, 8)), None, None, None, "model"),
        "out": lay(rng.normal(size=(3 * 3 * 8, 4))),
    }
    x = lay(rng.normal(size=(8, 6, 6, 2)), "data")
    numbers = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def loss(weights: Any, x: Any) -> Any:
        h = lax.conv_general_dilated(x, weights["first"], (1, 1), "SAME", **numbers)
        h = lax.reduce_window(h, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = lax.conv_general_dilated(h, weights["depth"], (1, 1), "SAME", feature_group_count=8, **numbers)
        return ((h.reshape(8, -1) @ weights["out"]) ** 2).mean()

    return lib.jit(lib.value_and_grad(loss)), (weights, x)


def test_a_convolutional_network_is_divided() -> None:
    (step, args), (of_jax, theirs) = _network(fuser), _network(jax)
    (value, slopes), (wanted, expected) = step(*args), of_jax(*theirs)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for name in slopes:
        np.testing.assert_allclose(slopes[name], expected[name], rtol=1e-3, atol=1e-3)
        assert str(slopes[name].sharding) == str(expected[name].sharding)
    sent = [c.name for c in step.lower(*args).spread.collectives]
    assert sent.count("all_gather") <= 2 and "all_to_all" not in sent, (
        sent
    )  # of features alone, where they are flattened
