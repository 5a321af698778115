"""Loops without vector instructions: what the writers say of them agrees with what gcc says, and the user is told."""

from __future__ import annotations

import functools
import re
import subprocess
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax, nn, random
from fuser.backends.base import KernelSource
from fuser.backends.c.backend import translation_unit
from fuser.backends.c.function import symbols
from fuser.errors import PerformanceWarning, ToolchainError
from fuser.runtime import toolchain

N = 1 << 12
F = np.ones(N, np.float32)
D = np.ones(N)
I = np.ones(N, np.int32)
U = np.ones(N, np.uint32)
C = np.ones(N, np.complex64)
H = np.ones(N, np.float16)
B = np.arange(N) % 3 == 0
SQUARE = np.ones((600, 600), np.float32)
THREE = np.ones((N, 3), np.float32)


def function_of_rows(x: Any, m: Any) -> Any:
    """The outer product of sines and numbers, parts of which others read, so that its sines are computed where it is."""
    outer = fnp.sin(x)[:, None] * x
    least, most = fnp.minimum(outer, fnp.sqrt(abs(m))), fnp.maximum(outer, x)
    chosen = fnp.where(least > 0, least * 0.5, x), fnp.where(most > 0, most * 0.5, m.sum(1))
    return outer[:50], *chosen


VECTORISED: dict[str, tuple[Any, ...]] = {
    "product": (lambda x: x * 2, F),
    "exp": (lambda x: fnp.exp(x), F),
    "tan in f64": (lambda x: fnp.tan(x), D),
    "power": (lambda x, y: x**y, F, F),
    "lgamma": (lambda x: lax.lgamma(x), F),
    "bfloat16": (lambda x: x.astype("bfloat16") * 2, F),
    "float16": (lambda x: x * 2 + 1, H),
    "rows of float16": (lambda x: nn.softmax(x.astype("float16")), SQUARE),
    "float16 of bytes": (lambda x: x.astype("int8").astype("float16") * 2, F),
    "choice of float16": (lambda x, b: fnp.where(b, fnp.exp(x), x * 2), H, B),
    "normal": (lambda key: random.normal(key, (N,)), random.key(0)),
    "states of nine in a loop": (
        lambda steps, weights: lax.scan(
            lambda a, x: (nn.logsumexp(a[:, :, None] + weights, axis=1) + x, None), steps[0], steps[1:]
        )[0],
        np.ones((9, 64, 9), np.float32),
        np.ones((9, 9), np.float32),
    ),
    "states of nine in a loop that are differentiated": (
        lambda steps, weights: fuser.grad(
            lambda w: lax.scan(lambda a, x: (nn.logsumexp(a[:, :, None] + w, axis=1) + x, None), steps[0], steps[1:])[
                0
            ].sum()
        )(weights),
        np.ones((9, 64, 9), np.float32),
        np.ones((9, 9), np.float32),
    ),
    "a state of 12 in a loop that reads a table along its columns": (
        lambda table, rows: lax.scan(lambda a, x: (nn.logsumexp(a + x + table, axis=1), a), rows[0], rows)[1],
        np.ones((12, 12), np.float32),
        np.ones((100, 12), np.float32),
    ),
    "a state whose factors several lanes share": (
        lambda factors, inputs: lax.associative_scan(
            lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (factors[..., None] * fnp.ones(16), inputs), axis=1
        )[1],
        np.ones((4, 128, 32), np.float32),
        np.ones((4, 128, 32, 16), np.float32),
    ),
    "normals in a loop": (
        lambda key: lax.fori_loop(
            0, 64, lambda t, x: x * fnp.exp(random.normal(random.fold_in(key, t), (N,))), fnp.ones(N)
        ),
        random.key(0),
    ),
    "a state of 8 in a loop": (
        fuser.vmap(
            lambda rows, t: lax.scan(lambda a, x: ((a[:, None] + t).max(0) * 0.1 + x, None), rows[0], rows[1:])[0],
            (0, None),
        ),
        np.ones((64, 100, 8), np.float32),
        np.ones((8, 8), np.float32),
    ),
    "uniform": (lambda key: random.uniform(key, (N,)), random.key(0)),
    "gelu": (lambda x: nn.gelu(x), F),
    "choice": (lambda x: fnp.where(x > 0, fnp.log(x), 0), F),
    "mask": (lambda x, b: fnp.where(b, x, 2 * x), F, B),
    "mask as number": (lambda x, b: x * b, F, B),
    "not": (lambda b: ~b, B),
    "masks": (lambda a, b: a & b, B, B),
    "mask and test": (lambda x, b: fnp.where(b & (x > 0), x, 1), F, B),
    "truth values and their neighbours around an edge": (
        lambda b: functools.reduce(
            lambda a, steps: a | fnp.roll(b, steps, (0, 1)), [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)], b
        ),
        SQUARE > 0,
    ),
    "two masks": (lambda x, a, b: fnp.where(a & b, x, 1), F, B, B),
    "mask of a part": (lambda x, b: x.at[8:].set(fnp.where(b[8:], x[8:], 2 * x[8:])), F, B),
    "any": (lambda x: fnp.any(x > 0), np.tile(F, 64)),
    "all of rows": (lambda x: fnp.all(x > 0, axis=1), SQUARE),
    "any of columns": (lambda x: fnp.any(x > 0, axis=0), SQUARE),
    "gather": (lambda x, i: x[i] + 1, F, I),
    "gather or fill": (lambda x, i: fnp.take(x, i, mode="fill") + 1, F, I),
    "complex product": (lambda x: x * x + 1, C),
    "complex exp": (lambda x: fnp.exp(x), C),
    "complex exp of a product of real numbers": (lambda x: fnp.exp(1j * (x @ x)), SQUARE),
    "complex abs": (lambda x: abs(x), C),
    "complex quotient": (lambda x: x / (x + 1), C),
    "softmax": (lambda x: nn.softmax(x), SQUARE),
    "columns": (lambda x: fnp.cumsum(x, axis=0), SQUARE),
    "sum of three": (lambda x: x.sum(1), THREE),
    "argmax of three": (lambda x: fnp.argmax(x, axis=1), THREE),
    "argmax": (lambda x: fnp.argmax(x, axis=1), SQUARE),
    "argmax of columns": (lambda x: fnp.argmax(x, axis=0), SQUARE),
    "transposed": (lambda x: x + x.T, SQUARE),
    "reversed": (lambda x: x[::-1] + x, F),
    "divided by a constant": (lambda x: x // 7, I),
    "quotient": (lambda x: x // (x + 1), I),
    "quotient by one number": (lambda x, d: x // d + (x + 1) // d, I, np.int32(7)),
    "remainders by one number": (lambda x, d: x % d + (x + 1) % d + (x + 2) % d, I, np.int32(7)),
    "unsigned quotient": (lambda x: x // (x + 1), U),
    "remainder of bytes": (lambda x: (x % (x + 1)).astype(np.int32), np.ones(N, np.uint8)),
    "odd": (lambda x: fnp.where((x % 2 == 1) & (x > 7), 3 * x + 1, x // 2), I),
    "odd and unsigned": (lambda x: fnp.where((x % 2 != 0) & (x > 7), 3 * x + 1, x // 2), U),
    "three channels and what they share": (lambda x: x - (x[:, 0:1] * 0.2 + x[:, 1:2] * 0.7 + x[:, 2:3] * 0.1), THREE),
    "short rows chosen by tests": (lambda b: fnp.where(b, b.sum(1)[:, None], 0), np.tile(B, 25).reshape(N, 25)),
    "short rows of functions chosen by tests": (
        lambda x, w, b: fnp.where(b, fnp.exp(x * w), x),
        np.ones((N, 13), np.float32),
        np.ones((N, 1), np.float32),
        np.ones((N, 13), bool),
    ),
    "pairs summed under a test": (
        lambda x, b: (d := fnp.maximum(x[:, None] - x, 0), fnp.where(b[:, None] & b, d, 0).sum((0, 1)), b[:, None] & b),
        np.ones(200, np.float32),
        np.ones(200, bool),
    ),
    "tests of numbers of several sizes": (lambda x, b: fnp.where((x % 3 == 0) & b, False, b), I, B),
    "bits": (lambda x: lax.population_count(x) + lax.clz(x), U),
    "lanes beside an edge": (
        lambda x: lax.scan(lambda c, row: (c * 0.5 + row, c), fnp.zeros(600), fnp.pad(x, ((1, 0), (0, 0)))[:-1].T)[1],
        SQUARE,
    ),
    "running sum": (lambda x: fnp.cumsum(x * 2, axis=1) + x, SQUARE),
    "running product from the end": (lambda x: lax.cumprod(x, axis=0, reverse=True), F),
    "remainder": (lambda x: fnp.fmod(x, x + 1), F),
    "argmax beside a sum": (lambda x: fnp.argmax(x, axis=1) + x.sum(1), SQUARE),
    "running sum that is summed": (lambda x: fnp.cumsum(x, axis=1).sum(1), SQUARE),
    "every second element, backwards": (lambda x: fnp.sin(x[::-2]), F),
    "columns backwards": (lambda x: x[::-1].T * 2, np.ones((N, 8), np.float32)),
    "a function of each row": (function_of_rows, F[:1000], np.ones((1000, 1000), np.float32)),
    "many functions in what rows leave after their whole vectors": (
        lambda x: sum(fnp.exp(x[:, i : i - 27] * 0.1) for i in range(12)),
        SQUARE,
    ),
    "many functions in short rows that are summed": (
        lambda x: [nn.softmax(x * (i + 1)) for i in range(12)],
        np.ones((200, 31), np.float32),
    ),
    "lanes": (lambda x: lax.fori_loop(0, 10, lambda n, c: c * c + n, x), F),
}
SCALAR: dict[str, tuple[str, Any, Any]] = {
    "running maximum": ("prefix scan", lambda x: lax.cummax(x), F),
    "recurrence": ("loop-carried dependence", lambda x: lax.scan(lambda c, y: (c * 0.5 + y, c), np.float32(0), x), F),
    "argmax of short rows of 64 bits": (
        "argmax and argmin",
        lambda x: fnp.argmax(x, 1),
        np.ones((8, 33), np.uint64),
    ),
    "complex arc sine": ("complex asin", lambda x: fnp.arcsin(x), C),
    "repeated": ("integer division", lambda x: fnp.repeat(x, 11) + 1, F),
    "gather of bytes": ("gathers of uint8", lambda x: x[x.astype(np.int32) * 5000], I[:100].astype(np.uint8)),
}


def gcc() -> str:
    try:
        compiler = toolchain.find_compiler()
    except ToolchainError:
        pytest.skip("there is no C compiler")
    if "clang" in toolchain.compiler_version(compiler) or "avx2" not in toolchain.processor():
        pytest.skip("the reasons are those of gcc where processors gather")
    return compiler


def sources(function: Any, *args: Any) -> tuple[KernelSource, ...]:
    return fuser.jit(function, backend="c").lower(*args).sources


def loops(text: str) -> Iterator[tuple[int, int]]:
    """First and last line of the innermost loops that read or write arrays of the program, and are to have vectors."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not re.match(r"\s*for \(.*\{$", line):
            continue
        indent = len(line) - len(line.lstrip())
        end = next(n for n in range(start + 1, len(lines)) if len(lines[n]) - len(lines[n].lstrip()) <= indent)
        body = "\n".join(lines[start + 1 : end])
        copies = "__builtin_memcpy" in body or "spread_" in body  # of rows in pieces: vectors as they are
        if "for (" not in body and "__asm__" not in body and not copies and re.search(r"\b(in|out|tile)\d+\)?\[", body):
            yield start, end


def said_of(source: KernelSource, compiler: str, folder: Any) -> tuple[str, str]:
    """What gcc says of a kernel's loops, and the text that it was given."""
    unit = translation_unit(source.text, symbols(source.code.parts))
    (folder / "kernel.c").write_text(unit)
    command = [
        compiler,
        *toolchain.FLAGS,
        *toolchain.tuning(compiler),
        "-fopt-info-vec-optimized-missed",
        "kernel.c",
        "-o",
        "kernel.so",
        "-lm",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr, unit


def left_scalar(source: KernelSource, compiler: str, folder: Any) -> bool:
    """Whether gcc gave up one of the kernel's loops."""
    said, unit = said_of(source, compiler, folder)
    vectorised = {int(n) for n in re.findall(r"kernel\.c:(\d+):\d+: optimized: loop vectorized", said)}
    missed = {int(n) for n in re.findall(r"kernel\.c:(\d+):\d+: missed: couldn't vectorize loop", said)}
    first = unit[: unit.index(source.text)].count("\n") + 1
    spans = [set(range(first + start - 1, first + end + 1)) for start, end in loops(source.text)]
    assert spans
    return any(span & missed and not span & vectorised for span in spans)


def test_choices_by_bools_are_summed_in_vectors(tmp_path: Any) -> None:
    """gcc took two numbers at a time in loops of 16 lanes, as a vector of bytes has 64: masked sums of exponentials took five times JAX's time."""
    x, some = (
        np.linspace(-3, 3, 50 * 257, dtype=np.float32).reshape(50, 257),
        np.arange(50 * 257).reshape(50, 257) % 3 == 0,
    )
    masked = lambda x, b: fnp.sum(fnp.where(b, fnp.exp(x), 0), axis=-1)
    (source,) = sources(masked, x, some)
    said, unit = said_of(source, gcc(), tmp_path)
    lines = unit.splitlines()
    vectors = re.findall(r"kernel\.c:(\d+):\d+: optimized: loop vectorized using (\d+) byte vectors", said)
    of_lanes = [int(size) for line, size in vectors if "lane" in lines[int(line) - 1]]
    assert of_lanes and min(of_lanes) >= 16
    expected = np.where(some, np.exp(x.astype(np.float64)), 0).sum(-1)
    np.testing.assert_allclose(fuser.jit(masked, backend="c")(x, some), expected, rtol=1e-6)


@pytest.mark.parametrize("name", VECTORISED)
def test_vectorised_loops(name: str, tmp_path: Any) -> None:
    compiler = gcc()
    for source in sources(*VECTORISED[name]):
        assert "scalar" not in source.launch
        assert not left_scalar(source, compiler, tmp_path), source.text


@pytest.mark.parametrize("name", SCALAR)
def test_loops_that_are_not_vectorised_have_a_reason(name: str, tmp_path: Any) -> None:
    words, function, x = SCALAR[name]
    with fuser.enable_x64(x.dtype == np.uint64):
        with_reason = [s for s in sources(function, x) if "scalar" in s.launch]
    (source,) = with_reason
    reason, count = source.launch["scalar"]
    assert words in reason and count >= x.size
    assert left_scalar(source, gcc(), tmp_path), source.text


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_quotients_of_64_bits_are_vectors_where_these_become_doubles(dtype: Any, tmp_path: Any) -> None:
    with fuser.enable_x64():
        (source,) = sources(lambda x: x // (x + 1), np.ones(N, dtype))
    alone = "avx512dq" not in toolchain.processor()
    assert ("scalar" in source.launch) is alone
    assert left_scalar(source, gcc(), tmp_path) is alone, source.text
    assert not alone or "division of 64-bit integers" in source.launch["scalar"][0]


@pytest.mark.parametrize("extent", [8, 16, 24, 48])
def test_short_rows_with_bytes_in_them(extent: int) -> None:
    """gcc takes numbers one by one of what is left over of a vector of bytes, unless it is told of half of one."""
    some = np.arange(1000 * 2 * extent).reshape(1000, 2, extent) % 3 == 0
    x = np.ones((1000, extent), np.float32)
    choose = fuser.jit(lambda x, b: fnp.where(b[:, 0], 0, x) + fnp.where(b[:, 1], 1, x), backend="c")
    plain = fuser.jit(lambda x, b: b[:, 0] * x + b[:, 1], backend="c")
    wide = some.astype(np.float32)

    def seconds(function: Any, *args: Any) -> float:
        function(*args)
        times = []
        for _ in range(20):
            start = time.thread_time()
            function(*args)
            times.append(time.thread_time() - start)
        return min(times)

    values = [fuser.numpy.asarray(v) for v in (x, some, wide)]
    assert seconds(choose, values[0], values[1]) < 4 * seconds(plain, values[0], values[2])


def test_quotients_of_64_bits(tmp_path: Any) -> None:
    with fuser.enable_x64(True):
        (source,) = sources(lambda x: x // (x + 1) + x % 7, np.ones(N, np.int64))
    assert ("scalar" in source.launch) == left_scalar(source, gcc(), tmp_path)


@pytest.mark.parametrize(("function", "x"), [(lambda x: x + 1, H), (lambda x: x.astype(np.float16), F)])
def test_half_precision(function: Any, x: np.ndarray, tmp_path: Any) -> None:
    (source,) = sources(function, x)
    assert ("scalar" in source.launch) == left_scalar(source, gcc(), tmp_path)
    assert "float16" in source.launch.get("scalar", ("float16",))[0]


def test_explain_says_why() -> None:
    step, double = lambda x: lax.cummax(x * 2), lambda x: x * 2
    (explained,) = fuser.explain(step)(F).steps
    assert explained.scalar.startswith("this prefix scan has a loop-carried dependence")
    assert f"\n      not vectorised: {explained.scalar}\n" in str(fuser.explain(step)(F))
    assert "not vectorised: " not in str(fuser.explain(double)(F))


def test_reasons_inside_of_bundles_and_loops() -> None:
    (bundle,) = sources(lambda x, y: (x // (x + 1), lax.cummax(y)), I[:100], F[:200])
    assert bundle.launch["scalar"][1] == 200
    (loop,) = sources(
        lambda x: lax.scan(lambda c, _: (fnp.sort(fnp.arcsin(c + 1j).real), None), x, None, length=7)[0], F
    )
    assert loop.launch["scalar"][1] == 7 * N and "complex asin" in loop.launch["scalar"][0]


def told(function: Any, x: np.ndarray) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fuser.jit(function, backend="c")(x)
    assert all(one.category is PerformanceWarning and one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def test_large_ones_are_worth_a_warning() -> None:
    large = np.ones((1024, 1024), np.float32)
    [text] = told(lambda x: lax.cummax(x, axis=1) * 2, large)
    assert re.fullmatch(
        r"<lambda> has a kernel without vector instructions: k0_cummax_mul \(test_vectorised.py:\d+\), 1,048,576 elements: this "
        r"prefix scan has a loop-carried dependence; along an axis other than the last it is vectorised "
        r"\(test_vectorised.py:\d+\)",
        text,
    )
    assert told(lambda x: lax.cummax(x, axis=0) * 2, large) == []
    assert told(lambda x: lax.cummax(x, axis=1) * 2, large[:100]) == []


def test_elements_read_backwards_beside_numbers_of_another_size_come_first() -> None:
    """gcc has vectors of one size alone for elements that are read backwards: they are read into a block."""
    x = np.random.default_rng(0).normal(size=(130, 300)).astype(np.float32)
    mask, small = x[0] > 0, (x * 3).astype(np.int8)

    def program(np_: Any, x: Any, mask: Any, small: Any) -> Any:
        turned = np_.flip(x, 1)
        return np_.where(mask, turned, x * 2), np_.sin(turned) * small, np_.flip(small, 1) + 1

    lowered = fuser.jit(lambda *a: program(fnp, *a)).lower(x, mask, small)
    assert any("in1_block" in s.text or "_block[" in s.text for s in lowered.sources)
    found = lowered.compile()(x, mask, small)
    for ours, theirs in zip(found, program(np, x, mask, small), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=1e-6)


def test_choices_by_a_column_run_in_vectors() -> None:
    """A truth value of each column, read in every row, is as wide as the numbers that it chooses between."""
    x = np.random.default_rng(0).normal(size=(40, 300)).astype(np.float32)

    def program(np_: Any, x: Any, mask: Any) -> Any:
        centred = x - np_.max(x, axis=0, keepdims=True)
        return np_.where(mask & (x[0] < 1), x[0], np_.sin(centred)) - x

    lowered = fuser.jit(lambda *a: program(fnp, *a)).lower(x, x[1] > 0)
    assert "int32_t v" in lowered.sources[0].text and "_Bool v" not in lowered.sources[0].text.split("omp for")[-1]
    np.testing.assert_allclose(np.asarray(lowered.compile()(x, x[1] > 0)), program(np, x, x[1] > 0), atol=1e-5)


def test_values_behind_a_gather_are_priced_by_how_often_they_are_read() -> None:
    """The sines of a vector, spread over a matrix of which rows are taken, are computed once each."""
    x, rows = np.ones(1_000, np.float32), np.arange(500, dtype=np.int32)
    plan = fuser.jit(lambda x, rows: fnp.sin((fnp.sin(x)[:, None] * x[None, :])[rows])).lower(x, rows).plan
    assert len(plan.kernels) == 2, plan.explain()


def test_columns_found_by_index_are_not_gathered_in_each_row() -> None:
    """A gather of single elements costs more than an addition, as often as it is repeated."""
    row, columns = np.arange(200, dtype=np.float32), np.arange(64, dtype=np.int32)
    lowered = fuser.jit(lambda row, i, m: fnp.sin(row[i] * m)).lower(row, columns, np.ones((2_000, 64), np.float32))
    assert len(lowered.plan.kernels) == 2, lowered.plan.explain()
    small = fuser.jit(lambda row, i, m: fnp.sin(row[i] * m)).lower(row, columns, np.ones((3, 64), np.float32))
    assert len(small.plan.kernels) == 1, small.plan.explain()


def test_tests_of_rows_stand_before_their_vector_loops() -> None:
    """gcc writes a loop for each outcome of a test that a loop does not change, and takes none of them into vectors."""

    def sampled(x: Any) -> Any:
        rows, columns = fnp.meshgrid(fnp.arange(100.0), fnp.arange(80.0), indexing="ij")
        return fuser.scipy.ndimage.map_coordinates(x, [rows * 0.9 - 3, columns * 0.9 + 5], order=1)

    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    (source,) = fuser.jit(sampled).lower(x).sources
    before, *_ = source.text.split("#pragma omp simd")
    assert "__builtin_floorf" in before and "(int32_t)" in before
    np.testing.assert_allclose(fuser.jit(sampled)(x), fuser.jit(sampled, backend="reference")(x), atol=1e-5)
