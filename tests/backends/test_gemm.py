"""Matrix products of the C backend against NumPy in float64, for all dtypes, shapes with ragged edges, and strides."""

from __future__ import annotations

import concurrent.futures
import ctypes
import itertools
import pathlib
import platform
import re
import subprocess
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser import config
from fuser.backends.c.library import prebuilt
from fuser.backends.c.library.on_demand import (
    GEMMS,
    factorisations_text,
    fourier_text,
    gemm_text,
    scatter_text,
    sort_text,
)
from fuser.runtime import sources, toolchain

SHAPES = [
    ((3, 4), (4, 5)),
    ((130, 70), (70, 61)),
    ((1, 300), (300, 77)),
    ((77, 300), (300,)),
    ((300,), (300,)),
    ((5, 33, 17), (5, 17, 9)),
    ((64, 40, 40), (64, 40, 40)),
    ((3, 100, 40), (3, 40, 100)),
    ((200, 500), (500, 300)),
    ((2, 3, 0), (2, 0, 4)),
    ((100, 3), (3, 100)),
]
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.int64]
FACTORISATIONS = (
    "lu",
    "qr",
    "reflections",
    "cholesky",
    "eigh",
    "svd",
    "trsm",
    "small_lu",
    "small_cholesky",
    "small_trsm",
)
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-13, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products(dtype, shapes):
    rng = np.random.default_rng(0)
    a, b = ((rng.standard_normal(s) * 3).astype(dtype) for s in shapes)
    with fuser.config.using(enable_x64=True):
        result = np.asarray(fuser.jit(fnp.matmul, backend="c")(a, b))
    assert result.dtype == dtype
    if dtype in TOLERANCE:
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        assert np.all(np.abs(result.astype(np.float64) - exact) <= TOLERANCE[dtype] * bound)
    else:
        np.testing.assert_array_equal(result, (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype))


def test_strided_operands_are_not_copied_first():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((70, 130)).astype(np.float32), rng.standard_normal((61, 70)).astype(np.float32)
    f = fuser.jit(lambda x, y: x.T @ y.T, backend="c")
    assert len(f.lower(a, b).plan.groups) == 1
    np.testing.assert_allclose(f(a, b), a.T @ b.T, rtol=1e-4, atol=1e-4)


def test_the_same_bits_for_the_same_product():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((300, 700)).astype(np.float32), rng.standard_normal((700, 200)).astype(np.float32)
    f = fuser.jit(fnp.matmul, backend="c")
    first = np.asarray(f(a, b))
    for _ in range(5):
        np.testing.assert_array_equal(first, f(a, b))


@pytest.mark.parametrize(
    "shape",
    [(256, 784, 512), (700, 300, 40), (20, 40, 900), (15, 400, 33), (512, 256, 10), (50, 513, 700)]
    + [(2, 70, 3), (6, 700, 9), (5, 1000, 7), (10, 9001, 11), (33, 201, 47), (1000, 300, 5)],
    ids=str,
)
@pytest.mark.parametrize("transposed", ["nn", "tn", "nt", "tt"])
def test_products_of_transposed_operands(shape, transposed):
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    a = rng.standard_normal((inner, rows) if transposed[0] == "t" else (rows, inner)).astype(np.float32)
    b = rng.standard_normal((columns, inner) if transposed[1] == "t" else (inner, columns)).astype(np.float32)
    turn = lambda x, y: (x.T if transposed[0] == "t" else x, y.T if transposed[1] == "t" else y)
    result = np.asarray(fuser.jit(lambda x, y: fnp.matmul(*turn(x, y)), backend="c")(a, b))
    doubled = np.asarray(fuser.jit(lambda x, y: fnp.matmul(*turn(x, y)) * 2 + 1, backend="c")(a, b))
    x, y = (each.astype(np.float64) for each in turn(a, b))
    bound = 1e-5 * (np.abs(x) @ np.abs(y))
    assert np.all(np.abs(result - x @ y) <= bound)
    assert np.all(np.abs(doubled - (2 * (x @ y) + 1)) <= 2 * bound + 1e-6)


@pytest.mark.parametrize("shape", [(256, 300, 512), (13, 300, 700), (1024, 300, 300)], ids=str)
def test_results_do_not_depend_on_the_number_of_threads(shape):
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, inner), (inner, columns)))
    f = fuser.jit(fnp.matmul, backend="c")
    before, results = config.threads, []
    for count in (1, 2, 5):
        config.update("threads", count)
        results.append(np.asarray(f(a, b)))
    config.update("threads", before)
    assert all(np.array_equal(results[0], other) for other in results[1:])


SMALL_OR_LARGE = st.one_of(st.integers(1, 20), st.sampled_from([1, 2, 3, 4, 8, 16, 31, 48, 64, 65, 100, 130, 200]))
REAL = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8]


@st.composite
def strided(draw, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[Any], Any]]:
    """The shape of an array, and a view of it that has `shape`: dimensions in another order, steps, turned round."""
    order = draw(st.permutations(range(len(shape))))
    step = draw(st.sampled_from([1, 1, 1, 2, -1]))
    inner = tuple(shape[order.index(d)] for d in range(len(shape)))
    inner = (*inner[:-1], inner[-1] * 2) if step == 2 else inner
    return inner, lambda x: (x[..., ::step] if step != 1 else x).transpose(order)


@st.composite
def products(draw) -> tuple[Any, ...]:
    batch = tuple(draw(st.lists(st.integers(1, 5), max_size=2)))
    m, n, k = draw(SMALL_OR_LARGE), draw(SMALL_OR_LARGE), draw(SMALL_OR_LARGE)
    x, y = draw(strided((*batch, m, k))), draw(strided((*batch, k, n)))
    return x, y, draw(st.sampled_from(REAL)), draw(st.booleans())


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(products())
def test_products_of_any_shape_and_strides(case: Any) -> None:
    (x_shape, x_view), (y_shape, y_view), dtype, tail = case
    rng = np.random.default_rng(len(x_shape))
    a, b = ((rng.standard_normal(s) * 3).astype(dtype) for s in (x_shape, y_shape))
    function = lambda a, b: (x_view(a) @ y_view(b)) * (2 if tail else 1)
    with fuser.config.using(enable_x64=True):
        result = np.asarray(fuser.jit(function, backend="c")(a, b))
    assert result.dtype == dtype
    wide = np.float64 if dtype in TOLERANCE else np.int64
    exact = function(a.astype(wide), b.astype(wide))
    if wide is np.int64:
        np.testing.assert_array_equal(result, exact.astype(dtype))
    else:
        bound = function(np.abs(a.astype(wide)), np.abs(b.astype(wide)))
        assert np.all(np.abs(result.astype(wide) - exact) <= TOLERANCE[dtype] * bound)


FORMS = {  # rows, steps, columns of products that gemm takes each in another way
    "row": (1, 300, 400),
    "long row": (1, 20000, 40),
    "column": (500, 300, 1),
    "few rows": (10, 400, 300),
    "direct": (700, 40, 50),
    "packed": (300, 300, 300),
    "deep": (50, 6000, 40),
    "deep, few columns": (50, 6000, 5),
    "few rows, a large matrix": (60, 700, 900),
    "written out": (2000, 3, 3),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_has_its_bits_whatever_the_threads(name: str) -> None:
    m, k, n = FORMS[name]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    f = fuser.jit(lambda a, b: clipped(a @ b), backend="c")
    before, results = config.threads, []
    for count in (1, 2, 3, 7):
        config.update("threads", count)
        results.append(np.asarray(f(a, b)))
    config.update("threads", before)
    assert all(np.array_equal(results[0], other) for other in results[1:])
    np.testing.assert_allclose(results[0], np.maximum(a.astype(np.float64) @ b, -1), rtol=1e-3, atol=1e-3)


def clipped(x: Any) -> Any:
    return fnp.maximum(x, -1)


@pytest.mark.parametrize("name", FORMS)
def test_nan_and_infinity_go_through(name: str) -> None:
    m, k, n = FORMS[name]
    a, b = np.zeros((m, k), np.float32), np.ones((k, n), np.float32)
    b[k // 2, n // 2] = np.inf  # 0 · inf is nan
    a[m // 2, 0] = np.nan
    a[m - 1, k - 1] = np.inf
    found = np.asarray(fuser.jit(fnp.matmul, backend="c")(a, b))
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))


def test_several_python_threads_share_a_product() -> None:
    rng = np.random.default_rng(0)
    pairs = [[rng.standard_normal((n, n)).astype(np.float32) for _ in range(2)] for n in (60, 150, 300, 90)]
    f = fuser.jit(fnp.matmul, backend="c")
    expected = [np.asarray(f(*pair)) for pair in pairs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: np.asarray(f(*pairs[n % 4])), range(80)))
    assert all(np.array_equal(result, expected[n % 4]) for n, result in enumerate(results))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_short_lines_times_a_vector(dtype) -> None:
    """Of every length up to some vectors, whole and in part, and more than a vector of lines; padding between lines is not read."""
    rng = np.random.default_rng(0)
    with fuser.config.using(enable_x64=True):
        f = fuser.jit(lambda a, x: a @ x, backend="c")
        for columns in range(1, 150, 3):
            for rows in (1, 7, 8, 9, 50):
                wide = (rng.standard_normal((rows, columns + 5)) * 9).astype(dtype)
                x = (rng.standard_normal(columns) * 9).astype(dtype)
                for a in (np.ascontiguousarray(wide[:, :columns]), wide[:, :columns]):
                    exact = a.astype(np.float64) @ x.astype(np.float64)
                    scale = np.abs(a).astype(np.float64) @ np.abs(x).astype(np.float64)
                    assert np.all(np.abs(np.asarray(f(a, x)) - exact) <= 1e-6 * scale)


@pytest.mark.parametrize("level", prebuilt.LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_what_was_built_with_the_package_gives_the_bits_of_what_is_compiled(level, dtype, monkeypatch) -> None:
    monkeypatch.setattr(prebuilt, "LEVELS", {level: prebuilt.LEVELS[level]})
    kind = np.dtype(dtype)
    ready = fresh_gemm(kind)
    if ready is None:
        pytest.skip(f"the package was built without products for {level}, or this processor has not what they need")
    flags = [f"-march=x86-64-{level}" if flag == "-march=native" else flag for flag in toolchain.FLAGS]
    monkeypatch.setattr(toolchain, "FLAGS", tuple(flags))
    library = toolchain.load_shared(toolchain.compile_shared(gemm_text(kind, kind)).path)
    rng = np.random.default_rng(0)
    for m, k, n in FORMS.values():
        a, b = ((rng.standard_normal(s) * 4).astype(kind) for s in ((m, k), (k, n)))
        results = []
        for gemm in (ready, library.gemm):
            results.append(np.zeros((m, n), kind))
            numbers = (m, n, k, k, 1, n, 1, n, 0, 0)
            pointers = (ctypes.c_void_p * 3)(a.ctypes.data, b.ctypes.data, results[-1].ctypes.data)
            gemm(pointers, (ctypes.c_int64 * len(numbers))(*numbers))
        assert results[0].tobytes() == results[1].tobytes()
        exact = a.astype(np.float64) @ b.astype(np.float64)
        rtol = max(1e-3, float(ml_dtypes.finfo(kind).eps))
        np.testing.assert_allclose(results[0].astype(np.float64), exact, rtol, atol=1e-2)


@pytest.mark.parametrize("level", [*prebuilt.LEVELS, "v4 without dots", "native"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_small_integers_are_multiplied_in_pairs_or_fours_and_wrap_around(level, dtype, monkeypatch) -> None:
    """By each of the instructions that there are, the lowest and the highest numbers included."""
    if level != "native" and not prebuilt.LEVELS[level[:2]] <= set(toolchain.processor().split()):
        pytest.skip(f"this processor has not what {level} needs")
    kind, wide = np.dtype(dtype), np.dtype("int32")
    text = re.sub(r"#define TILE_DOT .*\n", "", gemm_text(kind, wide), count=1)  # the matrix unit: test_matrix_unit.py
    assert "#define PAIRED" in text and ("#define FOURFOLD" in text) == (kind.itemsize == 1)
    if level == "v4 without dots":
        text = text.replace('__builtin_cpu_supports("avx512vnni") != 0', "0")
    march = "-march=native" if level == "native" else f"-march=x86-64-{level[:2]}"
    flags = [march if flag == "-march=native" else flag for flag in toolchain.FLAGS]
    monkeypatch.setattr(toolchain, "FLAGS", tuple(flags))
    library = toolchain.load_shared(toolchain.compile_shared(text).path)
    rng, ends = np.random.default_rng(0), np.iinfo(kind)
    for m, k, n in (*FORMS.values(), (70, 1, 50), (65, 1027, 49), (100, 9001, 130)):
        for low, high in ((ends.min, ends.max), (ends.min, ends.min)):
            a, b = (rng.integers(low, high, s, kind, endpoint=True) for s in ((m, k), (k, n)))
            exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)
            for turned in (False, True):
                x, y = (np.asfortranarray(v) if turned else v for v in (a, b))
                strides = (1, m, 1, k) if turned else (k, 1, n, 1)
                result = np.zeros((m, n), wide)
                numbers = (m, n, k, *strides, n, 0, 0)
                pointers = (ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data, result.ctypes.data)
                library.gemm(pointers, (ctypes.c_int64 * len(numbers))(*numbers))
                np.testing.assert_array_equal(result, exact)


SCATTERED = [
    *((kind, how) for kind in ("float32", "int32") for how in ("add", "max", "min")),
    *((kind, "add") for kind in ("float64", "int64")),
    *((kind, "set") for kind in ("uint8", "uint32", "uint64")),
]
PREBUILT = {
    **{f"gemm_{kind}": (lambda kind=kind: gemm_text(np.dtype(kind), np.dtype(kind)), {"gemm": f"gemm_{kind}_{kind}"}) for kind in ("float32", "float64", "float16", "bfloat16", "int32")},
    "gemm_int8": (lambda: gemm_text(np.dtype("int8"), np.dtype("int32")), {"gemm": "gemm_int8_int32"}),
    **{f"{name}_float32": (lambda name=name: GEMMS[name] + gemm_text(np.dtype("float32"), np.dtype("float32")), {name: f"{name}_float32_float32"}) for name in ("tables", "tables_of_rows")},
    **{f"factorisations_{kind}": (lambda kind=kind: factorisations_text(np.dtype(kind)), {name: f"{name}_{kind}" for name in FACTORISATIONS}) for kind in ("float32", "float64")},
    **{f"sort_{kind}_4": (lambda kind=kind: sort_text(np.dtype(kind), 4), {"sort": f"sort_{kind}_4", "top_k": f"top_k_{kind}"}) for kind in ("float32", "int32", "uint32")},
    **{f"sort_{kind}_0": (lambda kind=kind: sort_text(np.dtype(kind), 0), {"sort": f"sort_{kind}_0"}) for kind in ("float32", "float64", "int64")},
    **{f"sort_{kind}_8": (lambda kind=kind: sort_text(np.dtype(kind), 8), {"sort": f"sort_{kind}_8"}) for kind in ("float32", "float64", "int64")},
    **{f"scatter_{kind}_{how}": (lambda kind=kind, how=how: scatter_text(np.dtype(kind), how), {"scatter": f"scatter_{kind}_{how}"}) for kind, how in SCATTERED},
    **{f"fourier_{kind}": (lambda kind=kind: fourier_text(np.dtype(kind)), {"fourier": f"fourier_{kind}"}) for kind in ("float32", "float64")},
}  # fmt: skip


@pytest.mark.parametrize("name", PREBUILT)
def test_what_is_built_with_the_package_is_the_text_that_would_be_compiled(name: str) -> None:
    """After the preprocessor, with the names under which the package has the functions."""
    text, renamed = PREBUILT[name]
    own = "".join(f"#define {short} {full}\n" for short, full in renamed.items()) + text()
    path = sources.FOLDER / "prebuilt" / f"{name}.c"
    command = ["cc", "-E", "-P", "-march=x86-64-v3", "-fopenmp", "-xc", "-"]
    expanded = [
        subprocess.run(command, input=given, cwd=path.parent, capture_output=True, text=True, check=True).stdout
        for given in (own, path.read_text())
    ]
    assert "".join(expanded[0].split()) == "".join(expanded[1].split())
    if prebuilt._library() is not None:
        assert all(hasattr(prebuilt._library(), full) for full in renamed.values())


def fresh_gemm(kind: np.dtype) -> Any:
    """What was built for the levels of now."""
    prebuilt._library.cache_clear()
    try:
        return prebuilt.function("gemm", kind, kind)
    finally:
        prebuilt._library.cache_clear()


def test_what_was_built_from_other_files_or_for_another_processor_is_not_used(monkeypatch) -> None:
    kind = np.dtype("float32")
    assert prebuilt.function("gemm", np.dtype("int16"), np.dtype("int16")) is None
    assert prebuilt.function("gemm", kind, np.dtype("float64")) is None
    monkeypatch.setattr(prebuilt, "digest", lambda: "0" * 64)
    assert fresh_gemm(kind) is None
    monkeypatch.undo()
    monkeypatch.setattr(toolchain, "processor", lambda: "GenuineIntel; sse2 avx")
    assert fresh_gemm(kind) is None


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the targets are those of x86-64")
def test_processors_with_shorter_vectors(target: str, dtype: str, tmp_path: pathlib.Path) -> None:
    """The text compiled for them: tiles of other extents, and parts of vectors in other words."""
    kind = np.dtype(dtype)
    source, shared = tmp_path / "gemm.c", tmp_path / "gemm.so"
    source.write_text(gemm_text(kind, kind))
    flags = [f"-march={target}" if flag == "-march=native" else flag for flag in toolchain.FLAGS]
    subprocess.run([toolchain.find_compiler(), *flags, str(source), "-o", str(shared)], check=True)
    gemm = ctypes.CDLL(str(shared)).gemm
    rng = np.random.default_rng(0)
    for m, k, n in (*FORMS.values(), (3, 5, 7), (9, 2, 33), (13, 17, 1)):
        a, b = ((rng.standard_normal(s) * 4).astype(kind) for s in ((m, k), (k, n)))
        result = np.empty((m, n), kind)
        numbers = (m, n, k, k, 1, n, 1, n, 0, 0)
        pointers = (ctypes.c_void_p * 3)(a.ctypes.data, b.ctypes.data, result.ctypes.data)
        gemm(pointers, (ctypes.c_int64 * len(numbers))(*numbers))
        wide = a.astype(np.float64)
        assert np.all(np.abs(result - wide @ b) <= (1e-5 if dtype == "float32" else 1e-12) * (np.abs(wide) @ np.abs(b)))


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
@pytest.mark.parametrize("name", ["tables", "tables_of_rows"])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the targets are those of x86-64")
def test_operands_read_by_tables(target: str, name: str, tmp_path: pathlib.Path) -> None:
    """Columns that lie together, every other one, in runs, anywhere; depths that lie together in short runs; the transposed product."""
    kind = np.dtype(np.float32)
    source, shared = tmp_path / "gemm.c", tmp_path / "gemm.so"
    source.write_text(GEMMS[name] + gemm_text(kind, kind))
    flags = [f"-march={target}" if flag == "-march=native" else flag for flag in toolchain.FLAGS]
    subprocess.run([toolchain.find_compiler(), *flags, str(source), "-o", str(shared)], check=True)
    product = getattr(ctypes.CDLL(str(shared)), name)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(40_000).astype(kind) for _ in range(2))
    as_strided = np.lib.stride_tricks.as_strided
    for rows, columns, depth in (
        ([(9, 40), (5, 1)], [(40, 1)], [(3, 400, 500), (11, 2, 40)]),
        ([(30, 7)], [(5, 100), (16, 2)], [(7, 1, 1000), (9, 300, 30)]),
        ([(64, 101)], [(3, 900), (3, 30), (3, 1)], [(6, 20, 28), (14, 1, 1)]),
        ([(20, 64)], [(2, 3000), (40, 19)], [(50, 1, 1), (9, 400, 100)]),
        ([(17, 1)], [(70, 3)], [(23, 50, 400)]),
        ([(600, 3)], [(40, 9), (12, 1)], [(700, 5, 30)]),
        ([(5, 81)], [(29, 30), (11, 1)], [(9, 9, 900), (3, 3, 30), (3, 1, 1)]),
        ([(8, 72)], [(28, 30), (28, 1)], [(8, 9, 900), (3, 3, 30), (3, 1, 1)]),
        ([(9, 500)], [(10, 50), (13, 1)], [(5000, 1, 7)]),
    ):
        m, n, k = (int(np.prod([d[0] for d in dims])) for dims in (rows, columns, depth))
        tables = [number for dims in (rows, columns, depth) for number in (len(dims), *itertools.chain(*dims))]
        results = [np.empty((m, n), kind) for _ in range(2)]
        for crosswise, result in enumerate(results):
            numbers = (m, n, k, 0, 0, 0, 0, n, 2 * crosswise, 0, *tables)
            pointers = (ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data, result.ctypes.data)
            product(pointers, (ctypes.c_int64 * len(numbers))(*numbers))
        a = as_strided(x, [d[0] for d in (*rows, *depth)], [4 * d[1] for d in (*rows, *depth)]).reshape(m, k)
        b = as_strided(y, [d[0] for d in (*depth, *columns)], [4 * d[-1] for d in (*depth, *columns)]).reshape(k, n)
        a, b = a.astype(np.float64), b.astype(np.float64)
        for result in results:
            assert np.all(np.abs(result - a @ b) <= 1e-5 * (np.abs(a) @ np.abs(b)))


@pytest.mark.parametrize("columns", [1, 2, 5, 15, 16])
@pytest.mark.parametrize("rows", [17, 48, 64, 65])
def test_long_sums_of_few_columns(rows: int, columns: int) -> None:
    """The gradient of a layer with few outputs: rows of both operands lie along the sum, which is read where it lies up to 64 rows."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((5003, n)).astype(np.float32) for n in (rows, columns))
    found = np.asarray(fuser.jit(lambda x, y: x.T @ y, backend="c")(x, y))
    a, b = x.T.astype(np.float64), y.astype(np.float64)
    assert np.all(np.abs(found - a @ b) <= 1e-5 * (np.abs(a) @ np.abs(b)))


SYMMETRIC: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "columns": (lambda x, y: x.T @ y, (300, 250)),
    "rows": (lambda x, y: x @ y.T, (611, 90)),
    "few columns": (lambda x, y: x.T @ y, (1000, 193)),
    "even": (lambda x, y: x.T @ y, (700, 384)),
    "a tail": (lambda x, y: x.T @ y / 3.0 + x[0], (300, 450)),
    "a tail that tells rows from columns": (lambda x, y: (x @ y.T) * x[:, :1] - y[:, 0], (333, 140)),
    "batches": (lambda x, y: fnp.einsum("bki,bkj->bij", x, y), (2, 260, 210)),
    "several strips": (lambda x, y: x.T @ y, (5000, 900)),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in SYMMETRIC
        for dtype in (np.float32, np.float64, np.float16, np.int32)
        if name != "several strips" or dtype == np.float32  # the same for all dtypes, and long
    ],
)
def test_a_matrix_times_its_transpose(name, dtype):
    """Half is computed and the rest mirrored: the same bits as the product with a copy, which is computed as a whole."""
    function, shape = SYMMETRIC[name]
    x = (np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype)
    with fuser.config.using(enable_x64=True):
        jitted = fuser.jit(function, backend="c")
        shared = fuser.numpy.asarray(x)
        found = np.asarray(fuser.jit(lambda x: function(x, x), backend="c")(shared))
        np.testing.assert_array_equal(found, np.asarray(jitted(shared, fuser.numpy.array(x))))
        if dtype != np.float16:
            exact = np.asarray(fuser.jit(function, backend="reference")(*[x.astype(np.float64)] * 2))
            np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_a_square_matrix_times_itself_is_not_symmetric():
    x = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    found = np.asarray(fuser.jit(lambda x: x @ x, backend="c")(x))
    np.testing.assert_allclose(found, x.astype(np.float64) @ x, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("columns", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("rows, depth", [(8, 32), (9, 64), (300, 33), (513, 130), (23, 9)])
def test_few_columns(dtype, columns, rows, depth):
    """Vectors of half the length, and lanes along the depth; with an epilogue, in either order of the second matrix, and strided rows."""
    rng = np.random.default_rng(3)
    a = (rng.standard_normal((rows, depth)) * 5).astype(dtype)
    for order in "CF":
        b = np.asarray((rng.standard_normal((depth, columns)) * 5).astype(dtype), order=order)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        with fuser.config.using(enable_x64=True):
            alone = np.asarray(fuser.jit(lambda a, b: a @ b)(a, b))
            further = np.asarray(fuser.jit(lambda a, b: fnp.maximum(a @ b, 1) + 2)(a, b))
            every_other = np.asarray(fuser.jit(lambda a, b: a[::2] @ b)(a, b))
        bound = 2 * depth * (np.finfo(dtype).eps if dtype != np.int32 else 0) * scale
        assert (np.abs(alone - exact) <= bound).all()
        assert (
            np.abs(further - (np.maximum(exact, 1) + 2)) <= bound + np.abs(further) * 1e-6 * (dtype != np.int32)
        ).all()
        assert (np.abs(every_other - exact[::2]) <= bound[::2]).all()


@pytest.mark.parametrize("groups, size, out", [(4, 8, 8), (8, 4, 4), (3, 5, 7), (2, 8, 3), (5, 16, 20)])
def test_products_are_written_where_they_are_wanted(groups, size, out):
    """A product whose result is only transposed has no epilogue: gemm writes each item's rows at their stride."""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((40, groups, size)), rng.standard_normal((groups, size, out))
    x, w = x.astype(np.float32), w.astype(np.float32)
    function = fuser.jit(lambda x, w: fnp.einsum("bgc,gco->bgo", x, w))
    exact = np.einsum("bgc,gco->bgo", x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(np.asarray(function(x, w)), exact, rtol=1e-5, atol=1e-5 * size)
    sources = function.lower(x, w).sources
    assert len(sources) == 1 and "epilogue" not in sources[0].text
    turned = fuser.jit(lambda x, w: fnp.einsum("bgc,gco->obg", x, w))  # columns do not lie dense
    np.testing.assert_allclose(np.asarray(turned(x, w)), exact.transpose(2, 0, 1), rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_from_far_times_a_vector(dtype: str) -> None:
    """Lines of a matrix that caches do not hold are summed one after the other: eight at a time, what is left, and ends of lines."""
    random = np.random.default_rng(0)
    rows = 14_003 if dtype == "float32" else 7_003
    matrix, vector = random.random((rows, 301)).astype(dtype), random.random(301).astype(dtype)
    with fuser.enable_x64():
        found = np.asarray(fuser.jit(fnp.matmul, backend="c")(matrix, vector))
    np.testing.assert_allclose(found, matrix.astype(np.float64) @ vector, rtol=1e-6 if dtype == "float32" else 1e-14)
