"""Functions of bytes read from tables: which are, and that their values are those that the elements would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c import BACKEND
from fuser.config import config
from fuser.ir.graph import Graph
from fuser.legalise.tabulation import FEWEST_ELEMENTS, with_tables

SIDE = 150  # of an image with more elements than are fewest


def gathers(graph: Graph) -> list[tuple[int, ...]]:
    """The shapes that are gathered from."""
    return [eqn.invars[0].aval.shape for eqn in graph.eqns if eqn.primitive.name == "gather"]


def tabulated(function: Any, *arguments: Any) -> Graph:
    return with_tables(fuser.jit(function).lower(*arguments).graph, BACKEND.limits.target)


def gamma(image: Any, exponent: Any) -> Any:
    return (255 * (image / 255.0) ** exponent + 0.5).astype(fnp.uint8)


def linear_light(image: Any) -> Any:
    x = image.astype(fnp.float32) / 255
    return fnp.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def of_each(image: Any) -> tuple[Any, ...]:
    x = image.astype(fnp.float32)
    tone = fnp.sqrt(fnp.abs(x)) ** 1.3
    return fnp.sin(tone) ** 2.0 + fnp.tan(x), (tone * fnp.exp(-tone)).sum(1), x + 1, tone * fnp.arange(image.shape[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("function", [linear_light, of_each])
def test_values_are_those_of_the_elements(function: Any, dtype: Any) -> None:
    info = np.iinfo(dtype)
    image = np.random.default_rng(0).integers(info.min, info.max, (SIDE, SIDE), dtype, endpoint=True)
    rows = FEWEST_ELEMENTS // SIDE - 1
    jitted = fuser.jit(function)
    whole, part = jitted(image), jitted(image[:rows])
    for a, b in zip(whole if isinstance(whole, tuple) else (whole,), part if isinstance(part, tuple) else (part,)):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a)[:rows], np.asarray(b))


def test_what_is_tabulated() -> None:
    image = np.zeros((SIDE, SIDE), np.uint8)
    assert gathers(tabulated(linear_light, image)) == [(256,)]
    assert gathers(tabulated(gamma, image, np.float32(0.5))) == [(256,)]
    assert gathers(tabulated(of_each, image)) == [(256,)] * 3  # x + 1 is cheap


def test_what_is_not() -> None:
    image, other = np.zeros((SIDE, SIDE), np.uint8), np.ones((SIDE, SIDE), np.uint8)
    few = np.zeros(FEWEST_ELEMENTS - 1, np.uint8)
    for function, arguments in (
        (linear_light, (few,)),
        (lambda x: x.astype(fnp.float32) / 255, (image,)),
        (lambda x: fnp.where(x > 97, (x - 97 + 3) % 26 + 97, x), (image,)),  # integers have vectors of remainders
        (fnp.sin, (image.astype(np.float32),)),
        (linear_light, (image.astype(np.int16),)),
        (lambda x: fnp.sin(x.astype(fnp.float32)), (image,)),
        (lambda x, y: linear_light(x / 2 - y), (image, other)),
    ):
        assert not gathers(tabulated(function, *arguments))


def test_bytes_that_are_computed() -> None:
    image = np.random.default_rng(1).random((SIDE, SIDE), np.float32)
    function = lambda x: linear_light((x * 255).astype(fnp.uint8).T)
    assert gathers(tabulated(function, image)) == [(256,)]
    with config.using(backend="reference"):
        wanted = np.asarray(fuser.jit(function)(image))
    np.testing.assert_allclose(np.asarray(fuser.jit(function)(image)), wanted, 2e-6)


def test_accelerated() -> None:
    image = np.random.default_rng(2).integers(0, 256, (SIDE, SIDE), np.uint8)
    plain = lambda x, g: (255 * (x / 255.0) ** g + 0.5).astype(np.uint8)
    for exponent in (0.45, 2.2):
        np.testing.assert_array_equal(fuser.accelerate(plain, measure=False)(image, exponent), plain(image, exponent))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        fuser.accelerate(lambda x: np.log(x / 255.0))(image)
