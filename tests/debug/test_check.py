"""`fuser.check`: right programs pass, and a wrong kernel is found and named, whatever else runs after it."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.config import config
from fuser.debug.check import wide_evaluate


@pytest.fixture(autouse=True)
def backend() -> Any:
    with config.using(backend="c"):
        yield


def data(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def two_steps(x: Any, weights: Any) -> Any:
    return (jnp.tanh(x) @ weights).sum(axis=0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "int32"])
def test_right_programs_pass(dtype: str) -> None:
    x = jnp.asarray(10 * data(30, 20)).astype(dtype)
    report = fuser.check(lambda x: jnp.cumsum(x * x + 3, axis=0) - x.sum(axis=0))(x)
    assert report.ok and report.steps
    assert all(step.type.startswith(("f", "bf", "c", "i")) for step in report.steps)


def test_errors_are_those_of_float64_runs() -> None:
    x, weights = data(64, 32), data(32, 16)
    report = fuser.check(two_steps)(x, weights)
    tanh, product, total = report.steps
    wide = np.tanh(x.astype(np.float64))
    found = np.asarray(fuser.jit(jnp.tanh)(x))
    assert tanh.error == pytest.approx(np.abs(found - wide).max() / np.abs(wide).max())
    assert product.kind == "contraction" and 0 < product.error < 1e-5
    assert total.total > 0 and report.worst in report.steps


def test_a_wrong_kernel_is_named(tmp_path: pathlib.Path) -> None:
    x, weights = data(64, 32), data(32, 16)
    lowered = fuser.jit(two_steps).lower(x, weights)
    name, text = lowered.sources[0].name, lowered.sources[0].text
    assert fuser.check(two_steps)(x, weights).ok
    assert "= tanh_f32(" in text
    (tmp_path / f"{name}.c").write_text(text.replace("= tanh_f32(", "= 1.001f * tanh_f32("))
    with config.using(override=str(tmp_path)):
        wrong = fuser.check(two_steps)(x, weights)
    assert not wrong.ok
    assert wrong.worst is not None and wrong.worst.name == name
    assert wrong.worst.error == pytest.approx(1e-3, rel=0.01)
    after = [step for step in wrong.steps if step.name != name]
    assert all(step.ok for step in after), "later steps are judged by what they were given"
    assert max(step.total for step in after) > 1e-4
    assert f"DIFFERS {name}" in str(wrong) and "test_check.py" in str(wrong)
    assert wrong.to_dict()["ok"] is False


def test_infinities_and_nan_count_only_where_they_differ() -> None:
    x = np.array([1e30, -1e30, np.nan, np.inf, 0.0], np.float32)
    assert fuser.check(lambda x: jnp.log(x * x))(x).ok is False, "x * x overflows in float32 only"
    assert fuser.check(lambda x: x * 1e10)(x).ok, "1e40 is infinite in the result's own dtype"
    assert fuser.check(lambda x: jnp.log(jnp.abs(x)) / x)(x).ok


def test_static_arguments_and_integers() -> None:
    program = fuser.jit(lambda x, axis: x.sum(axis=axis), static_argnums=1)
    assert fuser.check(program)(np.arange(12, dtype=np.int32).reshape(3, 4), 1).ok


def test_wide_evaluation_is_float64() -> None:
    x = data(50)
    graph = fuser.make_jaxpr(lambda x: (jnp.exp(x).astype(jnp.float16) / 3).sum())(x)
    (found,) = wide_evaluate(graph, [x])
    assert found.dtype == np.float64
    assert found == pytest.approx((np.exp(x.astype(np.float64)) / 3).sum(), rel=1e-6)


def test_accelerated_functions() -> None:
    program = fuser.accelerate(lambda x, power, scale: np.exp(-(x**power)) * scale)
    report = fuser.check(program)(data(40, dtype=np.float64), 2, 0.5)
    assert report.ok and [step.type for step in report.steps] == ["f64[40]", "bool[]"]
    assert report.steps[0].allowed < 1e-12
