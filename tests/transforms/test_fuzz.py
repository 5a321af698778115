"""Random programs under random compositions of transforms: eager, reference and C against JAX."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuser
from fuser.config import config
from tests.transforms.compositions import POINT, STEPS, TRANSFORMS, build


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.lists(st.sampled_from(sorted(TRANSFORMS)), min_size=1, max_size=3),
)
def test_compositions_agree_with_jax(steps: list[str], transforms: list[str]) -> None:
    with jax.enable_x64(True), config.using(enable_x64=True):
        expected = np.asarray(jax.jit(build(jax, steps, transforms))(POINT))
        function = build(fuser, steps, transforms)
        found = {
            "eager": function(POINT),
            "reference": fuser.jit(function, backend="reference")(POINT),
            "c": fuser.jit(function, backend="c")(POINT),
        }
    for name, value in found.items():
        size = np.abs(expected).max() + 1
        np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-9, atol=1e-9 * size, err_msg=name)


def _check(steps: list[str], transforms: list[str]) -> None:
    with jax.enable_x64(True), config.using(enable_x64=True):
        expected = np.asarray(jax.jit(build(jax, steps, transforms))(POINT))
        found = fuser.jit(build(fuser, steps, transforms), backend="c")(POINT)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-9 * (np.abs(expected).max() + 1))


def test_a_running_fold_along_the_lanes_of_a_small_loop() -> None:
    _check(["cumsum"], ["scan"])


def test_a_loop_with_one_axis_of_lanes_and_one_in_registers() -> None:
    _check(["where"], ["cond", "vjp", "scan", "jacfwd"])


def test_a_loop_whose_only_lanes_are_those_of_a_repeated_result() -> None:
    _check(["custom", "softmax"], ["scan", "grad"])
