"""What kernels of the device share: one image for launches that differ in sizes alone, each of which keeps its own."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton.device import code
from fuser.ir.types import ArrayType, bfloat16


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The launches that images were made for, by a driver that runs nothing."""
    numbers, asked = itertools.count(1), list[int]()
    driver = SimpleNamespace(
        cuda_device=lambda: 0, cuda_module=lambda image: next(numbers), cuda_function=lambda *_: next(numbers)
    )

    class Counted(code.Images):
        def __call__(self, source: Any, number: int, passing: code.Passing) -> code.Image:
            asked.append(number)
            launch = source.launch["launches"][number]
            maps = tuple(code.EncodedMap(0, 0, m.block) for m in launch.maps)
            return code.Image(b"", launch.function, 32 * launch.warps, 0, 0, 7 if launch.persistent else 0, maps)

    monkeypatch.setattr(code, "native", driver)
    monkeypatch.setattr(code, "images", Counted())
    monkeypatch.setattr(code, "architecture", lambda: 90)
    monkeypatch.setattr(code, "_known", {})
    return asked


def sources(function: Any, *types: ArrayType) -> list[Any]:
    return list(fuser.jit(function, backend="triton").lower(*types).sources)


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_equal_kernels_share_an_image_and_keep_their_sizes(made: list[int]) -> None:
    of = lambda rows: ArrayType((rows, 256), np.dtype("float32"))
    (few,), (many,) = sources(softmax, of(64)), sources(softmax, of(4096))
    assert few.text == many.text
    first, second = (code.compiled(source, code.Passing()).launches[0] for source in (few, many))
    assert made == [0] and first.function == second.function
    for source, launch in ((few, first), (many, second)):
        (planned,) = source.launch["launches"]
        assert launch.grid == planned.grid and [n for _, n in launch.sizes[:-2]] == list(planned.sizes)
    assert first.grid < second.grid


def test_tensor_maps_and_persistent_programs_are_of_their_own_product(made: list[int]) -> None:
    of = lambda *shape: ArrayType(shape, bfloat16)
    product = lambda a, b: fnp.maximum(a @ b, 0)
    found = [sources(product, of(m, k), of(k, m)) for m, k in ((4096, 4096), (8192, 4096), (2048, 4096))]
    found = [source for (source,) in found if source.launch["launches"][0].maps]
    assert len(found) >= 2
    for source in found:
        (launch,) = code.compiled(source, code.Passing()).launches
        (planned,) = source.launch["launches"]
        assert [n for m in launch.maps for _, n in m.sizes] == [n for m in planned.maps for n in (*m.shape, *m.strides)]
        assert [n for _, n in launch.sizes[:-2]] == list(planned.sizes)
        assert launch.grid == min(planned.grid, 7)
