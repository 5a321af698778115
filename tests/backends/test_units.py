"""Long programs for the C compiler: equal kernels and loops once, several translation units, the same bits."""

import pathlib
import re

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import config, jit
from fuser.backends.base import KernelSource
from fuser.backends.c import outline, units
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
    loops = re.findall(r"^__attribute__\(\(noinline.*void (loop\d+)\(", text, re.MULTILINE)
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
        ["void k(void **buffers, const int64_t *sizes) {", "  float *restrict out = buffers[0];", *[loop] * 9, "}"]
    )
    known = {}
    assert outline.outline(text, known) == text and known == {}
    told = text.replace("strange", "out").replace("{\n  float", "{\n  const int64_t n = sizes[0];\n  float", 1)
    assert outline.outline(told, known).count("loop0(n, out);") == 9 and len(known) == 1


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
