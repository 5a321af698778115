"""The C backend's functions of maths against mpmath: how many ulps off, special values, vector code, equal bits in any lane.

BOUNDS is the one table: what a compiled kernel may be off by, in units in the last place of the exact result.
"""

from __future__ import annotations

import functools
import math
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import fuser
import fuser.lax as lax
from fuser.backends.c import math as maths
from fuser.backends.c.backend import translation_unit
from fuser.backends.c.function import symbols
from fuser.config import config
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import FLOATS
from fuser.runtime import flags, toolchain
from tests.values import same_bits, special, tuples

F16, BF16, F32, F64 = FLOATS
WIDTHS = (F32, F64)

# Largest errors in ulps: float32, float64.
BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.1),
    "exp2": (1.1, 1.1),
    "expm1": (1.5, 2.0),
    "log": (1.0, 1.0),
    "log1p": (1.6, 1.6),
    "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5),
    "cbrt": (1.0, 1.0),
    "sin": (1.1, 1.1),
    "cos": (1.1, 1.1),
    "tan": (2.5, 2.5),
    "asin": (2.5, 2.5),
    "acos": (1.5, 1.5),
    "atan": (2.0, 2.0),
    "sinh": (2.5, 2.5),
    "cosh": (1.8, 1.8),
    "tanh": (2.8, 2.8),
    "asinh": (2.0, 2.0),
    "acosh": (2.5, 2.5),
    "atanh": (2.5, 2.5),
    "logistic": (3.0, 3.0),
    "erf": (2.5, 2.5),
    "erfc": (3.5, 4.0),
    "erf_inv": (4.0, 4.0),
    "lgamma": (3.5, 3.5),
    "digamma": (4.0, 4.0),
    "bessel_i0e": (4.0, 4.0),
    "bessel_i1e": (4.0, 4.0),
    "pow": (1.1, 1.5),
    "atan2": (2.0, 2.0),
}
# Results near a root, where operands' own rounding is all that is left of them, in units of eps instead.
NEAR_ROOTS = {"lgamma": (6.0, 6.0), "digamma": (8.0, 8.0)}

EXACT: dict[str, Callable[..., Any]] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "erf_inv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))) if abs(x) < 1e3 else mpmath.re(mpmath.loggamma(x)),
    "bessel_i0e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
    "bessel_i1e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
    "pow": lambda x, y: x**y,
}
# Where a function is finite and real, if not everywhere.
DOMAIN = {
    **dict.fromkeys(("log", "sqrt", "rsqrt", "pow", "lgamma", "digamma"), (0.0, math.inf)),
    **dict.fromkeys(("asin", "acos", "atanh", "erf_inv"), (-1.0, 1.0)),
    "log1p": (-1.0, math.inf),
    "acosh": (1.0, math.inf),
    **dict.fromkeys(("bessel_i0e", "bessel_i1e"), (-700.0, 700.0)),
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh", "logistic"), (-2000.0, 2000.0)),
    **dict.fromkeys(("erf", "erfc"), (-40.0, 40.0)),
}
ARITY = {"pow": 2, "atan2": 2}
PRIMITIVES = [name for name in (*maths.UNARY, *maths.BINARY) if name != "log2"]  # which is part of others alone
COUNT = 400


@functools.cache
def points(name: str, dtype: np.dtype) -> np.ndarray:
    """Numbers of every size, dense near 0 and ±1/2, ±1, ±2 and multiples of π/2, within the function's domain."""
    rng = np.random.default_rng(sum(map(ord, name)))
    low, high = DOMAIN.get(name, (-math.inf, math.inf))
    info = np.finfo(dtype)
    least, most = math.log10(float(info.smallest_subnormal)), math.log10(float(info.max)) - 0.01
    sizes = 10.0 ** rng.uniform(least, most, COUNT)
    parts = [sizes, -sizes, 10.0 ** rng.uniform(-3, 3, COUNT) * rng.choice([-1, 1], COUNT)]
    parts += [rng.uniform(-s, s, COUNT) for s in (1.0, 4.0, 12.0, 100.0)]
    parts += [
        c + rng.standard_normal(40) * 10.0 ** rng.uniform(-7, -1, 40)
        for c in (-2, -1, -0.5, 0.5, 1, 1.25, 1.5, 2, 2.5, 8)
    ]
    parts.append(rng.integers(-4000, 4000, COUNT) * (math.pi / 2))
    if math.isfinite(low + high):
        parts.append(rng.uniform(low, high, COUNT))
    with np.errstate(over="ignore"):
        x = np.concatenate(parts).astype(dtype)
    return x[(x > low) & (x < high) & np.isfinite(x)]


def operands(name: str, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    x = points(name, dtype)
    if ARITY.get(name, 1) == 1:
        return (x,)
    rng = np.random.default_rng(3)
    if name == "atan2":
        return x, rng.permutation(x)
    power = rng.uniform(-1, 1, x.size) * np.log(float(np.finfo(dtype).max))  # so that x^y stays within the range
    return x, (power / np.maximum(np.abs(np.log(x.astype(np.float64))), 1e-8)).astype(dtype)


def compiled(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The function's results by a compiled kernel."""
    with config.using(enable_x64=True):
        return np.asarray(fuser.jit(getattr(lax, name))(*arrays))


def exactly(name: str, *arguments: Any) -> mpmath.mpf:
    rule = EXACT.get(name) or getattr(mpmath, name)
    return rule(*(mpmath.mpf(float(a)) for a in arguments))


def errors(found: np.ndarray, exact: list[mpmath.mpf]) -> np.ndarray:
    """The distance of each result in units in the last place of the exact one."""
    info = np.finfo(found.dtype)
    result = np.zeros(found.size)
    for number, (value, wanted) in enumerate(zip(found.tolist(), exact)):
        if not math.isfinite(value):
            beyond = abs(wanted) >= mpmath.mpf(float(info.max)) and (value > 0) == (wanted > 0)
            result[number] = 0 if beyond else math.inf
            continue
        exponent = max(mpmath.frexp(wanted)[1], int(info.minexp) + 1) if wanted else int(info.minexp) + 1
        result[number] = float(abs(mpmath.mpf(value) - wanted) / mpmath.ldexp(1, exponent - 1 - info.nmant))
    return result


@pytest.mark.parametrize("dtype", WIDTHS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", BOUNDS)
def test_error_in_ulps(name: str, dtype: np.dtype) -> None:
    arrays = operands(name, dtype)
    found = compiled(name, *arrays)
    with mpmath.workdps(40):
        exact = [exactly(name, *values) for values in zip(*arrays)]
        error = errors(found, exact)
    bound = BOUNDS[name][dtype == F64]
    if name in NEAR_ROOTS:
        size = np.array([abs(float(e)) for e in exact])
        near = size < 0.1
        absolute = error * np.spacing(size.astype(dtype)) / np.finfo(dtype).eps
        assert absolute[near].max(initial=0) <= NEAR_ROOTS[name][dtype == F64]
        error = np.where(near, 0, error)
    worst = int(error.argmax())
    operand = ", ".join(str(a[worst]) for a in arrays)
    assert error[worst] <= bound, f"{name}({operand}) = {found[worst]}, {error[worst]:.2f} ulp from {exact[worst]}"


@pytest.mark.parametrize("dtype", WIDTHS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_lane_gives_the_same_bits(name: str, dtype: np.dtype) -> None:
    """Vectors, the narrower ones of a loop's end, and single elements: results do not depend on where an operand stands."""
    pool = special(dtype)
    rng = np.random.default_rng(1)
    count = ARITY.get(name, 2 if name in maths.BINARY else 1)
    arrays = [
        np.concatenate([rng.choice(points("sin", dtype), 200), pool, rng.uniform(0, 3, 200).astype(dtype)])
        for _ in range(count)
    ]
    whole = compiled(name, *arrays)
    for start in (1, 5, 11, 230):
        assert same_bits(compiled(name, *(a[start:] for a in arrays)), whole[start:]).all()
    places = rng.permutation(whole.size)
    assert same_bits(compiled(name, *(a[places] for a in arrays)), whole[places]).all()


@pytest.mark.parametrize("dtype", WIDTHS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_special_values(name: str, dtype: np.dtype) -> None:
    """Infinities, nan, zeros with their signs and the ends of the range give what C99 (through NumPy or math) prescribes."""
    numpy_name = {
        "pow": "power",
        "atan2": "arctan2",
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
    }
    numpy_name |= {"acosh": "arccosh", "atanh": "arctanh", "rem": "fmod"}
    rule: Any = getattr(np, numpy_name.get(name, name), None) or np.vectorize(_by_math(name), otypes=[np.float64])
    pool = special(dtype)
    arrays = tuples(pool, pool) if name in maths.BINARY else [pool]
    found = compiled(name, *arrays)
    with np.errstate(all="ignore"):
        expected = np.asarray(rule(*arrays) if name == "nextafter" else rule(*(a.astype(np.float64) for a in arrays)))
        if name == "nextafter":
            expected = np.where(arrays[0] == arrays[1], arrays[1], expected)
        expected = expected.astype(dtype)
    odd = ~(np.isfinite(expected) & (expected != 0))
    assert same_bits(found, expected)[odd].all(), [
        (*(a[k] for a in arrays), found[k], expected[k]) for k in np.flatnonzero(odd & ~same_bits(found, expected))[:5]
    ]


def _by_math(name: str) -> Callable[[float], float]:
    def rule(x: float) -> float:
        if name == "lgamma" and (math.isinf(x) or (x <= 0 and x == math.floor(x))):
            return math.inf
        try:
            return float(getattr(math, name)(x))
        except OverflowError:
            return math.inf

    return rule


X86_GCC = platform.machine() in ("x86_64", "AMD64") and "gcc" in (
    subprocess.run([toolchain.find_compiler(), "-v"], capture_output=True, text=True, check=False).stderr
)


@pytest.mark.skipif(not X86_GCC or not shutil.which("gcc"), reason="-fopt-info is gcc's")
@pytest.mark.parametrize("dtype", [*WIDTHS, F16, BF16], ids=str)
def test_loops_are_vectorised(dtype: np.dtype, tmp_path: Any) -> None:
    """gcc says so of the one loop of each function's kernel."""
    names = [*BOUNDS, "nextafter", "logaddexp", "xlogy", "log1mexp"]
    if dtype in (F16, BF16):
        names = ["exp", "tanh", "log", "erf", "sin", "logistic"]
    kernels = []
    for name in names:
        arrays = [np.ones(1 << 14, dtype)] * (1 if name not in ("nextafter", "logaddexp", "xlogy") else 2)
        arrays = arrays * ARITY.get(name, 1)
        with config.using(enable_x64=True):
            (source,) = fuser.jit(REGISTRY[name].bind).lower(*arrays).sources
        kernels.append(source.renamed(f"kernel_{name}"))
    path = tmp_path / "kernels.c"
    used = symbols(tuple(part for kernel in kernels for part in kernel.code.parts))
    path.write_text(translation_unit("\n\n".join(kernel.text for kernel in kernels), used))
    command = [
        toolchain.find_compiler(),
        *toolchain.FLAGS,
        "-fopt-info-vec-optimized",
        str(path),
        "-o",
        str(tmp_path / "k.so"),
    ]
    said = subprocess.run([*command, *flags.LIBRARIES], capture_output=True, text=True, check=True).stderr
    lines = {int(line.split(":")[1]) for line in said.splitlines() if "loop vectorized" in line}
    where, inside = {}, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        began = re.match(r"(?:static .*)?void kernel_(\w+?)(?:_share)?\(", line)
        inside = began[1] if began else inside
        if inside and number in lines:
            where[inside] = number
    assert [name for name in names if name not in where] == []


@pytest.mark.parametrize("shape", [(5000,), (3, 700), (40, 300), (1023,)], ids=str)
def test_functions_of_functions_run_in_loops_of_their_own(shape: tuple[int, ...]) -> None:
    """A loop for each depth, and the bits of one function at a time; conditions and broadcast operands go across loops."""
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[-1]).astype(np.float32)

    def program(x: Any, row: Any) -> Any:
        inner = fuser.numpy.tanh(x) + row
        return fuser.numpy.where(inner > 0, fuser.numpy.log(2 + fuser.numpy.sin(inner)), x), inner * 2

    kernels = fuser.jit(program).lower(x, row).sources
    assert len(kernels) == 1 and kernels[0].text.count("#pragma omp simd") == 3
    together = fuser.jit(program)(x, row)
    with config.using(fuel=0):
        apart = fuser.jit(program)(x, row)
    for a, b in zip(together, apart):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_result_in_place_of_an_operand_that_two_loops_read() -> None:
    """What is stored only after the last loop: an operand given away may be read by each of them."""
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    function = lambda x: fuser.numpy.exp(fuser.numpy.tanh(x)) * x + fuser.numpy.sin(x)
    expected = np.asarray(fuser.jit(function)(x))
    found = np.asarray(fuser.jit(function, donate_argnums=0)(fuser.numpy.asarray(x)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ("exp", "exp2", "cosh", "erfc", "log1p", "exp of -95", "exp2 of -140"))
def test_results_that_vanish_take_no_longer(name: str) -> None:
    """Masked scores, tails and logarithms of zeros: processors take a hundred times as long for products below all numbers."""
    name, _, value = name.partition(" of ")
    function = fuser.jit(getattr(lax, name))
    plain = fuser.device_put(np.linspace(0.5, 2, 1 << 14, dtype=np.float32))
    far = fuser.device_put(
        np.full(1 << 14, float(value or {"cosh": 1e4, "erfc": 1e4, "log1p": 1e-30}.get(name, -1e9)), np.float32)
    )

    def seconds(x: fuser.Array) -> float:
        start = time.thread_time()
        for _ in range(20):
            function(x).block_until_ready()
        return time.thread_time() - start

    seconds(plain)
    assert min(seconds(far) for _ in range(5)) < 3 * min(seconds(plain) for _ in range(5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(dtype: str) -> None:
    """Of random bits, of quotients near integers and beyond 2^53, and of what libm has words for: libm's, bit by bit."""
    random = np.random.default_rng(5)
    whole = np.dtype(dtype.replace("float", "uint"))
    bits = random.integers(0, np.iinfo(whole).max, (2, 20000), whole).view(dtype)
    y = (random.random(20000) * 10.0 ** random.integers(-3, 4, 20000)).astype(dtype)
    x = (
        y * random.integers(-(10**6), 10**6, 20000) * (1 + random.integers(-1, 2, 20000) * np.finfo(dtype).eps)
    ).astype(dtype)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.5, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal], dtype
    )
    a = np.concatenate([bits[0], x, np.repeat(special, special.size)])
    b = np.concatenate([bits[1], y, np.tile(special, special.size)])
    with np.errstate(all="ignore"):
        wanted = np.fmod(a, b)
    with fuser.config.using(enable_x64=True):
        found = np.asarray(fuser.jit(fuser.lax.rem, backend="c")(a, b))
    np.testing.assert_array_equal(
        np.where(np.isnan(found), 0, found).view(whole), np.where(np.isnan(wanted), 0, wanted).view(whole)
    )
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_power_has_the_same_bits_in_vectors_of_any_width_and_alone(dtype):
    rng = np.random.default_rng(5)
    x, y = (rng.uniform(0, 4, 40).astype(dtype) for _ in range(2))
    power = fuser.jit(lambda x, y: x**y)
    alone = np.array([power(a, b) for a, b in zip(x, y)])
    for size in (3, 5, 9, 15, 16, 17, 24, 31, 40):
        assert np.asarray(power(x[:size], y[:size])).tobytes() == alone[:size].tobytes()
