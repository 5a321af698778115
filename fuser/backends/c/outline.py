"""Long kernels for the C compiler: each vector loop becomes a function of its own, and equal loops one function.

A compiler's work grows faster than the length of a function, and a deep network repeats the same loops under other
names. In: the text of a generated kernel. Out: the functions that its loops became, and the kernel that calls them.
Only loops whose every name is understood are taken out; the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MANY = 8  # vector loops in a kernel from which they are taken out

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"(?<![\w.\]])([A-Za-z_]\w*) [-+*/|&^]?= ")
_TYPE = r"(?:const )?(?:unsigned )?[a-z_]\w*"
_DECLARED = re.compile(rf"^\s*({_TYPE}(?: \*restrict)?) \*?([A-Za-z_]\w*) = ")
_COUNTER = re.compile(r"^\s*for \((int64_t) (\w+) = ")
_PARAMETER = re.compile(rf"^\s*({_TYPE} \*restrict) (\w+) = ")
_FREE = {"const", "float", "double", "if", "for", "else", "_Bool", "int", "long", "unsigned", "char", "short", "sizeof"}


def outline(text: str, known: dict[str, str]) -> str:
    """The kernel with its vector loops as calls; `known` gains the functions: their canonical text, and their name."""
    if text.count("#pragma omp simd") < MANY:
        return text
    types: dict[str, str] = {}
    result: list[str] = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("#pragma omp simd"):
            end = _end_of_loop(lines, number + 1)
            call = _call(lines[number:end], types, known)
            if call is not None:
                result.append(line[: len(line) - len(line.lstrip())] + call)
                number = end
                continue
        types.update(_declarations(line))
        result.append(line)
        number += 1
    return "\n".join(result)


def _call(loop: list[str], types: dict[str, str], known: dict[str, str]) -> str | None:
    """The call that stands for a loop, or None if it has a name that cannot be told."""
    body = "\n".join(loop)
    local = {name for line in loop for name, _ in _declarations(line)}
    used = dict.fromkeys(_NAME.findall(body))
    outer = [name for name in used if name in types and name not in local]
    strange = [n for n in used if n not in types and n not in local and n not in _FREE and not _called(n, body)]
    if [n for n in strange if n not in ("pragma", "omp", "simd", "reduction", "int64_t", "max", "min")]:
        return None
    written = {n for n in _ASSIGNED.findall(body) if n in outer and "*" not in types[n]}
    renamed = {name: f"p{n}" for n, name in enumerate(outer)}
    renamed |= {name: f"t{n}" for n, name in enumerate(n for n in used if n in local)}
    text = _NAME.sub(lambda match: renamed.get(match[0], match[0]), body)
    parameters = ", ".join(_parameter(types[n], renamed[n], n in written) for n in outer)
    before = "".join(f"  {_plain(types[n])} {renamed[n]} = *{renamed[n]}_at;\n" for n in outer if n in written)
    after = "".join(f"  *{renamed[n]}_at = {renamed[n]};\n" for n in outer if n in written)
    text = f"({parameters}) {{\n{before}{_dedented(text)}\n{after}}}"
    name = known.setdefault(text, f"loop{len(known)}")
    return f"{name}({', '.join(f'&{n}' if n in written else n for n in outer)});"


def function(name: str, text: str) -> str:
    """The function that a loop became. Kernels in other translation units may call it."""
    return f"{prototype(name, text)[:-1]}{text[text.index(') {') + 1 :]}"


def prototype(name: str, text: str) -> str:
    """Its declaration."""
    return f'__attribute__((noinline, visibility("hidden"))) void {name}{text[: text.index(") {") + 1]};'


def _declarations(line: str) -> Iterator[tuple[str, str]]:
    """(name, type) of what a line declares."""
    for pattern in (_COUNTER, _PARAMETER, _DECLARED):
        match = pattern.match(line)
        if match and match[1].split()[-1] not in ("return", "else"):
            yield match[2], match[1]
            return


def _called(name: str, body: str) -> bool:
    return re.search(rf"\b{name}\(", body) is not None


def _parameter(kind: str, name: str, written: bool) -> str:
    return f"{_plain(kind)} *restrict {name}_at" if written else f"{kind} {name}"


def _plain(kind: str) -> str:
    return kind.removeprefix("const ")


def _end_of_loop(lines: list[str], start: int) -> int:
    """The number of the line after the closing brace of the block that opens at `start`."""
    depth = 0
    for number in range(start, len(lines)):
        depth += lines[number].count("{") - lines[number].count("}")
        if depth == 0:
            return number + 1
    return len(lines)


def _dedented(text: str) -> str:
    lines = text.split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join("  " + line[indent:] for line in lines)
