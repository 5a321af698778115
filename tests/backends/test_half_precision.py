"""Conversions of float16 in kernels: every half, the floats about every rounding, every target, loops of any length, vector code."""

from __future__ import annotations

import ctypes
import pathlib
import platform
import re
import subprocess
from collections import Counter

import numpy as np
import pytest

import fuser
from fuser import nn
from fuser.backends.c import spell
from fuser.backends.c.backend import translation_unit
from fuser.backends.c.function import symbols
from fuser.runtime import flags, toolchain
from tests.backends.test_vectorised import gcc, sources

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
X86 = platform.machine() in ("x86_64", "AMD64")
NEEDS = {"x86-64-v2": "sse4_2", "x86-64-v3": "f16c", "x86-64-v4": "avx512dq", "native": ""}

LOOPS = """
void widened(const uint16_t *restrict x, float *restrict out, long n) {
  #pragma omp simd
  for (long i = 0; i < n; ++i) out[i] = float16_load(x[i]);
}
void rounded(const float *restrict x, uint16_t *restrict out, long n) {
  #pragma omp simd
  for (long i = 0; i < n; ++i) out[i] = float16_round(x[i]);
}
"""
COUNTS = range(2, 41)  # that the compiler knows, and takes vectors of every length for
SHORT = "".join(
    f"void rounded_{n}(const float *restrict x, uint16_t *restrict out) {{\n  #pragma omp simd\n"
    f"  for (long i = 0; i < {n}; ++i) out[i] = float16_round(x[i] * 2 + 1);\n}}\n"
    for n in COUNTS
)


def around_roundings() -> np.ndarray:
    """The middle of every two neighbouring halves and both floats beside it, of either sign; where the last half ends; nans."""
    finite = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = np.append((finite[1:] + finite[:-1]) / 2, np.float32(65520))
    ends = np.array([65536, 1e30, np.inf, 2**-25, 2**-149, 2**-126, 0], np.float32)
    sides = [np.nextafter(middles, np.float32(end)) for end in (0, np.inf)]
    found = np.concatenate([finite, middles, *sides, ends])
    nans = np.array([0x7FC00000, 0x7F800001, 0x7FABC123, 0xFFC00000, 0xFF812345], np.uint32).view(np.float32)
    return np.concatenate([found, -found, nans])


def expected_bits(x: np.ndarray) -> np.ndarray:
    """Rounded to nearest even; a nan keeps its sign and the first digits of its payload, and is quiet."""
    with np.errstate(over="ignore", invalid="ignore"):
        bits = x.astype(np.float16).view(np.uint16)
    words = x.view(np.uint32)
    quiet = (words >> 16 & 0x8000) | 0x7E00 | (words >> 13 & 0x3FF)
    return np.where(np.isnan(x), quiet, bits).astype(np.uint16)


def expected_float_bits(x: np.ndarray) -> np.ndarray:
    """What a half widens to; a nan keeps its sign and payload, quiet or not."""
    halves = x.view(np.uint16).astype(np.uint32)
    nan = (halves & 0x8000) << 16 | 0x7F800000 | (halves & 0x3FF) << 13
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x), nan, x.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("target", NEEDS)
@pytest.mark.parametrize("portable", [False, True], ids=["kernels", "library"])
def test_every_conversion_has_the_bits_of_ieee_on_every_target(
    target: str, portable: bool, tmp_path: pathlib.Path
) -> None:
    compiler = toolchain.find_compiler()
    if target != "native" and not (X86 and NEEDS[target] in toolchain.processor()):
        pytest.skip(f"runs where processors have what {target} has")
    helpers = spell.conversions(spell.FLOATS[0]) if portable else spell.header(symbols_of_both())
    source, library = tmp_path / "half.c", tmp_path / "half.so"
    source.write_text("#include <stdint.h>\n" + helpers + LOOPS + SHORT)
    subprocess.run([compiler, *flags.flags(target), str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))

    def call(name: str, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        getattr(loaded, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(x.size))
        return out

    np.testing.assert_array_equal(
        call("widened", HALVES, np.empty(HALVES.size, np.uint32)), expected_float_bits(HALVES)
    )
    floats = around_roundings()
    np.testing.assert_array_equal(call("rounded", floats, np.empty(floats.size, np.uint16)), expected_bits(floats))
    for size in range(1, 70):  # vectors, what is left over of them, and numbers alone
        part = np.ascontiguousarray(floats[9000 : 9000 + size])
        np.testing.assert_array_equal(call("rounded", part, np.empty(size, np.uint16)), expected_bits(part))
    for size in COUNTS:
        part, out = np.ascontiguousarray(floats[9000 : 9000 + size]), np.empty(size, np.uint16)
        getattr(loaded, f"rounded_{size}")(ctypes.c_void_p(part.ctypes.data), ctypes.c_void_p(out.ctypes.data))
        np.testing.assert_array_equal(out, expected_bits(part * 2 + 1))


def symbols_of_both() -> Counter[str]:
    return Counter({"float16_load": 1, "float16_round": 1})


def test_kernels_round_as_numpy_and_keep_every_half() -> None:
    number = ~np.isnan(HALVES)
    wide = np.asarray(fuser.jit(lambda x: x.astype("float32"))(HALVES))
    np.testing.assert_array_equal(wide[number].view(np.uint32), HALVES[number].astype(np.float32).view(np.uint32))
    assert np.isnan(wide[~number]).all()
    floats = around_roundings()
    rounded = np.asarray(fuser.jit(lambda x: x.astype("float16"))(floats)).view(np.uint16)
    np.testing.assert_array_equal(rounded, expected_bits(floats))


@pytest.mark.parametrize("shape", [(5,), (3, 7), (1000,), (33, 47), (9, 512)])
def test_kernels_of_halves_compute_in_float32_and_round_once(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    wide = x.astype(np.float64)
    with_row = wide + wide[..., :1]
    # sums of such halves are exact in float32
    np.testing.assert_array_equal(np.asarray(fuser.jit(lambda x: x + x[..., :1])(x)), with_row.astype(np.float16))
    result = np.asarray(fuser.jit(lambda x: nn.softmax(x, axis=-1))(x), np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(result, powers / powers.sum(-1, keepdims=True), rtol=2e-3, atol=2**-24)


def test_loops_round_by_the_instruction(tmp_path: pathlib.Path) -> None:
    compiler = gcc()
    if "f16c" not in toolchain.processor():
        pytest.skip("processors that convert vectors")
    (source,) = sources(lambda x: x * 2 + 1, np.ones(4096, np.float16))
    (tmp_path / "kernel.c").write_text(translation_unit(source.text, symbols(source.code.parts)))
    command = [compiler, *toolchain.FLAGS, "-S", "kernel.c", "-o", "kernel.s"]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = (tmp_path / "kernel.s").read_text()
    assert re.search(r"call\s+_ZGV(eN16|dN8)v_float16_bits", made)
    assert "vcvtps2ph" in made
