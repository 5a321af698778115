"""Machine code of sm_90: what kernels of rows, of odd widths and of loops cost, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from bench import static
from fuser import lax
from fuser.backends.triton import block_sizes
from fuser.backends.triton.target import MACHINES
from fuser.ir.types import ArrayType, bfloat16
from fuser.trace.core import type_of

pytestmark = pytest.mark.xdist_group("triton")


def f32(*shape: int) -> ArrayType:
    return ArrayType(shape, np.dtype("float32"))


@pytest.mark.parametrize(("columns", "barriers"), [(256, 0), (1000, 0), (8192, 4), (32768, 4)])
def test_rows_are_limited_by_memory_and_read_once(columns: int, barriers: int) -> None:
    found = static.report(static.softmax, f32(static.ELEMENTS // columns, columns))
    (launch,) = found.launches
    assert found.moved == found.ideal
    assert found.issue <= 0.6 * found.dram
    assert (launch.code.spills, launch.code.load_bits, launch.code.store_bits) == (0, 128, 128)
    assert launch.code.barriers <= barriers  # rows of one warp have none


@pytest.mark.parametrize("columns", [64, 100, 256, 1025])
def test_short_rows_of_16_bits_are_limited_by_memory(columns: int) -> None:
    found = static.report(static.softmax, ArrayType((static.ELEMENTS // columns, columns), bfloat16))
    assert found.issue <= 0.6 * found.dram
    assert found.launches[0].code.spills == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_elementwise_kernels_of_odd_sizes_read_16_bytes_at_once(dtype: str) -> None:
    size = ArrayType(((1 << 24) + 1,), fnp.dtype(dtype))
    found = static.report(lambda x, y: x * y + 1, size, size)
    (launch,) = found.launches
    assert (launch.code.load_bits, launch.code.store_bits, launch.code.spills) == (128, 128, 0)
    assert found.moved == found.ideal


def test_stencils_of_many_taps_read_neighbours_by_neighbouring_threads() -> None:
    taps = lambda count: lambda x: sum(x[:, n : n + 1024] for n in range(count))
    wide, narrow = (static.report(taps(count), f32(4096, 1040)).launches[0] for count in (2, 9))
    assert (wide.code.load_bits, narrow.code.load_bits) == (128, 32)
    assert narrow.code.registers <= 64


def test_columns_of_64_are_held_in_as_many() -> None:
    (launch,) = static.report(lambda x: x / x.sum(0), f32(64, 1 << 16)).launches
    assert launch.grid * 64 == 1 << 16 and launch.code.spills == 0


def test_sums_of_exponentials_of_long_rows_are_limited_by_memory() -> None:
    found = static.report(lambda x: fuser.nn.logsumexp(x, -1), f32(512, 1 << 16))
    assert found.moved == found.ideal and found.issue <= 0.6 * found.dram
    halves = static.report(lambda x: fuser.nn.logsumexp(x, -1), ArrayType((512, 1 << 16), bfloat16))
    assert halves.moved == halves.ideal and halves.launches[0].code.spills == 0
    assert (
        block_sizes.long_row_tile(2).columns == 2 * block_sizes.long_row_tile(4).columns
    )  # as many bytes on their way


@pytest.mark.parametrize("columns", [1 << 16, 1 << 18])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_that_several_programs_hold_are_limited_by_memory_and_read_once(columns: int, dtype: str) -> None:
    found = static.report(static.softmax, ArrayType((static.ELEMENTS // columns, columns), fnp.dtype(dtype)))
    assert found.moved <= 1.01 * found.ideal and found.issue <= 0.6 * found.dram
    last = found.launches[-1].code
    assert (last.spills, last.load_bits, last.store_bits) == (0, 128, 128)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.4), ("bfloat16", 0.85)])
@pytest.mark.parametrize("columns", [1000, 32000, 1 << 16, 1 << 18])
def test_cross_entropy_reads_its_logits_once(columns: int, dtype: str, most: float) -> None:
    found = static.report(static.cross_entropy, ArrayType((static.ELEMENTS // columns, columns), fnp.dtype(dtype)))
    assert found.moved <= (1.01 if dtype == "float32" else 1.02) * found.ideal and found.busy <= most * found.dram
    assert sum(launch.code.spills for launch in found.launches) == 0


@pytest.mark.parametrize("columns", [1000, 32000, 1 << 16])
def test_gradients_of_cross_entropy_in_16_bits_keep_all_in_registers(columns: int) -> None:
    rows = ArrayType((static.ELEMENTS // columns, columns), bfloat16)
    found = static.report(fuser.grad(static.cross_entropy), rows)
    assert found.moved <= 1.01 * found.ideal and found.busy <= 0.75 * found.dram
    assert sum(launch.code.spills for launch in found.launches) == 0


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_16_bits_is_limited_by_memory(approximate: bool) -> None:
    found = static.report(lambda x: fuser.nn.gelu(x, approximate=approximate), ArrayType((1 << 26,), bfloat16))
    assert found.busy <= 0.9 * found.dram


def test_long_rows_that_are_read_once_anyway_are_walked() -> None:
    logsumexp = lambda x: fuser.nn.logsumexp(x, -1)
    columns = {}
    for name, function in (("walked", logsumexp), ("held", static.softmax)):
        (source,) = fuser.jit(function, backend="triton").lower(f32(1048, 32000)).sources
        columns[name] = source.launch["launches"][0].columns
    assert columns["walked"] < 32000 <= columns["held"]


def test_units_of_which_a_multiprocessor_has_fewer_count_as_longer() -> None:
    found = static.report(lambda x: 1 / fnp.sqrt(fnp.exp(x) + fnp.exp(-x)), f32(1 << 24))
    (launch,) = found.launches
    assert launch.busy >= launch.issue and launch.code.busy > 0
    roots = static.report(lambda x: fnp.sqrt(x.astype("float32")), ArrayType((1 << 24,), bfloat16))
    assert roots.launches[0].code.busy > 0


def test_reports_count_loops_that_the_assembler_unrolls_as_often_as_they_run() -> None:
    found = static.report(lambda x: x.sum(), f32(1 << 26))
    assert found.issue <= 0.2 * found.dram


def test_rows_are_held_as_long_as_registers_hold_them() -> None:
    def backward(y: Any, ct: Any) -> Any:  # two arrays a row
        return y * (ct - (y * ct).sum(axis=-1, keepdims=True))

    rows = f32(1024, 32768)
    found = static.report(backward, rows, rows)  # by four programs a row, which are read once
    assert [launch.code.spills for launch in found.launches] == [0, 0]
    assert found.launches[-1].code.load_bits == 128 and found.moved <= 1.001 * found.ideal
    assert len(static.report(static.softmax, f32(8, 32768)).launches) > 1  # too few programs: shared out


def test_spills_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.backends.triton import block_sizes

    monkeypatch.setattr(block_sizes, "LONGEST_ROW", 65536)
    (launch,) = static.report(static.softmax, f32(512, 65536)).launches
    assert launch.code.spills > 0


def test_odd_widths_under_a_broadcast_take_whole_vectors() -> None:
    found = static.report(lambda x, b: fnp.maximum(x + b, 0), f32(8192, 1000), f32(1000))
    assert [(x.code.load_bits, x.code.store_bits) for x in found.launches] == [(128, 128)]


def test_a_full_sum_runs_in_one_wave() -> None:
    found = static.report(lambda x: x.sum(), f32(1 << 26))
    assert found.ideal < found.moved <= 1.001 * found.ideal  # the chunks' sums lie in memory
    assert max(launch.code.registers for launch in found.launches) <= 64  # four programs of 8 warps a multiprocessor


def test_mean_and_deviation_read_their_operand_once() -> None:
    for shape, launches in (((1 << 26,), 2), ((512, 1 << 17), 1)):
        found = static.report(lambda x: (x.mean(-1), x.std(-1)), f32(*shape))
        assert found.moved <= 1.001 * found.ideal
        assert sum(launch.code.spills for launch in found.launches) == 0
        assert len(found.launches) == launches


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_layer_norm_read_rows_once_for_rows_and_columns(dtype: str) -> None:
    rows, row = (ArrayType(shape, fnp.dtype(dtype)) for shape in ((8192, 4096), (4096,)))
    found = static.report(static.layer_norm_gradients, rows, row, row, rows)
    assert len(found.launches) == 2
    assert found.moved <= 1.1 * found.ideal == 1.1 * (3 * rows.nbytes + 3 * row.nbytes)
    assert [launch.code.spills for launch in found.launches] == [0, 0]
    assert found.launches[0].code.load_bits == found.launches[0].code.store_bits == 128


def test_loops_have_no_barriers() -> None:
    def iterated(x: Any) -> Any:
        return lax.while_loop(
            lambda s: (s[0] < 50) & (s[1] < 4).all(), lambda s: (s[0] + 1, s[1] * s[1] + 0.1), (0, x)
        )[1]

    def of_lanes(x: Any) -> Any:
        import fuser

        return fuser.vmap(iterated)(x)

    found = static.report(of_lanes, f32(1 << 16))
    assert [launch.code.barriers for launch in found.launches] == [0]


def test_a_gather_of_few_elements_does_not_move_the_whole_array() -> None:
    found = static.report(lambda x, i: x[i] * 2, f32(1 << 20), ArrayType((8,), np.dtype("int32")))
    assert found.ideal <= found.moved < 2000


def test_blocks_of_amd_have_all_of_their_shared_memory() -> None:
    half = ArrayType((1024, 1024), bfloat16)
    found = static.report(lambda a, b: fnp.maximum(a @ b, 0), half, half, machine=MACHINES["hip:gfx942"])
    assert all(launch.occupancy > 0 for launch in found.launches)


@pytest.mark.parametrize("name", ["softmax", "layer norm", "matmul", "attention", "stencil"])
def test_kernels_need_no_more_than_those_written_in_triton(name: str) -> None:
    """Registers, spills and widths of the same algorithm, arithmetic and tile."""
    from bench import by_hand
    from bench.by_hand_triton import KERNELS
    from fuser.backends.triton.machine_code import of_cuda

    cases = {"matmul": by_hand.matmul(1024, 64, depth=32), "attention": by_hand.flash(8, 1024, 64, 64, 32)}
    (hand, arrays) = next((cases.get(n, hand), arrays) for n, hand, _, arrays in by_hand.rows() if n == name)
    (launch,) = static.report(hand, *map(type_of, arrays)).launches
    own, written = launch.code, of_cuda(KERNELS[name].compiled(90), 1)
    assert own.registers <= written.registers and own.spills <= written.spills
    assert own.store_bits >= written.store_bits
    assert own.load_bits >= written.load_bits or name == "stencil"  # whose offsets are arguments


def test_what_is_written_is_as_wide_as_its_own_rows_allow() -> None:
    """Rows that are read lie 1026 elements apart, those that are written 1024; and the other way round."""
    inner = lambda x: x[:, 1:-1] * 2
    (launch,) = static.report(inner, f32(2048, 1026)).launches
    assert (launch.code.load_bits, launch.code.store_bits) == (32, 128)
    outer = lambda x: fnp.pad(x, ((0, 0), (0, 2))) * 2
    (launch,) = static.report(outer, f32(2048, 1024)).launches
    assert launch.code.store_bits == 64
