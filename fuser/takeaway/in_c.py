"""A program as C: its kernels, the library functions that they call, a launcher with a header, a test, a Makefile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.backends.c.backend import translation_unit
from fuser.backends.c.compilation.translation_units import module_of, translation_units
from fuser.backends.c.library import on_demand
from fuser.errors import UnsupportedError
from fuser.ir.types import ArrayType
from fuser.runtime.flags import LIBRARIES, flags
from fuser.takeaway.program import Call, Program

_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "complex64": "float",
    "complex128": "double",
}
ALIGNMENT = 64


def files(program: Program, data: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The files of a program by name; `data` are the test's arrays: in0, …, expected0, …"""
    name = program.name
    functions = list(dict.fromkeys(f for call in program.calls for _, f in call.source.launch.get("functions", ())))
    modules = list({module_of(call.source).name: module_of(call.source) for call in program.calls}.values())
    texts = {
        f"{name}.h": _header(program),
        f"{name}.c": _launcher(program, functions),
        f"{name}_kernels.c": "".join(translation_units(modules, translation_unit, 1)),
        **{f"{name}_library{n}.c": _library(function, n) for n, function in enumerate(functions)},
        f"test_{name}.c": _test(program),
        "Makefile": _makefile(name, len(functions)),
        "README.md": f"# {name}\n\n{program.origin}\n\n    {program.signature()}\n\n`make test` builds and runs the test; "
        f"`make` builds lib{name}.so, whose one function is declared in {name}.h.\n",
    }
    arrays = {f"{key}.bin": value.tobytes() for key, value in data.items()}
    return {key: text.encode() for key, text in texts.items()} | arrays


def _library(function: tuple[Any, ...], number: int) -> str:
    """A library function's text, under a name of its own."""
    text = on_demand.text(function)
    if text is None:
        raise UnsupportedError(
            f"a kernel calls {' '.join(map(str, function[:2]))}, which is no part of fuser's own C; export a function without it"
        )
    renamed = "".join(f"#define {entry} library{number}_{entry}\n" for entry in on_demand.ENTRIES)
    return renamed + text


def _pointer(aval: ArrayType) -> str:
    return _TYPES[aval.dtype.name]


def _prototype(program: Program) -> str:
    given = [f"const {_pointer(aval)} *in{n}" for n, (_, aval) in enumerate(program.inputs)]
    found = [f"{_pointer(aval)} *out{n}" for n, (_, aval) in enumerate(program.outputs)]
    return f"int {program.name}({', '.join([*given, *found]) or 'void'})"


def _header(program: Program) -> str:
    guard = f"{program.name.upper()}_H"
    return f"""/* {program.origin}

   {program.signature()}
   Arrays are dense, the last dimension innermost; complex numbers are pairs, 16-bit floats their bits. */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif
extern int fuser_threads; /* that kernels may use; 1 unless it is set */
/* 0, or 1 where memory cannot be had. */
{_prototype(program)};
#ifdef __cplusplus
}}
#endif
#endif
"""


def _words(array: np.ndarray) -> str:
    """The bytes of an array as 64-bit words."""
    data = array.tobytes()
    words = np.frombuffer(data.ljust(max(8, -(-len(data) // 8) * 8), b"\0"), np.uint64)
    return ", ".join(f"0x{int(word):x}u" for word in words)


def _launcher(program: Program, functions: Sequence[tuple[Any, ...]]) -> str:
    places, total = _places(program)
    entries = {f: f"library{n}_{on_demand.entry(f)}" for n, f in enumerate(functions)}
    declared = [*(call.source.name for call in program.calls), *entries.values()]
    lines = [
        f"/* {program.origin} */",
        f'#include "{program.name}.h"',
        "#include <stdlib.h>",
        "#include <string.h>",
        "",
    ]
    lines += ["__attribute__((weak)) int fuser_threads = 1;"]
    lines += [f"void {function}(void **buffers, const int64_t *sizes);" for function in dict.fromkeys(declared)]
    for slot, value in program.consts:
        lines.append(
            f"static const uint64_t constant{slot}[] __attribute__((aligned({ALIGNMENT}))) = {{{_words(value)}}};"
        )
    lines += ["", f"{_prototype(program)} {{"]
    lines += [f"  char *memory = aligned_alloc({ALIGNMENT}, {total});", "  if (memory == NULL) return 1;"]
    for slot, place in places.items():
        lines.append(f"  void *slot{slot} = {place};")
    for call in program.calls:
        lines += _call(call, entries)
    for n, (slot, aval) in enumerate(program.outputs):
        if places[slot] != f"out{n}":
            lines.append(f"  memcpy(out{n}, slot{slot}, {aval.nbytes});")
    return "\n".join([*lines, "  free(memory);", "  return 0;", "}", ""])


def _places(program: Program) -> tuple[dict[int, str], int]:
    """Where each slot lies, as C: an argument, a constant, a result's memory, or a part of the block; and the block's bytes."""
    places = {slot: f"(void *)in{n}" for n, (slot, _) in enumerate(program.inputs)}
    places |= {slot: f"(void *)constant{slot}" for slot, _ in program.consts}
    results = {slot: f"out{n}" for n, (slot, _) in reversed(list(enumerate(program.outputs)))}
    written = {w.slot for call in program.calls for w in call.writes}
    taken_over = {w.reuse for call in program.calls for w in call.writes}
    total = _rounded(program.arena)
    for call in program.calls:
        for w in call.writes:
            if w.reuse in written:
                places[w.slot] = f"slot{w.reuse}"
            elif w.offset is not None:
                places[w.slot] = f"memory + {w.offset}"
            elif w.slot in results and w.slot not in taken_over:
                places[w.slot] = results[w.slot]
            else:
                places[w.slot] = f"memory + {total}"
                total += _rounded(w.nbytes)
    return places, max(total, ALIGNMENT)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _call(call: Call, entries: dict[Any, str]) -> list[str]:
    launch = call.source.launch
    functions = dict(launch.get("functions", ()))
    sizes = [
        f"(int64_t)(intptr_t){entries[functions[n]]}" if n in functions else f"{size}"
        for n, size in enumerate(launch.get("sizes", ()))
    ]
    buffers = [f"slot{slot}" for slot in (*call.reads, *(w.slot for w in call.writes))]
    return [
        f"  {call.source.name}((void *[]){{{', '.join(buffers)}}}, (int64_t[]){{{', '.join(sizes) or '0'}}});",
    ]


_COMPARE = r"""
static void *loaded(const char *name, size_t size) {
  FILE *file = fopen(name, "rb");
  void *data = aligned_alloc(64, (size + 63) / 64 * 64 + 64);
  if (file == NULL || data == NULL || fread(data, 1, size, file) != size) {
    fprintf(stderr, "cannot read %s\n", name);
    exit(2);
  }
  fclose(file);
  return data;
}

static int differs(const char *name, const void *found, const void *wanted, size_t size, int width) {
  for (size_t k = 0; width && k < size / width; k++) {
    double a = width == 4 ? ((const float *)found)[k] : ((const double *)found)[k];
    double b = width == 4 ? ((const float *)wanted)[k] : ((const double *)wanted)[k];
    if (a != b && !(isnan(a) && isnan(b)) && !(fabs(a - b) <= 1e-5 * fabs(b) + 1e-6)) {
      fprintf(stderr, "%s[%zu] is %g, not %g\n", name, k, a, b);
      return 1;
    }
  }
  if (!width && memcmp(found, wanted, size)) {
    fprintf(stderr, "%s differs\n", name);
    return 1;
  }
  return 0;
}
"""


def _test(program: Program) -> str:
    lines = [
        f'#include "{program.name}.h"',
        *(f"#include <{h}.h>" for h in ("math", "stdio", "stdlib", "string")),
        _COMPARE,
    ]
    lines += ["int main(void) {", "  int wrong = 0;"]
    arguments = [f"in{n}" for n in range(len(program.inputs))] + [f"out{n}" for n in range(len(program.outputs))]
    for n, (_, aval) in enumerate(program.inputs):
        lines.append(f'  {_pointer(aval)} *in{n} = loaded("in{n}.bin", {aval.nbytes});')
    for n, (_, aval) in enumerate(program.outputs):
        lines.append(f"  {_pointer(aval)} *out{n} = aligned_alloc({ALIGNMENT}, {_rounded(aval.nbytes) + ALIGNMENT});")
    lines.append(f"  if ({program.name}({', '.join(arguments)})) return 3;")
    for n, (_, aval) in enumerate(program.outputs):
        width = {"float": 4, "double": 8}.get(_pointer(aval), 0)
        expected = f'loaded("expected{n}.bin", {aval.nbytes})'
        lines.append(f'  wrong += differs("out{n}", out{n}, {expected}, {aval.nbytes}, {width});')
    return "\n".join([*lines, '  puts(wrong ? "wrong" : "as expected");', "  return wrong != 0;", "}", ""])


def _makefile(name: str, libraries: int) -> str:
    own = [f for f in flags() if f not in ("-shared", "-pipe")]
    parts = " ".join([f"{name}.c", f"{name}_kernels.c", *(f"{name}_library{n}.c" for n in range(libraries))])
    return (
        f"CFLAGS = {' '.join(own)}\nPARTS = {parts}\n\n"
        f"lib{name}.so: $(PARTS) {name}.h\n\t$(CC) $(CFLAGS) -shared -o $@ $(PARTS) {' '.join(LIBRARIES)}\n\n"
        f"test_{name}: test_{name}.c $(PARTS) {name}.h\n\t$(CC) $(CFLAGS) -o $@ test_{name}.c $(PARTS) {' '.join(LIBRARIES)}\n\n"
        f"test: test_{name}\n\t./test_{name}\n\n.PHONY: test\n"
    )
