"""Library steps of the CPU, by the eval rules; and matrix products in C (`gemm/`), compiled for this processor.

Measured on a processor with 512-bit vectors, one core, float32, 1024³: these 200 GFLOP/s, NumPy's OpenBLAS 118,
torch's MKL 103. It also spares programs with products the import of torch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.control_flow import interrupt
from fuser.backends.c.function import spelt
from fuser.backends.c.library import fourier, lapack, prebuilt
from fuser.ir.graph import Eqn
from fuser.ir.types import BOOL, FLOATS, SMALL, bfloat16, is_complex
from fuser.runtime import foreign, sources, toolchain
from fuser.runtime.core import native


def has_gemm(eqn: Eqn) -> bool:
    """Whether gemm has the types of this product; empty ones are left to NumPy."""
    operand, out = eqn.invars[0].aval.dtype, eqn.outvars[0].aval
    known = all(d != BOOL and d not in SMALL and not is_complex(d) for d in (operand, out.dtype))
    same_kind = (operand.kind in "iu") == (out.dtype.kind in "iu")
    return known and same_kind and out.size > 0 and eqn.invars[0].aval.size > 0


@functools.cache
def _gemm(operand: np.dtype, out: np.dtype, name: str = "gemm") -> Any:
    """The compiled product for operands and results of these dtypes; `name` is one of GEMMS."""
    if (ready := prebuilt.function(name, operand, out)) is not None:
        return ready
    return getattr(_loaded(GEMMS[name] + gemm_text(operand, out)), name)


# How operands are read: by strides, or by tables, where columns are the kernels of a convolution, or where rows are.
GEMMS = {
    "gemm": "",
    "tables": "#define BY_TABLES\n",
    "tables_of_rows": "#define BY_TABLES\n#define ROWS_OF_KERNELS\n",
}
TILE_ROWS = {"tables": 7, "tables_of_rows": 8}  # of vectors of 64 bytes, as MR in gemm/base.c


@functools.cache
def address(function: tuple[Any, ...]) -> int:
    """The address of a library function, which stays for the life of the process.

    `function` is (one of GEMMS, operands' dtype, result's dtype), ("sort", keys' dtype, bytes of payload), ("top_k", dtype),
    ("permute", bytes of an element), ("substitute", dtype), ("incomplete", dtype), ("scatter", dtype, reduction),
    ("factorisation", function of lapack.c, dtype) or ("lapack", SciPy's module, name), a function of
    LAPACK itself; ("fft",); ("fourier", dtype of the parts); ("ufunc" or "ufunc data", name, operand's dtype), an inner loop of
    NumPy's; ("host", "run"), which calls Python; or ("foreign", …), a part of a call of a function of the user's
    (`fuser/runtime/foreign.py`).
    """
    name, *types = function
    if name == "lapack":
        return lapack.address(*types)
    if name in ("ufunc", "ufunc data"):
        return fourier.loop(*types)[name == "ufunc data"]
    if name == "host":
        return int(native.run_host)
    if name == "foreign":
        return foreign.target(types[1]) if types[0] == "target" else foreign.address(*types)
    symbol = _gemm(*types, name) if name in GEMMS else _function(name, tuple(types))
    address = ctypes.cast(symbol, ctypes.c_void_p).value
    assert address is not None
    return address


PARTS = (
    "poll",
    "base",
    "packed",
    "quads",
    "pairs",
    "tables",
    "unpacked",
    "gemv",
    "inner",
    "narrow",
    "matrix_unit",
    "gemm",
)  # of the text, in gemm/


# The instruction of a processor's matrix unit for operands of a dtype, whose sums have 32 bits.
MATRIX_UNIT = {np.dtype("int8"): "tdpbssd", np.dtype("uint8"): "tdpbuud", bfloat16: "tdpbf16ps"}


def gemm_text(operand: np.dtype, out: np.dtype) -> str:
    """The C text of products for these dtypes: half precision and small integers accumulate in 32 bits."""
    wide = accumulator(out)
    conversions = (
        f"#define LOAD(x) {spelt(spell.load(operand, '(x)'))}\n#define SAVE(x) {spelt(spell.store(out, '(x)'))}\n"
    )
    helpers = spell.conversions(operand, out)
    same = f"#define SAME {int(operand == wide)}\n#define WHOLE {int(out == wide)}\n"
    small = operand in map(np.dtype, ("int8", "uint8", "int16")) and wide == np.int32
    paired = "#define PAIRED\n" * small + "#define FOURFOLD\n" * (small and operand.itemsize == 1)
    dot = MATRIX_UNIT.get(operand) if wide.itemsize == 4 else None
    unit = f'#define TILE_DOT "{dot}"\n' if dot else ""
    types = f"{paired}{unit}#define IN {spell.storage(operand)}\n#define T {spell.local(wide)}\n#define OUT {spell.storage(out)}\n"
    needs = f"#include <stdint.h>\n{helpers}" if helpers else ""
    body = "\n".join(sources.read(f"gemm/{name}.c") for name in PARTS)
    return f"{types}{same}{conversions}{needs}{body}"


def accumulator(out: np.dtype) -> np.dtype:
    """The dtype in which sums of a product with results of dtype `out` are taken."""
    return out if out.itemsize >= 4 else FLOATS[2] if out.kind not in "iu" else np.dtype("int32")


@functools.cache
def _factorisations(dtype: np.dtype) -> ctypes.CDLL:
    return _loaded(factorisations_text(dtype))


def factorisations_text(dtype: np.dtype) -> str:
    """lapack.c for elements of a dtype, and small_factorisations.c, which has no complex ones."""
    files = ("gemm/poll.c", "lapack.c", *(() if is_complex(dtype) else ("small_factorisations.c",)))
    return _named(lapack.definitions(dtype)) + "\n".join(map(sources.read, files))


def _function(name: str, types: tuple[Any, ...]) -> Any:
    if name == "factorisation":
        name, *rest = types
        return prebuilt.function(name, *rest) or getattr(_factorisations(*rest), name)
    return prebuilt.function(name, *types) or getattr(_loaded(_TEXTS[name](*types)), name)


# The names of functions that texts of this file define.
ENTRIES = (*GEMMS, "fft", "fourier", "sort", "top_k", "permute", "scatter", "substitute", "incomplete")


def entry(function: tuple[Any, ...]) -> str:
    """The name of a library function in its text."""
    return str(function[0])


def text(function: tuple[Any, ...]) -> str | None:
    """The C text of a library function, as `address` takes it; None for those that others publish, as LAPACK."""
    name, *types = function
    if name in GEMMS:
        return GEMMS[name] + gemm_text(*types)
    return _TEXTS[name](*types) if name in _TEXTS else None


def _loaded(text: str) -> ctypes.CDLL:
    library = toolchain.load_shared(toolchain.compile_shared(text).path)
    interrupt.connect_library(library)
    return library


def sort_text(dtype: np.dtype, payload: int) -> str:
    """sort.c for keys of a dtype, with so many bytes that travel with each."""
    kind = 0 if dtype.kind in "bu" else 1 if dtype.kind == "i" else 2
    names: dict[str, Any] = {"BITS": dtype.itemsize * 8, "KIND": kind, "PAYLOAD": payload, "PAYLOAD_BITS": payload * 8}
    if kind == 2:
        names["INFINITE"] = f"((KEY){int.from_bytes(dtype.type('inf').tobytes(), 'little')}ull)"
    return _named(names) + sources.read("gemm/poll.c") + sources.read("sort.c")


def fourier_text(dtype: np.dtype) -> str:
    """fourier/ for numbers whose parts have a dtype."""
    letter = "f" if dtype.itemsize == 4 else ""
    fused = f"""#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA __builtin_fma{letter}
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
"""
    names = {"T": spell.storage(dtype), "WORD": f"int{8 * dtype.itemsize}_t"}
    return _named(names) + fused + sources.read("fourier/columns.c") + sources.read("fourier/transform.c")


def permute_text(itemsize: int) -> str:
    """gather.c for elements of so many bytes."""
    kind = "double _Complex" if itemsize == 16 else f"uint{itemsize * 8}_t"
    return f"#include <stdint.h>\n{_named({'T': kind})}{sources.read('gather.c')}"


def scatter_text(dtype: np.dtype, reduction: str) -> str:
    """scatter.c for arrays of a dtype and a reduction: set, add, mul, min or max."""
    if reduction == "set":
        stored = wide = "double _Complex" if dtype.itemsize == 16 else f"uint{dtype.itemsize * 8}_t"
        names = {"REPLACES": "", "LOAD(x)": "(x)", "COMBINE(a, u)": "(u)"}
    else:
        stored, wide = spell.storage(dtype), spell.local(dtype)
        names = {"LOAD(x)": spelt(spell.load(dtype, "(x)")), "SAVE(x)": spelt(spell.store(dtype, "(x)"))}
        names |= dict(zip(("COMBINE(a, u)", "NEUTRAL"), _reduction(dtype, reduction)))
    if stored != wide:
        names["WIDER"] = ""
    names |= {"IN": stored, "T": wide}
    wanted = [n for n in ("multiply_complexf", "multiply_complex") if is_complex(dtype)]
    if reduction in ("max", "min") and spell.local(dtype) in ("float", "double"):
        wanted = [_extreme(dtype, reduction), f"{_extreme(dtype, reduction)}_alone"]
        names["COMBINE_ONE(a, u)"] = f"{wanted[1]}(a, u)"
    helpers = spell.conversions(dtype) + "".join(spell.HELPERS[n] + "\n" for n in wanted)
    return f"#include <stdint.h>\n{helpers}{_named(names)}{sources.read('scatter.c')}"


def incomplete_text(dtype: np.dtype) -> str:
    """incomplete.c for elements of a dtype."""
    names = {"IN": spell.storage(dtype), "LOAD(x)": spelt(spell.load(dtype, "(x)")), "SINGLE": int(dtype.itemsize <= 4)}
    names["SAVE(x)"] = spelt(spell.store(dtype, f"({spell.local(dtype)})(x)"))
    helpers = spell.conversions(dtype)
    return f"#include <stdint.h>\n{helpers}{_named(names)}{sources.read('gemm/poll.c')}{sources.read('incomplete.c')}"


def _reduction(dtype: np.dtype, reduction: str) -> tuple[str, str]:
    """How an update changes an element, and the update that does not: the zero of a sum is -0.0, which keeps -0.0."""
    if reduction == "add":
        return "((a) + (u))", "0" if dtype.kind in "iu" else "-0.0"
    if reduction == "mul":
        if is_complex(dtype):
            return f"multiply_complex{'f' if dtype.itemsize == 8 else ''}(a, u)", "1"
        return "((a) * (u))", "1"
    sign = ">" if reduction == "max" else "<"
    if is_complex(dtype):  # by the real parts, then by the imaginary ones
        kind = "f" if dtype.itemsize == 8 else ""
        edge = f"{'-' if reduction == 'max' else ''}__builtin_inf{kind}()"
        first = f"__real__ u_ {sign} __real__ a_"
        second = f"((__real__ u_ == __real__ a_) & (__imag__ u_ {sign} __imag__ a_))"
        update = f"({first}) | {second} | (u_ != u_) ? u_ : a_"
        return f"({{ const T a_ = (a), u_ = (u); {update}; }})", f"__builtin_complex({edge}, {edge})"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        neutral = dtype.type(info.min if reduction == "max" else info.max)
        return f"((u) {sign} (a) ? (u) : (a))", spelt(spell.literal(neutral, dtype))
    edge = "-__builtin_inf()" if reduction == "max" else "__builtin_inf()"
    return (f"((u) {sign} (a) ? (u) : (a))" if dtype == BOOL else f"{_extreme(dtype, reduction)}(a, u)"), edge


def _extreme(dtype: np.dtype, reduction: str) -> str:
    return f"{reduction}imum_of_{spell.local(dtype)}"


def _named(names: dict[str, Any]) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in names.items())


_TEXTS: dict[str, Callable[..., str]] = {
    "sort": sort_text,
    "top_k": lambda dtype: sort_text(dtype, 4),
    "fft": lambda: sources.read("fft.c"),
    "fourier": fourier_text,
    "permute": permute_text,
    "scatter": scatter_text,
    "incomplete": incomplete_text,
    "substitute": lambda dtype: (
        _named({"T": spell.storage(dtype)}) + sources.read("gemm/poll.c") + sources.read("triangular_solve.c")
    ),
}
