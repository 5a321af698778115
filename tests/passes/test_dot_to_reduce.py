"""Products that no matrix product makes faster: written out, fused with their neighbours, and right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import passes

RNG = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "pixels and a vector": (lambda a, v: a @ v, (_normal(20, 30, 3), _normal(3)), True),
    "a vector and rows": (lambda a, v: v @ a, (_normal(16, 40), _normal(16)), True),
    "a short sum over two dimensions": (lambda a, m: fnp.tensordot(a, m, 2), (_normal(50, 2, 3), _normal(2, 3)), True),
    "an outer product": (lambda a, b: fnp.outer(a, b), (_normal(30), _normal(40)), True),
    "a long vector": (lambda a, v: a @ v, (_normal(40, 17), _normal(17)), False),
    "a short matrix": (lambda a, b: a @ b, (_normal(40, 3), _normal(3, 3)), False),
    "a batch of vectors": (lambda a, b: fnp.einsum("bij,bj->bi", a, b), (_normal(9, 4, 4), _normal(9, 4)), False),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_which_are_written_out(name: str) -> None:
    function, arrays, written = PRODUCTS[name]
    graph = passes.run(fuser.jit(function).trace(*arrays).graph)
    assert all(eqn.primitive.name != "dot_general" for eqn in graph.eqns) is written
    found = np.asarray(fuser.jit(function)(*arrays))
    expected = np.asarray(fuser.jit(function, backend="reference")(*arrays))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_weighted_mean_and_its_use_are_one_kernel() -> None:
    weights = np.float32([0.3, 0.59, 0.11])

    def contrast(image: Any) -> Any:
        grey = image @ fnp.asarray(weights)
        return (image - grey[..., None]) * 1.4 + grey[..., None]

    image = np.abs(_normal(21, 33, 3))
    jitted = fuser.jit(contrast)
    assert len(jitted.lower(image).plan.groups) == 1
    grey = (image.astype(np.float64) @ weights)[..., None]
    np.testing.assert_allclose(jitted(image), (image - grey) * 1.4 + grey, rtol=1e-5, atol=1e-6)
