"""Long programs for the C compiler: equal kernels and loops once, several translation units, the same bits."""

import pathlib
import re

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import config, jit
from fuser.backends.base import KernelSource
from fuser.backends.c import maths, numbers, outline, units
from fuser.backends.c.backend import translation_unit
from fuser.errors import ToolchainError
from fuser.runtime import toolchain

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((24, 40)).astype(np.float32)


@pytest.fixture
def fresh(monkeypatch):
    """No kernel is known to this process yet."""
    monkeypatch.setattr(units, "_symbols", {})


def deep(layers):
    """Layers whose equal loops land in few kernels, under other names."""

    def function(x):
        kept = [x]
        for _ in range(layers):
            y = fnp.tanh(kept[-1] * 0.5 + 0.25) - kept[len(kept) // 2]
            y = y - fnp.sum(y, axis=1, keepdims=True)
            y = y / (1 + fnp.max(abs(y), axis=1, keepdims=True))
            kept.append(fnp.maximum(y, 0.1 * y) * fnp.exp(-y))
        return kept[-1], fnp.prod(kept[-1], axis=1)

    return function


def test_loops_become_functions_and_equal_loops_one(fresh):
    sources = jit(deep(12), backend="c").lower(X).sources
    [text] = units.translation_units(sources, translation_unit, 1)
    loops = re.findall(r"^__attribute__\(\(noinline.* (loop\d+)\(.*{$", text, re.MULTILINE)
    before = sum(source.text.count("#pragma omp simd") for source in sources)
    assert len(loops) == len(set(loops)) < before / 2
    assert text.count("#pragma omp simd") < before
    for loop in loops:
        assert text.count(f"{loop}(") >= 2  # its definition, and a call


def test_the_bits_are_those_of_kernels_left_whole(fresh, monkeypatch):
    split = [np.asarray(r) for r in jit(deep(12), backend="c")(X)]
    monkeypatch.setattr(outline, "MANY", 10**9)
    monkeypatch.setattr(units, "_symbols", {})
    whole = [np.asarray(r) for r in jit(deep(12), backend="c")(X)]
    for a, b in zip(split, whole):
        np.testing.assert_array_equal(a, b)
    with config.using(backend="reference"):
        for a, b in zip(split, jit(deep(12))(X)):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


def test_several_translation_units_call_each_others_loops(fresh, monkeypatch):
    monkeypatch.setattr(units, "LONG", 2000)
    monkeypatch.setattr(units, "cpu_count", lambda: 3)
    sources = jit(deep(12), backend="c").lower(X).sources
    texts = units.translation_units(sources, translation_unit, 3)
    assert len(texts) == 3
    assert max(map(len, texts)) < 0.8 * sum(map(len, texts))
    split = [np.asarray(r) for r in jit(deep(12), backend="c")(X)]
    monkeypatch.setattr(units, "_symbols", {})
    monkeypatch.setattr(units, "cpu_count", lambda: 1)
    for a, b in zip(split, jit(deep(12), backend="c")(X)):
        np.testing.assert_array_equal(a, b)


def test_equal_kernels_are_compiled_once(fresh):
    def layers(x, weights):
        for w in weights:
            x = fnp.tanh(fnp.dot(x, w) * 0.3)
            x = x - fnp.mean(x, axis=0)
        return x

    weights = [RANDOM.standard_normal((40, 40)).astype(np.float32) for _ in range(6)]
    with config.using(cache=False):
        compiled = jit(layers, backend="c").lower(X, weights).compile()
    kernels = len(compiled.sources)
    assert kernels >= 6 and compiled.program.loaded.compiled < kernels / 2
    with config.using(backend="reference"):
        expected = jit(layers)(X, weights)
    np.testing.assert_allclose(
        compiled(fnp.asarray(X), [fnp.asarray(w) for w in weights]), expected, rtol=1e-4, atol=1e-5
    )
    again = (
        jit(lambda x, w: layers(x, w), backend="c").lower(X, weights).compile()
    )  # another program of the same kernels
    assert again.program.loaded.compiled == 0


def test_kernels_that_differ_in_a_number_are_two():
    a = KernelSource("k0_mul", "// a.py:1\nvoid k0_mul(void **b) { k0_mul_part(2.0f); }", "c")
    b = KernelSource("k7_mul", "// b.py:9\nvoid k7_mul(void **b) { k7_mul_part(2.0f); }", "c")
    c = KernelSource("k0_mul", "void k0_mul(void **b) { k0_mul_part(3.0f); }", "c")
    assert units.kernel(a) == units.kernel(b) != units.kernel(c)


def test_a_loop_with_an_unknown_name_stays():
    loop = "  #pragma omp simd\n  for (int64_t j = 0; j < n; ++j) {\n    out[j] = strange[j];\n  }"
    text = "\n".join(
        ["void k(void **buffers, const int64_t *sizes) {", "  float *restrict out = buffers[0];", *[loop] * 10, "}"]
    )
    taken = outline.Outline()
    assert taken.take(text) == text and taken.functions() == {}
    told = text.replace("strange", "out").replace("{\n  float", "{\n  const int64_t n = sizes[0];\n  float", 1)
    taken = outline.Outline()
    told = taken.take(told)
    assert taken.kernel(told).count("loop0(n, out);") == 10 and len(taken.functions()) == 1


def test_loops_that_differ_in_rows_and_numbers_share_a_function():
    def kernel(number, row):
        loop = [
            "    #pragma omp simd reduction(+:total)",
            "    for (int64_t j = 0; j < s0; ++j) {",
            f"      const float v = in0[{row} * i + j] * {number}f + 0.5f;",
            f"      out0[{row} * i + j] = v;",
            "      total = total + v;",
            "    }",
        ]
        return "\n".join(
            [
                "void k(void **buffers, const int64_t *sizes) {",
                "  const float *restrict in0 = buffers[0];",
                "  float *restrict out0 = buffers[1];",
                "  const int64_t s0 = sizes[0];",
                "  const int64_t s1 = sizes[1];",
                "  const int64_t s2 = sizes[2];",
                "  float total = 0.0f;",
                "  for (int64_t i = 0; i < s0; ++i) {",
                *loop * 10,
                "  }",
                "}",
            ]
        )

    taken = outline.Outline()
    marked = [taken.take(kernel(2.0, "s1")), taken.take(kernel(3.0, "s2"))]
    [(_, function)] = taken.functions().values()
    assert "p3[t0] * number0 + 0.5f" in function.replace("p2", "p3") and "return" in function
    first, second = map(taken.kernel, marked)
    assert first.count("total = loop0(total, s0, in0 + s1 * i, out0 + s1 * i, 2.0f);") == 10
    assert second.count("total = loop0(total, s0, in0 + s2 * i, out0 + s2 * i, 3.0f);") == 10
    assert first.count(outline.CALLER) == 1  # what is left only calls


def test_kernels_that_differ_in_numbers_are_compiled_once(fresh):
    def rates(x, w):
        results = []
        for rate in (0.5, 0.25, 1e-3, 7.0):
            x = fnp.tanh(fnp.dot(x, w) * 0.01 + rate) * rate  # the number is in the tail of a product
            results.append(fnp.sum(fnp.exp(x * rate), axis=0) - rate)
        return results

    w = RANDOM.standard_normal((40, 40)).astype(np.float32)
    for dtype in (np.float32, np.float64):
        x, weight = X.astype(dtype), w.astype(dtype)
        with config.using(cache=False):
            compiled = jit(rates, backend="c").lower(x, weight).compile()
        assert compiled.program.loaded.compiled <= len(compiled.sources) - 2
        with config.using(backend="reference"):
            expected = jit(rates)(x, weight)
        for a, b in zip(compiled(fnp.asarray(x), fnp.asarray(weight)), expected):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_numbers_of_a_kernel_whose_sizes_are_not_known_stay():
    texts = [
        f"static void k{n}_inner(const int64_t *sizes) {{\n  use({n}.5f);\n}}\n"
        f"void k{n}(void **buffers, const int64_t *sizes) {{\n  k{n}_inner(sizes + 3);\n}}"
        for n in range(2)
    ]
    sources = [KernelSource(f"k{n}", text, "c", launch={"sizes": (1, 2, 3, 4)}) for n, text in enumerate(texts)]
    assert numbers.shared(sources) == [(source, ()) for source in sources]
    plain = [KernelSource(s.name, s.text.replace("_inner(const", "_tail(const"), "c", launch=s.launch) for s in sources]
    assert numbers.shared(plain) == [(source, ()) for source in plain]
    alone = [
        KernelSource(f"k{n}", f"void k{n}(void **buffers, const int64_t *sizes) {{\n  use({n}.5f);\n}}", "c",
                     launch={"sizes": (1, 2)})
        for n in range(2)
    ]  # fmt: skip
    (first, (one,)), (second, (two,)) = numbers.shared(alone)
    assert first is second and "sizes[2]" in first.text and one != two


def test_functions_that_a_long_kernel_calls_often_are_compiled_once(fresh, monkeypatch):
    def function(x):
        for n in range(12):
            x = fnp.sin(x + n) + fnp.arctan(x) * fnp.tanh(x * n)
        return x, fnp.log1p(x * x)

    def bits():
        monkeypatch.setattr(units, "_symbols", {})
        with config.using(cache=False):
            results = jit(function, backend="c")(X * 1e6)
        return [np.asarray(result).tobytes() for result in results]

    monkeypatch.setattr(maths, "MANY", 1)
    [text] = units.translation_units(jit(function, backend="c").lower(X).sources, translation_unit, 1)
    apart = [name for name in ("sin", "atan", "tanh", "log1p") if f"APART float {name}_f32(float x) {{" in text]
    assert apart == ["sin", "atan", "tanh"]
    called = bits()
    monkeypatch.setattr(maths, "MANY", 10**9)
    assert called == bits()


def test_a_refusal_names_the_file_that_was_refused():
    good = "int good(void) { return 1; }\n"
    with pytest.raises(ToolchainError, match="refused generated code") as caught:
        toolchain.compile_shared(good, "int bad(void) { return nothing; }\n")
    path = re.search(r"is kept in (\S+);", str(caught.value))[1]
    assert "nothing" in pathlib.Path(path).read_text()
    assert path in str(caught.value).split("it says:")[1]


def test_units_are_linked():
    library = toolchain.compile_shared(
        "int other(void);\nint one(void) { return other() + 1; }\n", "int other(void) { return 41; }\n"
    )
    assert toolchain.load_shared(library.path).one() == 42


def test_long_loops_that_are_alike_become_one_function(fresh, monkeypatch):
    def steps(h, u):
        for _ in range(2):
            slope = (fnp.roll(h, -1, 1) - fnp.roll(h, 1, 1)) * 0.5 - (fnp.roll(u, -1, 0) - fnp.roll(u, 1, 0)) * h
            h, u = h - 0.1 * slope * u, u + 0.1 * fnp.roll(h, 1, 0) * slope
        return h, u

    h, u = RANDOM.standard_normal((2, 300, 200)).astype(np.float32)

    def text_and_bits():
        monkeypatch.setattr(units, "_symbols", {})
        [text] = units.translation_units(jit(steps, backend="c").lower(h, u).sources, translation_unit, 1)
        return text, [np.asarray(result).tobytes() for result in jit(steps, backend="c")(h, u)]

    text, bits = text_and_bits()
    functions = re.findall(r"^__attribute__\(\(noinline.* (loop\d+)\(.*{$", text, re.MULTILINE)
    assert functions and all(text.count(f"{name}(") > outline.LIKE for name in functions)
    monkeypatch.setattr(outline, "LIKE", 10**3)
    assert "loop0" not in text_and_bits()[0] and text_and_bits()[1] == bits
    with config.using(backend="reference"):
        for a, b in zip(bits, jit(steps)(h, u)):
            np.testing.assert_allclose(np.frombuffer(a, np.float32), np.asarray(b).ravel(), rtol=1e-4, atol=1e-4)


def test_the_parts_of_a_bundle_are_compiled_beside_their_caller(fresh, monkeypatch):
    def bodies(p, v, m):
        for _ in range(6):
            d = p[None] - p[:, None]
            r = fnp.sqrt(fnp.sum(d * d, -1) + 1e-3)
            v = v + 0.1 * fnp.sum(d * (m[None, :] / (r * r * r))[..., None], 1)
            p = p + 0.1 * v * fnp.tanh(p)
        return p, v

    arguments = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((16, 3), (16, 3), (16,))]
    monkeypatch.setattr(units, "LONG", 1500)
    monkeypatch.setattr(units, "cpu_count", lambda: 2)
    [source] = jit(bodies, backend="c").lower(*arguments).sources
    assert outline.CALLER in source.text
    texts = units.translation_units([source], translation_unit, 2)
    parts = set(re.findall(r"^  (k\w+)\(\(void", source.text, re.MULTILINE))
    assert len(texts) == 2 and len(parts) > 1
    for part in parts:  # one definition, and a prototype where the other file calls it
        assert sum(len(re.findall(rf"void {part}\(void .*{{$", text, re.MULTILINE)) for text in texts) == 1
    apart = [np.asarray(result).tobytes() for result in jit(bodies, backend="c")(*arguments)]
    monkeypatch.setattr(units, "_symbols", {})
    monkeypatch.setattr(units, "cpu_count", lambda: 1)
    assert apart == [np.asarray(result).tobytes() for result in jit(bodies, backend="c")(*arguments)]


def test_a_part_that_only_calls_can_be_called_from_another_file() -> None:
    """It is marked as what only calls, and was once left static, so that the library had a name without a function."""
    signature = "(void **buffers, const int64_t *sizes)"
    part = f"static __attribute__((noinline)) void part_share{signature} {{\n}}\n\n{outline.CALLER}static void part{signature} {{\n  loop0();\n}}\n"
    kernel = f"{part}\n{outline.CALLER}void whole{signature} {{\n  part(buffers, sizes);\n}}"
    functions: dict[str, tuple[str, str]] = {}
    left = units.parted(kernel, functions)
    assert list(functions) == ["part"] and left.startswith(f"{outline.CALLER}void whole")
    prototype, text = functions["part"]
    assert "static void part(" not in text and "void part_share(" in text
    assert prototype.rstrip(";") in text and outline.CALLER in text
