"""The Triton backend without a GPU: its texts, every form in Triton's interpreter, and compilation for real targets."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from bench.workloads import WORKLOADS
from fuser import jit, lax
from fuser.backends.triton import block_sizes, spell
from fuser.errors import UnsupportedError
from fuser.ir.types import ArrayType
from fuser.partition.group import Kind
from tests.backends.triton_cases import FORMS, LARGE, bits, f32, of, quantised, softmax

pytestmark = pytest.mark.xdist_group("triton")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def lower(function: Callable[..., Any], *types: Any) -> Any:
    return jit(function, backend="triton").lower(*types)


def worker(module: str, *arguments: str, tmp: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of JSON that a worker process prints."""
    environment = {**os.environ, "FUSER_CACHE_DIR": str(tmp / "cache"), "TRITON_CACHE_DIR": str(tmp / "triton")}
    (tmp / "cache").mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", f"tests.backends.{module}", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "suite",
    [
        "forms",
        "attention",
        "products",
        "reduced products",
        "long",
        "loops",
        "control",
        "scatters",
        "scatters by buckets",
        "scatters in order",
        "counted scatters",
        "orders",
        "selections",
        "transforms",
        "special values",
        "workloads",
        "eager",
    ],
)
def test_interpreter_agrees_with_the_reference(suite: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("triton")
    rows = worker("triton_worker", suite, tmp=tmp_path)
    assert len(rows) >= 7
    assert {row["case"]: row["error"] for row in rows if row["error"]} == {}


@pytest.mark.slow
def test_every_sample_of_the_registry_in_the_interpreter(tmp_path: pathlib.Path, share: tuple[int, int]) -> None:
    pytest.importorskip("triton")
    rows = worker("triton_worker", "registry", *map(str, share), tmp=tmp_path)
    assert len(rows) > 1500 // share[1]
    assert {row["case"]: row["error"] for row in rows if row["error"]} == {}


@pytest.mark.slow
def test_every_form_compiles_for_nvidia_and_amd(tmp_path: pathlib.Path, share: tuple[int, int]) -> None:
    pytest.importorskip("triton")
    environment = {
        **os.environ,
        "FUSER_CACHE_DIR": str(tmp_path / "cache"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
    }
    (tmp_path / "cache").mkdir(mode=0o700)
    command = [sys.executable, "-m", "tests.backends.triton_aot"]
    number, all_shares = share
    shards = [
        subprocess.Popen(
            [*command, str(number * 2 + n), str(2 * all_shares)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        for n in range(2)
    ]
    rows = [json.loads(line) for shard in shards for line in shard.communicate(timeout=600)[0].splitlines()]
    assert all(shard.returncode == 0 for shard in shards)
    assert {(row["case"], *row["target"]): row["error"] for row in rows if row["error"]} == {}
    assert len({tuple(row["target"]) for row in rows}) == 4
    wide = (
        "large softmax",
        "large layer norm",
        "large column sum",
        "large full sum",
        "large polynomial",
        "large few long rows",
    )
    loads = {row["case"]: row["load"] for row in rows if row["target"] == ["cuda", 90] and row["case"] in wide}
    assert loads == dict.fromkeys(loads, 128) and len(loads) >= len(wide) // all_shares - 2
    polynomials = [row["fused"] for row in rows if row["case"] == "large polynomial" and row["target"][0] == "cuda"]
    assert polynomials == [False] * len(polynomials)  # a product and a sum round apart
    assert len(polynomials) == 3 or all_shares > 1


def test_long_rows_are_read_once_for_a_maximum_and_the_sum_of_exponentials_relative_to_it() -> None:
    reads = lambda function, *types: [
        source.text.count("tl.load(in0") for source in lower(function, *types).sources if "tl.load(in0" in source.text
    ]
    logsumexp = lambda x: fuser.nn.logsumexp(x, axis=-1)
    for rows in (4096, 2):
        assert reads(softmax, f32(rows, 1 << 17)) == [1]  # by several programs a row
        assert reads(softmax, f32(rows, 1 << 20)) == [2]
        assert reads(logsumexp, f32(rows, 1 << 17)) == [1]
    squares = lambda x: fnp.sum(fnp.exp(x - x.max(-1, keepdims=True)) ** 2, -1)
    chosen = lambda x: fnp.sum(fnp.where(x > 0, fnp.exp(x - x.max(-1, keepdims=True)), 0), -1)
    assert (
        reads(squares, f32(4096, 1 << 20)) == reads(chosen, f32(4096, 1 << 20)) == [2]
    )  # not linear in the exponential


def variants(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> set[Any]:
    """The different compilations that a function of one array needs over all these shapes."""
    found = set()
    for shape in shapes:
        (source,) = lower(function, f32(*shape)).sources
        found |= {
            (source.key, launch.function, tuple(launch.constants.items()), launch.warps)
            for launch in source.launch["launches"]
        }
    return found


@pytest.mark.parametrize(
    "columns, most", [(range(100, 200), 16), (range(1000, 1100), 7), (range(5000, 5100), 3), (range(17000, 17100), 3)]
)
def test_a_hundred_sizes_of_softmax_need_few_compilations(columns: range, most: int) -> None:
    assert len(variants(softmax, [(1000 + c % 7, c) for c in columns])) <= most


def test_rows_take_blocks_that_hold_them_on_as_few_warps_as_that_needs() -> None:
    sizes = (1, 5, 63, 64, 65, 100, 128, 300, 512, 1000, 1024, 1025, 1100, 5120, 16384)
    tiles = {c: block_sizes.row_tile(c) for c in sizes}
    assert {c: (tile.columns, tile.blocks, tile.rest) for c, tile in tiles.items()} == {
        **{1: (4, 1, 0), 5: (8, 1, 0), 63: (64, 1, 0), 64: (64, 1, 0), 65: (16, 5, 0), 100: (16, 7, 0)},
        **{128: (128, 1, 0), 300: (64, 5, 0), 512: (512, 1, 0), 1000: (512, 2, 0), 1024: (1024, 1, 0)},
        **{1025: (1024, 1, 128), 1100: (1024, 1, 128), 5120: (4096, 1, 1024), 16384: (16384, 1, 0)},
    }
    assert all(tile.warps == 1 for c, tile in tiles.items() if c <= 1025)
    held = {c: tile.columns * tile.blocks + tile.rest for c, tile in tiles.items()}
    assert all(0 <= held[c] - c < c for c in sizes if c > 1)
    eights = block_sizes.row_tile(104, together=8)  # two threads would not fill a warp
    assert eights is not None and (eights.columns, eights.blocks) == (32, 4)
    assert block_sizes.row_tile(1000, whole=True) == block_sizes.Tile(1, 1024, 1, True)
    assert block_sizes.row_tile(16385) is None
    assert block_sizes.row_tile(16385, rows=1000, held=1) == block_sizes.Tile(1, 16384, 32, True, 2048)
    assert block_sizes.row_tile(16385, rows=8, held=1) is block_sizes.row_tile(32769, rows=1000, held=1) is None


def test_sizes_of_elementwise_kernels_need_a_compilation_for_each_width_of_access() -> None:
    assert len(variants(lambda x: fnp.tanh(x) * 2, [(n,) for n in range(1000, 1100)])) == 3  # 1, 2 and 4 elements


@pytest.mark.parametrize(
    "name", ["softmax", "layer_norm", "rms_norm", "polynomial", "chain", "black_scholes", "mandelbrot"]
)
def test_workloads_are_one_kernel(name: str) -> None:
    workload = WORKLOADS[name]
    types = [ArrayType(x.shape, x.dtype) for x in workload.inputs("small")]
    lowered = lower(lambda *a: workload.run(fuser, a), *types)
    assert [len(source.launch["launches"]) for source in lowered.sources] == [1]


def launches(function: Callable[..., Any], *types: ArrayType) -> list[Any]:
    return [launch for source in lower(function, *types).sources for launch in source.launch["launches"]]


def test_a_full_sum_is_shared_out_and_then_combined() -> None:
    first, second = launches(lambda x: fnp.sum(x), f32(1 << 24))
    assert (first.grid, second.grid) == (512, 1)  # one wave
    assert first.grid <= block_sizes.ONE_WAVE


def test_few_long_rows_take_one_launch_a_stage() -> None:
    assert [launch.grid > 2 for launch in launches(softmax, f32(2, 1 << 20))] == [True] * 2  # maximum and sum in one
    assert len(launches(softmax, f32(4096, 1 << 20))) == 1  # rows enough: no chunks
    assert (
        len(launches(softmax, f32(2, 1 << 16))) == len(launches(softmax, f32(4096, 1 << 16))) == 2
    )  # and words cleared


def test_a_long_scan_reads_and_writes_once_behind_a_launch_that_clears_its_words() -> None:
    clear, scan = launches(lambda x: fnp.cumsum(x), f32(1 << 24))
    assert (clear.elements, scan.grid) == (1 + 4096 + 16, 4096)
    (source,) = lower(lambda x: fnp.cumsum(x), f32(1 << 24)).sources
    assert source.text.count("tl.load(in0") == source.text.count("tl.store(out0") == 1
    both = launches(lambda x: (fnp.cumsum(x), fnp.sum(x)), of("int64", 1 << 24))  # words of 64 bits are no flags
    assert "words" not in lower(lambda x: fnp.cumsum(x), of("int64", 1 << 24)).sources[0].text and len(both) >= 2


def test_scans_of_scans_walk_alone() -> None:
    assert len(launches(lambda x: fnp.cumsum(fnp.cumsum(x)), f32(1 << 20))) == 1  # a scan of a scan walks alone


def test_a_column_sum_reads_neighbours_side_by_side() -> None:
    first, second = launches(lambda x: fnp.sum(x, axis=0), f32(4096, 4096))
    assert first.constants["ROWS"] * 4 >= 128  # bytes next to each other
    assert first.grid >= block_sizes.FEW
    assert second.grid == 4096 // first.constants["ROWS"]


def kinds(plan: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(group.kind.value, group.ops) for group in plan.groups]


def test_elementwise_work_on_a_product_joins_it() -> None:
    plan = lower(
        lambda x, w, b: fnp.maximum(x @ w + b, 0), of("bfloat16", 64, 64), of("bfloat16", 64, 64), of("bfloat16", 64)
    ).plan
    assert kinds(plan) == [("contraction", ("dot_general", "broadcast_in_dim", "add", "max"))]
    assert sum(group.ideal_bytes for group in plan.groups) == 2 * (3 * 64 * 64 + 64)


def test_what_must_not_join_a_product() -> None:
    x = of("bfloat16", 64, 64)
    for function, kind, reason in (
        (
            lambda x: softmax(x @ x),
            "reduction",
            "a reduction needs whole rows of the product, which are spread over several blocks",
        ),
        (lambda x: ((y := x + 1) @ x, y), "contraction", "others need the operand in memory too"),
        (lambda x: (x @ x)[1:] + 1, "elementwise", "it reads the product at shifted or reshaped indices"),
        (
            lambda x: x @ x @ x,
            "contraction",
            "a product reads each element of its operands many times, so they are computed before it",
        ),
    ):
        plan = lower(function, x).plan
        assert [group.kind.value for group in plan.groups][-1] == kind
        assert len(plan.groups) == 2
        assert reason in {decision.reason for decision in plan.decisions}


def test_products_that_a_library_is_faster_at_and_of_other_dtypes_stay_library_calls() -> None:
    reasons = [
        lower(lambda x: x @ x, x).plan.groups[0].reason
        for x in (of("bfloat16", 4096, 4096), f32(1024, 1024), f32(8, 8), of("int32", 64, 64))
    ]
    expected = "is expected to take [0-9.]+ .s, a generated kernel [0-9.]+ .s"
    assert re.fullmatch(f"nothing joins it, and a library {expected}", reasons[0])
    assert re.fullmatch(f"a library {expected}", reasons[1])
    assert reasons[2:] == [
        "a product over 8 elements runs in a library; generated are those over 16 and more",
        "products of i32 run in a library",
    ]


def test_chunks_do_not_depend_on_anything_but_sizes() -> None:
    chunks = block_sizes.chunks(1, 1 << 24, block_sizes.LONG_ROW)
    assert chunks is not None
    assert chunks.count * chunks.length >= 1 << 24 > (chunks.count - 1) * chunks.length
    assert block_sizes.chunks(block_sizes.FEW, 1 << 24, block_sizes.LONG_ROW) is None
    assert block_sizes.chunks(1, 100, block_sizes.LONG_ROW) is None


def test_transposed_access_takes_square_tiles() -> None:
    (launch,) = launches(*(lambda f, t: (f, *t))(*FORMS["transposed"]))
    assert launch.constants["ROWS"] == launch.constants["COLUMNS"] == 64


def test_arrays_past_two_to_the_31_use_64_bit_positions() -> None:
    for name in ("past 32 bits", "rows past 32 bits"):
        function, types = LARGE[name]
        assert "tl.program_id(0).to(tl.int64)" in lower(function, *types).sources[0].text
    assert "int64" not in lower(lambda x: x + 1, of("uint8", 1 << 30)).sources[0].text


def test_the_text_names_the_users_lines_and_stands_alone() -> None:
    (source,) = lower(softmax, f32(37, 100)).sources
    assert "# triton_cases.py:" in source.text
    assert "import fuser" not in source.text
    compile(source.text, "kernel.py", "exec")


def test_equal_programs_of_other_sizes_share_their_text() -> None:
    text = lambda rows, columns: lower(bits, of("int32", rows, columns)).sources[0].text
    assert len({text(*sizes) for sizes in ((20, 150), (33, 70), (1000, 300))}) == 1  # five blocks a row
    assert len({text(20, columns) for columns in range(65, 512, 36)}) <= 4  # five to eight


@pytest.mark.parametrize(
    ("function", "types", "reason"),
    [
        (lambda x: fnp.arccos(x), (of("complex64", 4),), "acos of complex numbers is computed by torch"),
        (
            lambda x: x.astype("float32"),
            (ArrayType((4,), np.dtype(fnp.int4)),),
            "i4 is converted by torch",
        ),
        (lambda x: x + 1, (f32(0, 3),), "it has no elements"),
    ],
)
def test_what_is_refused_runs_as_a_library_step(function: Any, types: Any, reason: str) -> None:
    plan = lower(function, *types).plan
    assert [(group.kind.value, group.reason) for group in plan.groups] == [("library", reason)]


def test_rows_are_normalised_and_quantised_to_8_bits_in_one_kernel() -> None:
    (group,) = lower(quantised, of("bfloat16", 64, 512), f32(512)).plan.groups
    assert group.kind is Kind.REDUCTION and not group.reason
    halves = lower(
        lambda x, w: x @ w.astype("bfloat16"), of("bfloat16", 64, 512), of("float8_e4m3fn", 512, 64)
    ).plan.groups
    assert [g.kind for g in halves] == [Kind.CONTRACTION] and not halves[0].reason


def test_importing_fuser_loads_neither_torch_nor_triton() -> None:
    code = (
        "import sys, fuser, fuser.backends.triton; sys.exit(any(name in sys.modules for name in ('torch', 'triton')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


OVERRIDE = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import numpy as np, fuser
print(np.asarray(fuser.jit(lambda x: x * 2, backend="triton")(np.ones(3, np.float32))).tolist())
"""


def run(code: str, tmp: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp / "cache").mkdir(mode=0o700, exist_ok=True)
    settings = {**os.environ, "FUSER_CACHE_DIR": str(tmp / "cache"), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=settings, check=False
    )


@pytest.mark.slow
def test_a_hand_edited_kernel_takes_the_place_of_the_generated_one(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("triton")
    (source,) = lower(lambda x: x * 2, f32(3)).sources
    (tmp_path / f"{source.name}.py").write_text(source.text.replace("* 2.0", "* 5.0"))
    assert run(OVERRIDE, tmp_path).stdout.strip() == "[2.0, 2.0, 2.0]"
    assert run(OVERRIDE, tmp_path, FUSER_OVERRIDE=str(tmp_path)).stdout.strip() == "[5.0, 5.0, 5.0]"


@pytest.mark.slow
def test_a_kernel_that_triton_refuses_raises_with_its_own_words(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("triton")
    (source,) = lower(lambda x: x * 2, f32(3)).sources
    (tmp_path / f"{source.name}.py").write_text(source.text.replace("* 2.0", "* tl.no_such_function(2)"))
    words = run(OVERRIDE, tmp_path, FUSER_OVERRIDE=str(tmp_path)).stderr
    assert f"ToolchainError: Triton refused generated code for {source.name}; it says:" in words
    assert "no_such_function" in words
    (tmp_path / f"{source.name}.py").write_text("import (")
    assert "cannot be read: SyntaxError" in run(OVERRIDE, tmp_path, FUSER_OVERRIDE=str(tmp_path)).stderr


def test_without_a_gpu_the_backend_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UnsupportedError) as caught:
        jit(lambda x: x + 1, backend="triton")(np.ones(3, np.float32))
    assert str(caught.value) == (
        "the triton backend needs a GPU, and torch sees none; set FUSER_BACKEND=c, "
        "or TRITON_INTERPRET=1 to run kernels slowly in Triton's interpreter"
    )


def test_new_steps_and_lanes_of_a_loop_need_no_compilation() -> None:
    def launches(length: int, lanes: int) -> set[Any]:
        scanned = lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c), x, xs)
        (source,) = lower(scanned, f32(lanes), f32(length, lanes)).sources
        return {(source.key, tuple(n.constants.items()), n.warps) for n in source.launch["launches"]}

    assert len(set().union(*(launches(t, n) for t in (2, 100, 5000) for n in (5, 64, 12345)))) == 1


class _Block(np.ndarray):
    """Elements with the method by which Triton converts them."""

    def to(self, dtype: Any) -> Any:
        return self.astype(dtype)


def quotients(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotients by the texts that rows which share a divisor run, with fused products of float32."""
    block = lambda a: np.asarray(a, np.float32).view(_Block)
    fused = lambda a, b, c: block(np.float64(a) * np.float64(b) + np.float64(c))
    tl = SimpleNamespace(
        abs=np.abs,
        fma=fused,
        where=lambda c, a, b: block(np.where(c, a, b)),
        div_rn=lambda a, b: block(np.divide(a, b)),
    )
    names: dict[str, Any] = {"tl": tl}
    for helper in ("scaled_divisor", "reciprocal_parts", "shared_quotient"):
        exec(spell.HELPERS[helper], names)
    with np.errstate(all="ignore"):
        scale, *parts = names["reciprocal_parts"](block(y))
        return np.asarray(names["shared_quotient"](block(x) * scale, *parts))


def test_quotients_by_a_shared_reciprocal_are_those_of_a_division() -> None:
    random = np.random.default_rng(5)
    mantissa = lambda n: random.uniform(1, 2, n) * random.choice([-1, 1], n)
    x = np.float32(mantissa(200_000) * 2.0 ** random.integers(-100, 100, 200_000))
    y = np.float32(mantissa(200_000) * 2.0 ** random.integers(-120, 120, 200_000))
    special = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 1.5, 3e38, 1e-30])
    x, y = np.concatenate([x, np.repeat(special, 10)]), np.concatenate([y, np.tile(special, 10)])
    with np.errstate(all="ignore"):
        want = x / y
    got = quotients(x, y)
    normal = (np.abs(want) >= 2.0**-126) & (np.abs(x) >= 2.0**-102 * np.where(np.abs(y) > 2.0**100, 2.0**30, 1))
    np.testing.assert_array_equal(got[normal], want[normal])
    np.testing.assert_allclose(got, want, 2.0**-23, 2.0**-148)


@pytest.mark.parametrize("form", ["exact", "scaled", "buckets"])
def test_sums_at_targets_are_rounded_once_and_do_not_depend_on_the_order(form: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("triton")
    rows = worker("scatter_worker", form, tmp=tmp_path)
    assert len(rows) == 12
    assert [row["moved"] for row in rows] == [row["beyond"] for row in rows] == [0] * 12
    assert form != "exact" or [row["rounded"] for row in rows] == [0] * 12
