"""Kernels of products without a GPU: their form by size, the stand-in's answers, and machine code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import machine_code
from fuser.backends.triton.aot import compile_ahead, disassembled, fitted, mappable
from fuser.backends.triton.product_cost import UNSURE, Division, Extents, candidates, choose, library_seconds
from fuser.backends.triton.target import MACHINES
from fuser.kernel.schedule import Schedule
from fuser.lax import DotAlgorithmPreset, Precision
from fuser.partition.group import Kind
from fuser.runtime.array import Array
from fuser.runtime.core import native
from tests.backends.product_cases import PRODUCTS, SCHEDULES, biased, dequantised, f32, of

pytestmark = pytest.mark.xdist_group("triton")


def sources(function: Callable[..., Any], *types: Any) -> Any:
    return fuser.jit(function, backend="triton").lower(*types).sources


def launches(function: Callable[..., Any], *types: Any) -> Any:
    (source,) = sources(function, *types)
    return source.launch["launches"]


@pytest.mark.parametrize("name", PRODUCTS)
def test_tensor_maps_are_made_of_arguments_and_lie_within_them(device: Any, name: str) -> None:
    function, types = PRODUCTS[name]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(t.shape, np.float32).astype(t.dtype) for t in types]
    placed = [Array(native.device_upload(a)) for a in arrays]
    device.reset()
    found = fuser.jit(function, backend="triton", schedule=SCHEDULES.get(name))(*placed)
    want = np.asarray(fuser.jit(function, backend="c")(*arrays)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(found).astype(np.float32), want, 2e-2, 2e-2)
    assert device.counts()["launches"] == (2 if "parts" in name else 1)


def test_arrays_whose_rows_are_multiples_of_16_bytes_apart_come_by_tensor_maps() -> None:
    maps = {name: len(launches(function, *types)[0].maps) for name, (function, types) in PRODUCTS.items()}
    assert maps == {
        **dict.fromkeys(PRODUCTS, 2),
        "one by a tensor map": 1,
        "by pointers": 0,
        "8 bits by pointers": 0,
        "int8 by pointers": 0,
        "uint8 by pointers": 0,
        "int8 quantised within": 1,
        "slices that begin anywhere": 1,
        "gathered rows": 1,
        "float32": 0,
        "float32 rounded to TF32": 0,
        "parts of a long axis in float32": 0,
        "parts of an odd axis": 1,
    }


def test_a_launch_has_a_form_without_tensor_maps_for_gpus_and_addresses_without() -> None:
    (source,) = sources(biased, of("float16", 64, 64), of("float16", 64, 64), of("float16", 64))
    (planned,) = source.launch["launches"]
    assert planned.maps and planned.persistent and not planned.plain.maps
    assert mappable(planned) and not mappable(planned, loose={0}) and not mappable(planned, values={1})
    assert not fitted(source, planned, "cuda", 80)[0].maps
    assert not fitted(source, planned, "cuda", 90, loose={1})[0].maps
    assert fitted(source, planned, "cuda", 90)[0].maps


def test_results_of_few_blocks_share_out_the_contracted_axis() -> None:
    parts, sums = launches(biased, of("bfloat16", 16, 8192), of("bfloat16", 8192, 1024), of("bfloat16", 1024))
    assert parts.grid == 8 * 1024 // parts.constants["N_BLOCK"] and parts.function != sums.function
    parts, sums = launches(lambda x, w: (x.T @ w) / 3, f32(100_000, 16), f32(100_000, 8))
    assert (
        parts.grid > 100 and parts.function != sums.function
    )  # a library would take five times as long by the estimate
    assert len(launches(biased, of("bfloat16", 4096, 1024), of("bfloat16", 1024, 4096), of("bfloat16", 4096))) == 1


def test_blocks_that_do_not_fill_the_last_round_are_shared_out_by_streams() -> None:
    square = lambda n, k: (of("bfloat16", n, k), of("bfloat16", k, n), of("bfloat16", n))
    parts, sums = launches(biased, *square(3072, 4096))
    tile, units = parts.constants["M_BLOCK"] * parts.constants["N_BLOCK"], MACHINES["cuda:90"].units
    blocks = 3072 * 3072 // tile
    shared = blocks % units
    assert parts.grid == blocks - shared + 2 * units and sums.grid * 16 * 64 == shared * tile
    assert len(launches(biased, *square(4096, 4096))) == 1


@pytest.mark.parametrize("blocks", [1, 7, 60, 131, 133, 200, 1000])
@pytest.mark.parametrize("steps", [1, 5, 16, 47, 64])
def test_streams_take_each_step_once_and_none_more_than_a_block_has(blocks: int, steps: int) -> None:
    division = Division(blocks - blocks % 132, blocks % 132, steps, 132)
    taken = []
    for item in range(division.whole, division.items):
        piece, stream = divmod(item - division.whole, division.streams)
        begin = stream * division.share
        end = min(begin + division.share, division.shared * steps)
        own = begin // steps + piece if steps else 0
        taken += range(max(begin, own * steps), min(end, (own + 1) * steps))
    assert sorted(taken) == list(range(division.shared * steps)) and division.share <= steps
    assert division.longest(132) <= -(-blocks // 132) * steps
    assert division.written <= division.streams * division.pieces


def test_what_operands_are_computed_of_joins_a_product_where_storing_them_takes_longer() -> None:
    def groups(function: Any, *types: Any) -> list[str]:
        plan = fuser.jit(function, backend="triton").lower(*types).plan
        assert all("computing its operands 128 times costs" in d.reason for d in plan.decisions)
        return [group.kind.value for group in plan.groups]

    dequantised = lambda x, w, s: x @ (w.astype("bfloat16") * s) + 1
    for m, expected in ((16, ["contraction"]), (16384, ["elementwise", "contraction"])):
        types = of("bfloat16", m, 1024), of("int8", 1024, 1024), of("bfloat16", 1024)
        assert groups(dequantised, *types) == expected
    assert groups(lambda x, rows, w: x[rows] @ w, *PRODUCTS["gathered rows"][1]) == ["contraction"]


def test_tf32_is_used_where_it_is_asked_for() -> None:
    x, w = of("float32", 4096, 1024), of("float32", 1024, 4096)
    multiplied = lambda precision: lambda x, w: fnp.tanh(fnp.matmul(x, w, precision=precision))
    text = lambda function: next((s.text for s in sources(function, x, w) if "tl.dot" in s.text), "")
    for asked in ("tensorfloat32", Precision.HIGH, (Precision.HIGH, Precision.HIGH), DotAlgorithmPreset.TF32_TF32_F32):
        assert 'input_precision="tf32"' in text(multiplied(asked))
    for exact in (None, "highest", "float32", Precision.DEFAULT, (Precision.HIGH, Precision.HIGHEST)):
        assert "tf32" not in text(multiplied(exact))
    with fuser.default_matmul_precision("tensorfloat32"):
        assert 'input_precision="tf32"' in text(lambda x, w: fnp.tanh(x @ w))
        backward = sources(lambda x, w: fuser.grad(lambda w: (fnp.tanh(x @ w) ** 2).sum())(w), x, w)
        assert [s.text.count('input_precision="tf32"') > 0 for s in backward if "tl.dot" in s.text] == [True, True]


def test_a_degree_of_precision_keeps_no_product_out_of_a_kernel() -> None:
    short = of("float32", 4096, 16), of("float32", 16, 4096)
    for precision in (None, "highest", Precision.DEFAULT):
        (source,) = sources(lambda x, w, p=precision: fnp.tanh(fnp.matmul(x, w, precision=p)), *short)
        assert 'input_precision="ieee"' in source.text
    other = lambda x, w: fnp.tanh(fnp.matmul(x, w, precision=DotAlgorithmPreset.BF16_BF16_F32))
    assert all("tl.dot" not in source.text for source in sources(other, *short))


def test_estimates_of_products() -> None:
    large = Extents(1, 8192, 8192, 8192, 2, 2)
    assert (choose(large).tile.m, choose(large).tile.n, choose(large).splits) == (128, 256, 1)
    assert library_seconds(large) < choose(large).seconds < 1.2 * library_seconds(large)
    few = choose(replace(large, m=16, n=1024))
    assert few.tile.m == 16 and few.splits > 1
    times = [choose(replace(large, k=k)).seconds for k in (64, 256, 1024, 4096)]
    assert times == sorted(times)
    assert all(UNSURE * c.seconds >= choose(large).seconds for c in candidates(large))
    assert choose(replace(large, m=2560, n=2560)).streams == MACHINES["cuda:90"].units


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:90", "cuda:100", "cuda:80", "hip:gfx942"])
def test_products_run_on_matrix_units_by_tensor_maps_and_spill_nothing(target: str) -> None:
    sizes = ((4096, 1024, 4096), (16, 4096, 4096), (512, 512, 512), (1536, 4096, 1536))
    forms = [(biased, (of("bfloat16", m, k), of("bfloat16", k, n), of("bfloat16", n))) for m, k, n in sizes]
    forms += [
        PRODUCTS[name] for name in ("dequantised weights", "narrowed operand", "heads", "scaled and shifted rows")
    ]
    forms += [PRODUCTS[name] for name in ("8 bits with scales", "int8 with scales", "uint8 with scales")]
    forms += [(dequantised, scaled("int8", 2048, 1024, 4096)), (dequantised, scaled("uint8", 2048, 4096, 1536))]
    rounded = lambda x, w: fnp.tanh(fnp.matmul(x, w, precision="tensorfloat32"))
    forms += [(rounded, (of("float32", 2048, 512), of("float32", 512, 2048)))]
    for function, types in forms:
        (source,) = sources(function, *types)
        first, *_ = machine_code.of_source(source, 1, MACHINES[target])
        assert first.code.matrix_units and first.code.spills == 0
        assert first.code.tensor_maps == (function is not rounded and target in ("cuda:90", "cuda:100"))


def scaled(dtype: str, m: int, k: int, n: int) -> tuple[Any, ...]:
    """The arguments of `dequantised`."""
    return of(dtype, m, k), of(dtype, k, n), f32(n), f32(n)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("k", [3, 90, 128, 4100, 131_072])
def test_products_of_bytes_wrap_around_in_one_kernel(device: Any, dtype: str, k: int) -> None:
    random, bounds = np.random.default_rng(0), np.iinfo(dtype)
    x, w = (random.integers(bounds.min, bounds.max + 1, shape).astype(dtype) for shape in ((5, k), (k, 18)))
    x[0] = w[:, 0] = max(bounds.min, bounds.max, key=abs)  # their product is 2³¹ of int8, and more of uint8
    want = x.astype(np.int64) @ w.astype(np.int64)
    for out in ("int32", dtype):
        function = fuser.jit(lambda x, w, out=out: fnp.matmul(x, w, preferred_element_type=out), backend="triton")
        (group,) = function.lower(of(dtype, 5, k), of(dtype, k, 18)).plan.groups
        assert group.kind is Kind.CONTRACTION and not group.reason
        placed = [Array(native.device_upload(a)) for a in (x, w)]
        np.testing.assert_array_equal(np.asarray(function(*placed)), want.astype(out))


@pytest.mark.slow
@pytest.mark.parametrize("k", [4096, 131_072])
def test_bytes_are_multiplied_as_such_where_their_sums_do_not_saturate(k: int) -> None:
    (source,) = sources(dequantised, *scaled("int8", 64, k, 64))
    instructions = "".join(disassembled(kernel.asm["cubin"]) for kernel in compile_ahead(source, "cuda", 80))
    assert ("IMMA" in instructions) == (".SAT" in instructions) == (k == 4096)


def test_parts_and_streams_are_had_by_asking() -> None:
    types = of("bfloat16", 1024, 4096), of("bfloat16", 4096, 1024), of("bfloat16", 1024)
    for asked in (Schedule(tile=(128, 128), split_k=2), Schedule(tile=(128, 256), stream_k=132)):
        (source,) = fuser.jit(biased, backend="triton", schedule=asked).lower(*types).sources
        assert len(source.launch["launches"]) == 2
        (made,) = source.schedules.values()
        assert (made.pieces[0].split_k, made.pieces[0].stream_k) == (asked.split_k, asked.stream_k)
