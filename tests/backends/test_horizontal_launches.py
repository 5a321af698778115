"""Small elementwise kernels that share a launch on GPUs: which do, what they compute, and that they read as wide as alone."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
from fuser.backends.triton import machine_code
from fuser.backends.triton.backend import HORIZONTAL_FORMS, HORIZONTAL_PARAMS
from fuser.backends.triton.horizontal import PARAMETER_BYTES, horizontal, parts_of
from fuser.backends.triton.target import MACHINES
from fuser.runtime.array import Array
from fuser.runtime.core import native
from tests.backends.horizontal_launch_cases import HORIZONTAL, adam
from tests.backends.product_cases import f32
from tests.backends.test_triton import worker

pytestmark = pytest.mark.xdist_group("triton")
SIZES = ((64, 64), (64,), (77, 33), (128, 4), (1,), (1000,))


def types() -> Any:
    return tuple([f32(*shape) for shape in SIZES] for _ in range(4))


def kinds(function: Any, *arguments: Any) -> list[tuple[str, int]]:
    plan = fuser.jit(function, backend="triton").lower(*arguments).plan
    return [(group.kind.value, len(group.parts)) for group in plan.groups]


def test_updates_of_many_arrays_share_launches() -> None:
    assert kinds(adam, *types()) == [("horizontal", len(SIZES))]
    for shapes in ([(64,)] * 100, [(n + 1, 64) for n in range(40)] + [(n + 1,) for n in range(60)]):
        assert kinds(adam, *([f32(*shape) for shape in shapes] for _ in range(4))) == [("horizontal", 100)]


def test_parts_of_one_text_share_its_code() -> None:
    many = [f32(16 * n + 16) for n in range(100)]
    (source,) = fuser.jit(adam, backend="triton").lower(*[many] * 4).sources
    (launch,) = source.launch["launches"]
    assert source.text.count("def k") == 2  # the function, and what finds its arguments
    assert len(launch.buffers) == 700


def test_kernels_that_are_alike_in_nothing_fill_a_launch() -> None:
    function = lambda *arrays: [
        functools.reduce(lambda x, k: x * (k + 2.5), range(n + 1), a) for n, a in enumerate(arrays)
    ]
    found = kinds(function, *[f32(64)] * (2 * HORIZONTAL_FORMS))
    assert found == [("horizontal", HORIZONTAL_FORMS)] * 2


def test_parameters_that_do_not_fit_are_several_launches() -> None:
    group = fuser.jit(adam, backend="triton").lower(*[[f32(64)] * 100] * 4).plan.groups[0]
    parts = parts_of(group)
    _, launches = horizontal(group, parts, lambda kernel: (), 4096)
    assert sorted(n for launch in launches for n in set(launch.buffers)) == list(range(700))
    assert all(8 * len(launch.buffers) + 4 * len(launch.sizes) + 16 <= 4096 for launch in launches)
    assert len(launches) > 1
    assert HORIZONTAL_PARAMS * 8 < PARAMETER_BYTES


def test_large_and_reducing_kernels_are_launched_alone() -> None:
    large = lambda x, y: (x + 1, y + 2)
    assert kinds(large, f32(1 << 27), f32(1 << 27)) == [("elementwise", 0)] * 2
    assert ("reduction", 0) in kinds(lambda x, y: (x.sum(), y + 2), f32(300), f32(100))


@pytest.mark.parametrize("times", [1, 17])
@pytest.mark.parametrize("rate", [1e-3, "array"])
def test_programs_are_one_launch(device: Any, rate: Any, times: int) -> None:
    random = np.random.default_rng(0)
    arrays = [[random.random(shape, np.float32) for shape in times * SIZES] for _ in range(4)]
    put = lambda a: Array(native.device_upload(a))
    placed = fuser.tree_util.tree_map(put, arrays)
    step = 1e-3 if rate != "array" else put(np.full((), 1e-3, np.float32))
    compiled = fuser.jit(adam, backend="triton")
    compiled(*placed, step)
    device.reset()
    found = fuser.tree_util.tree_leaves(compiled(*placed, step))
    assert device.counts()["launches"] == 1
    want = fuser.tree_util.tree_leaves(fuser.jit(adam, backend="c")(*arrays, np.float32(1e-3)))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:90", "cuda:80", "hip:gfx942"])
def test_parts_read_as_wide_as_alone(target: str) -> None:
    same = [f32(4096)] * 4
    same += [f32(4096 * n + 64) for n in range(96)]
    (source,) = fuser.jit(adam, backend="triton").lower(*[same] * 4).sources
    (launch,) = machine_code.of_source(source, 4096, MACHINES[target])
    assert (launch.code.load_bits, launch.code.store_bits, launch.code.spills) == (128, 128, 0)


@pytest.mark.slow
def test_interpreter_agrees_with_the_reference(tmp_path: pathlib.Path) -> None:
    rows = worker("triton_worker", "horizontal", tmp=tmp_path)
    assert {row["case"]: row["error"] for row in rows} == dict.fromkeys(HORIZONTAL, "")
