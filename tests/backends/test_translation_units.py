"""Long programs for the C compiler: equal kernels and loops once, several translation units, the same bits."""

import pathlib
import re
from collections import Counter
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import config, jit, lax
from fuser.backends.base import KernelSource
from fuser.backends.c import math
from fuser.backends.c.backend import translation_unit
from fuser.backends.c.builder import Builder
from fuser.backends.c.compilation import literal_arguments, outlining, translation_units
from fuser.backends.c.function import (
    Do,
    Element,
    For,
    Function,
    Module,
    Number,
    Own,
    Sum,
    Symbol,
    Variable,
    code,
    leaves,
    spelt,
    walk,
)
from fuser.errors import ToolchainError
from fuser.ir.types import is_complex
from fuser.runtime import toolchain

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((24, 40)).astype(np.float32)


@pytest.fixture
def fresh(monkeypatch):
    """No kernel is known to this process yet."""
    monkeypatch.setattr(translation_units, "_symbols", {})


def modules(function, *arguments):
    """The kernels of a program, as data."""
    return [source.code for source in jit(function, backend="c").lower(*arguments).sources]


def loops_of(kernels):
    return [s for kernel in kernels for f in kernel.functions for s in walk(f.body) if isinstance(s, For)]


def outlined(kernels):
    """The loops taken out of kernels, and what is left of those."""
    found = outlining.Outline()
    return found, [found.take(kernel) for kernel in kernels]


def kernel(name, write, **fields):
    """A kernel of one function, whose statements `write` gives to a builder."""
    builder = Builder()
    write(builder)
    return Module(name, (Function(Own(), tuple(builder.statements), **fields),))


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


def test_loops_become_functions_and_equal_loops_one():
    kernels = modules(deep(12), X)
    found, left = outlined(kernels)
    before = sum(loop.vector for loop in loops_of(kernels))
    assert 0 < len(found.functions()) < before / 2
    assert min(Counter(call.function for call in found.calls).values()) >= 1 and len(found.calls) > before / 2
    assert sum(loop.vector for loop in loops_of(left)) == before - len(found.calls)


def test_short_loops_have_no_others_taken_out():
    def write(count):
        def written(b):
            for n in range(count):
                b.pragma("omp simd")
                b.count(f"i{n}", "0", "9")
                b.var("float", f"t{n}", "1")
                b.close()

        return written

    long, short = kernel("k", write(outlining.MANY - 1)), kernel("k", write(outlining.MANY), short_loops=True)
    found, [left] = outlined([Module("k", (*long.functions, *short.functions))])
    assert not found.calls and len(loops_of([left])) == 2 * outlining.MANY - 1


def test_the_bits_are_those_of_kernels_left_whole(fresh, monkeypatch):
    split = [np.asarray(r) for r in jit(deep(12), backend="c")(X)]
    monkeypatch.setattr(outlining, "MANY", 10**9)
    monkeypatch.setattr(translation_units, "_symbols", {})
    whole = [np.asarray(r) for r in jit(deep(12), backend="c")(X)]
    for a, b in zip(split, whole):
        np.testing.assert_array_equal(a, b)
    with config.using(backend="reference"):
        for a, b in zip(split, jit(deep(12))(X)):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


def test_several_translation_units_call_each_others_loops(fresh, monkeypatch):
    monkeypatch.setattr(translation_units, "LONG", 2000)
    monkeypatch.setattr(translation_units, "cpu_count", lambda: 3)
    texts = translation_units.translation_units(modules(deep(12), X), translation_unit, 3)
    assert len(texts) == 3
    assert max(map(len, texts)) < 0.8 * sum(map(len, texts))
    split = [np.asarray(r) for r in jit(deep(12), backend="c")(X)]
    monkeypatch.setattr(translation_units, "_symbols", {})
    monkeypatch.setattr(translation_units, "cpu_count", lambda: 1)
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
    def source(name, number, comment):
        call = lambda builder: builder.do("{}({});", Own("_part"), Number(number, "float"))
        return KernelSource(name, kernel(name, call, comments=(comment,)), "c")

    a, b, c = source("k0_mul", "2.0f", "a.py:1"), source("k7_mul", "2.0f", "b.py:9"), source("k0_mul", "3.0f", "a.py:1")
    assert translation_units.key(a) == translation_units.key(b) != translation_units.key(c)
    assert "k7_mul_part(2.0f)" in b.text and "k7_mul" not in a.renamed("k9").text


def rows(number="2.0f", row="s1", effect=False, kind="float"):
    """A kernel of ten loops over the rows of an array, each of which scales it and adds it up."""

    def write(b):
        for name in ("in0", "out0"):
            b.pointer(f"{kind} *restrict", kind, name, "buffers[0]")
        for name in ("s0", "s1", "s2"):
            b.let("int64_t", name, "sizes[0]")
        total = b.var(kind, "total", Number("0.0f", "float"))
        i = b.count("i", "0", b.named("s0"))
        for _ in range(10):
            b.pragma("omp simd reduction(+:{})", total)
            j = b.count("j", "0", b.named("s0"))
            place = b.code("{} * {}", b.named(row), i), j
            v = b.let(kind, "v", "{} * {} + {}", b.at("in0", *place), Number(number, "float"), Number("0.5f", "float"))
            b.set(b.at("out0", *place), v)
            b.set(total, "{} + {}", total, v)
            if effect:
                b.do("{}();", Symbol("strange"))
            b.close()
        b.close()

    return kernel("k", write)


def test_a_loop_with_unknown_effects_stays():
    found, [left] = outlined([rows(effect=True)])
    assert found.functions() == {} and [len(f.body) for f in left.functions] == [7]
    assert len(loops_of([left])) == len(loops_of([rows()]))


def test_loops_that_differ_in_rows_and_numbers_share_a_function():
    found, marked = outlined([rows("2.0f", "s1"), rows("3.0f", "s2")])
    [function] = found.functions().values()
    kinds = [(kind, variable.pointer) for kind, variable in function.parameters]
    assert kinds == [("float", False), ("int64_t", False), ("const float *", True), ("float *", True), ("float", False)]
    assert function.returns == "float"
    for call, row, number in ((found.calls[0], "s1", "2.0f"), (found.calls[-1], "s2", "3.0f")):
        assert call.target.name == "total" and [n.text for n in call.numbers] == [number, "0.5f"]
        assert [spelt(a) for a in call.arguments] == ["total", "s0", f"in0 + {row} * i", f"out0 + {row} * i"]
    for kernel in map(found.kernel, marked):
        [entry] = kernel.functions
        assert entry.calling and len(loops_of([kernel])) == 1  # what is left only calls


def ordered(write):
    """A kernel of ten loops of which `write(builder, j)` writes the body."""

    def loops(b):
        for name in ("in0", "in1", "out0", "out1"):
            b.pointer("float *restrict", "float", name, "buffers[0]")
        b.var("float", "total", Number("0.0f", "float"))
        for _ in range(10):
            b.pragma("omp simd")
            write(b, b.count("j", "0", "100"))
            b.close()

    return kernel("k", loops)


def test_loops_that_differ_in_the_order_of_their_statements_share_a_function():
    def first(b, j):
        v = b.let("float", "v", "{} - {}", b.at("in0", j), b.at("in1", j))
        b.set(b.at("out0", j), v)
        w = b.let("float", "w", "sinf({}) * {}", v, b.at("in1", j))
        b.set(b.at("out1", j), w)
        b.set(b.named("total"), "{} + {}", b.named("total"), w)

    def second(b, j):
        y, x = b.let("float", "y", b.at("in1", j)), b.let("float", "x", b.at("in0", j))
        v = b.let("float", "v", "{} - {}", x, y)
        w = b.let("float", "w", "sinf({}) * {}", v, y)
        b.set(b.named("total"), "{} + {}", b.named("total"), w)
        b.set(b.at("out1", j), w)
        b.set(b.at("out0", j), v)

    def another(b, j):
        y, x = b.let("float", "y", b.at("in1", j)), b.let("float", "x", b.at("in0", j))
        v = b.let("float", "v", "{} - {}", y, x)
        b.set(b.at("out0", j), v)

    found, _ = outlined([ordered(write) for write in (first, second, another)])
    assert [call.function for call in found.calls[::10]] == [0, 0, 1]


def test_a_loop_that_reads_what_it_stores_keeps_its_order():
    def before(b, j):
        v = b.let("float", "v", b.at("out0", j))
        b.set(b.at("out0", j), "{} + {}", v, b.at("in0", j))
        b.set(b.at("out1", j), v)

    def after(b, j):
        b.set(b.at("out0", j), "{} + {}", b.at("out0", j), b.at("in0", j))
        b.set(b.at("out1", j), b.at("out0", j))

    found, _ = outlined([ordered(before), ordered(after)])
    texts = [function.text() for function in found.functions().values()]
    assert len(texts) == 2 and texts[1].count("p0[t0]") == 3


def test_types_of_one_kernel_do_not_serve_another():
    """The names of two kernels are the same, and their types are not."""
    found, _ = outlined([rows(kind="float"), rows(kind="double _Complex")])
    kinds = [[variable.type for _, variable in f.parameters if variable.pointer] for f in found.functions().values()]
    assert kinds == [["float", "float"], ["double _Complex", "double _Complex"]]


def test_a_counter_that_the_loop_goes_on_with_is_given_back():
    def write(b):
        b.pointer("float *restrict", "float", "out0", "buffers[0]")
        for number in range(3):
            t, carry = b.var("int64_t", f"t{number}", "0"), b.var("float", f"c{number}", "1")
            for _ in range(3):
                b.go_on(t, code("{} < 9", t), code("++{}", t))
                for _ in range(12):
                    b.set(carry, "{} + {}", carry, t)
                b.set(b.at("out0", t), carry)
                b.close()

    found, _ = outlined([kernel("k", write)])
    assert len(found.calls) == 9 and len(found.functions()) == 1
    [function] = found.functions().values()
    assert function.returns == "float" and [kind for kind, _ in function.parameters].count("int64_t *restrict") == 1
    assert all(spelt(call.arguments[0]).startswith("&t") for call in found.calls)
    assert not any(
        "out0 +" in spelt(argument) for call in found.calls for argument in call.arguments
    )  # the place moves


ALL = [np.bool_, *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)), np.float16, ml_dtypes.bfloat16]
ALL += [np.float32, np.float64, np.complex64, np.complex128]


def of_every_dtype(*arrays):
    """For each array a few small kernels of its type, with like loops in those of other types."""
    results = []
    for x in arrays:
        kind = np.dtype(x.dtype)
        results += [fnp.pad(x, ((1, 2), (0, 1))), x[::-1], fnp.concatenate([x, x], 1), fnp.where(x == x, x, x[:1])]
        results += [x * x, x + x, fnp.sum(x, 0)] if kind != np.bool_ else [x & x[:1], fnp.any(x, 0)]
        results += [fnp.real(x), fnp.conj(x) * x] if is_complex(kind) else []
        results += [lax.cumsum(x, 1)] if kind != np.bool_ and not is_complex(kind) else []
    return results


@pytest.mark.parametrize("order", (1, -1))
@pytest.mark.parametrize("many", (2, 10))
def test_kernels_of_all_dtypes_in_one_program(fresh, monkeypatch, order, many):
    monkeypatch.setattr(outlining, "MANY", many)
    arrays = [np.asarray(RANDOM.integers(0, 4, (5, 65))).astype(dtype) for dtype in ALL[::order]]
    with config.using(enable_x64=True):
        found, _ = outlined(modules(of_every_dtype, *arrays))
        kinds = {variable.type for f in found.functions().values() for _, variable in f.parameters if variable.pointer}
        assert {"float _Complex", "double _Complex", "int8_t", "uint16_t", "double", "_Bool"} <= kinds
        results = jit(of_every_dtype, backend="c")(*arrays)
        with config.using(backend="reference"):
            expected = jit(of_every_dtype)(*arrays)
    for a, b in zip(results, expected):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# What fixed text may hold: types, attributes and functions of the compiler, and names that no transform changes.
_FIXED = re.compile(
    r"_Bool|u?int\d+_t|float|double|_Complex|_Float16|char|unsigned|int|const|__(?:builtin|real|imag)_*\w*|sizeof|if|else|do|omp"
    r"|while|for|simd|simdlen|reduction|schedule|static|dynamic|nowait|collapse|GCC|unroll|parallel|num_threads|max|min|u?ll|ULL|LL"
    r"|U?INT\d+_(?:MAX|MIN)|union|bits|value|f|e\d+|break"
)


def test_fixed_text_holds_no_name():
    """Names that a transform must see are data: fixed text is made of C's own words."""

    def fixed(expression):
        for part in expression:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Element):
                yield from fixed(part.offset.code() if isinstance(part.offset, Sum) else part.offset)

    arrays = [np.asarray(RANDOM.integers(0, 4, (5, 65))).astype(dtype) for dtype in ALL]
    with config.using(enable_x64=True):
        kernels = (
            modules(of_every_dtype, *arrays) + modules(deep(4), X) + modules(deep(4), np.zeros((2, 70000), np.float32))
        )
        kernels += modules(
            lambda x: (fnp.argmax(x, 1), fnp.sum(x, 0), x.T * 2, fnp.sin(fnp.exp(x))), np.zeros((300, 900))
        )
    words = set()
    for loop in loops_of(kernels):
        inside = [loop, *walk(loop.body)]
        if not any(isinstance(s, Do) for s in inside):
            words |= {w for part in loop.parts() for text in fixed(part) for w in re.findall(r"[A-Za-z_]\w*", text)}
    assert {word for word in words if not _FIXED.fullmatch(word)} == set()


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
    def using(number, first_size):
        use = lambda builder: builder.do("use({});", Number(f"{number}.5f", "float"))
        return kernel(f"k{number}", use, first_size=first_size)

    unknown = [using(number, None) for number in range(2)]
    assert literal_arguments.shared(unknown, [4, 4]) == [(module, ()) for module in unknown]
    (first, (one,)), (second, (two,)) = literal_arguments.shared([using(number, 0) for number in range(2)], [2, 2])
    assert first is second and one != two and not list(literal_arguments.numbers_of(next(first.functions)))
    [(variable, place)] = [(s.variables[0], spelt(s.values[0])) for f in first.functions for s in f.body[:1]]
    assert variable == Variable("number0", "float") and "sizes[2]" in place
    (behind, _), _ = literal_arguments.shared([using(number, 1) for number in range(2)], [2, 2])
    assert "sizes[1]" in behind.text(translation_units.KEY)  # which begin one later there
    assert [module for module, _ in literal_arguments.shared([using(0, 0), using(1, 0)], [2, 3])] == [
        using(0, 0),
        using(1, 0),
    ]


def test_functions_that_a_long_kernel_calls_often_are_compiled_once(fresh, monkeypatch):
    def function(x):
        for n in range(12):
            x = fnp.sin(x + n) + fnp.arctan(x) * fnp.tanh(x * n)
        return x, fnp.log1p(x * x)

    def bits():
        monkeypatch.setattr(translation_units, "_symbols", {})
        with config.using(cache=False):
            results = jit(function, backend="c")(X * 1e6)
        return [np.asarray(result).tobytes() for result in results]

    monkeypatch.setattr(math, "MANY", 1)
    [text] = translation_units.translation_units(modules(function, X), translation_unit, 1)
    apart = [name for name in ("sin", "atan", "tanh", "log1p") if f"APART float {name}_f32(float x) {{" in text]
    assert apart == ["sin", "atan", "tanh"]
    called = bits()
    monkeypatch.setattr(math, "MANY", 10**9)
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

    def calls_and_bits():
        monkeypatch.setattr(translation_units, "_symbols", {})
        found, _ = outlined(modules(steps, h, u))
        bits = [np.asarray(result).tobytes() for result in jit(steps, backend="c")(h, u)]
        return Counter(call.function for call in found.calls), bits

    monkeypatch.setattr(outlining, "LIKE", 2)
    calls, bits = calls_and_bits()
    assert calls and min(calls.values()) >= outlining.LIKE
    monkeypatch.setattr(outlining, "LIKE", 10**3)
    assert calls_and_bits() == (Counter(), bits)
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
    monkeypatch.setattr(translation_units, "LONG", 1500)
    monkeypatch.setattr(translation_units, "cpu_count", lambda: 2)
    [kernel] = modules(bodies, *arguments)
    *parts, caller = kernel.functions
    assert caller.calling and len(parts) > 1 and all(part.separable for part in parts)
    texts = translation_units.translation_units([kernel], translation_unit, 2)
    assert len(texts) == 2
    for part in parts:  # one definition, and a prototype where the other file calls it
        assert sum(len(re.findall(rf"void {part.name.name}\(void .*{{$", text, re.MULTILINE)) for text in texts) == 1
    apart = [np.asarray(result).tobytes() for result in jit(bodies, backend="c")(*arguments)]
    monkeypatch.setattr(translation_units, "_symbols", {})
    monkeypatch.setattr(translation_units, "cpu_count", lambda: 1)
    assert apart == [np.asarray(result).tobytes() for result in jit(bodies, backend="c")(*arguments)]


def test_a_loop_that_tunes_its_threads_may_stand_apart_from_the_kernels_that_have_them(fresh, monkeypatch):
    """Its file was without the declarations, which came with the kernels alone."""

    def relaxed(x, w):
        def step(carry):
            at, x = carry
            for factor in (1.25, 0.5):
                x = fnp.tanh(x @ w) * factor
                x = x - fnp.sort(x, axis=1)[:, ::-1] * 0.01
            return at + 1, x

        def inner(x, _):
            return lax.while_loop(lambda carry: carry[0] < 2, step, (0, x))[1], None

        def outer(x, _):
            return lax.scan(inner, x, None, length=2)[0], None

        return lax.scan(outer, x, None, length=2)[0]

    arguments = [(RANDOM.standard_normal(shape) / 16).astype(np.float32) for shape in ((600, 256), (256, 256))]
    monkeypatch.setattr(translation_units, "LONG", 1500)
    texts = translation_units.translation_units(modules(relaxed, *arguments), translation_unit, 6)
    apart = [text for text in texts if "tuner_begin(&state" in text and "num_threads(team_size())" not in text]
    assert apart and all("} tuner;" in text for text in apart)
    monkeypatch.setattr(translation_units, "cpu_count", lambda: 6)
    split = np.asarray(jit(relaxed, backend="c")(*arguments))
    monkeypatch.setattr(translation_units, "_symbols", {})
    monkeypatch.setattr(translation_units, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(split, jit(relaxed, backend="c")(*arguments))


def test_a_part_that_only_calls_can_be_called_from_another_file() -> None:
    """It is marked as what only calls, and was once left static, so that the library had a name without a function. So were
    those with attributes of their own."""
    share = Function(Symbol("part_share"), (), static=True)
    part = Function(Symbol("part"), (), static=True, calling=True, separable=True, attributes="__attribute__((cold)) ")
    whole = Function(Symbol("whole"), (Do(code("{}(buffers, sizes);", Symbol("part"))),), calling=True)
    functions: dict[str, translation_units.Piece] = {}
    left = translation_units.parted(translation_units.Piece((share, part, whole)), functions)
    assert left.parts == (whole,) and list(functions) == ["part"]
    visible = replace(part, static=False, attributes=translation_units.VISIBLE + part.attributes)
    assert functions["part"].parts == (share, visible) and "part" in left.used
    assert (
        translation_units.parted(translation_units.Piece((share, replace(whole, calling=False))), functions).parts[0]
        is share
    )


def test_data_does_not_become_text_by_accident() -> None:
    for part in (
        Variable("x", "float"),
        Number("2.0f", "float"),
        Symbol("sin"),
        code("{} + 1", Variable("x", "float")),
    ):
        with pytest.raises(TypeError, match="is data, and would be text before its time"):
            f"{part}"
    assert [leaf.name for leaf in leaves(code("{} + {0}", Variable("x", "float")))] == ["x", "x"]
