"""Long kernels for the C compiler: each vector loop becomes a function of its own, and like loops one function.

A compiler's work grows faster than the length of a function, and a deep network repeats the same loops on other rows, under
other names and with other numbers. In: the texts of generated kernels. Out: the functions that their loops became, and
kernels that call them. Only loops whose every name is understood are taken out; the others stay.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fuser.backends.c.numbers import NUMBER

MANY = 10  # vector loops in a kernel from which they are taken out
LIKE = 3  # like loops in a kernel from which they are
LONG = 12  # lines of a loop beside which a call is little

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"(?<![\w.\]])([A-Za-z_]\w*) [-+*/|&^]?= ")
_STORED = re.compile(r"(?:^|[{;])\s*([A-Za-z_]\w*)\[[^\n;]*?\] [-+*/|&^]?= ", re.MULTILINE)
_ELEMENT = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\[([^\[\]\n]*)\]")
_TYPE = r"(?:const )?(?:unsigned )?[a-z_]\w*"
_DECLARED = re.compile(rf"^\s*({_TYPE}(?: \*(?:restrict)?)?) ?([A-Za-z_]\w*) = ")
_ARRAY = re.compile(rf"^\s*({_TYPE}) ([A-Za-z_]\w*)\[[^\]]*\](?!\[)")
_COUNTER = re.compile(r"^\s*for \((int64_t) (\w+) = ")
_PARAMETER = re.compile(rf"^\s*({_TYPE} \*restrict) (\w+) = ")
_FREE = {"const", "float", "double", "if", "for", "else", "_Bool", "int", "long", "unsigned", "char", "short", "sizeof"}
_PRAGMA = {"pragma", "omp", "simd", "reduction", "int64_t", "max", "min"}
_BLANK = "\1"
_MARK = re.compile("\0(\\d+)\0")
# The kernels that are left only call: to optimise them takes long and gains nothing.
CALLER = '__attribute__((optimize("Og"))) '


@dataclass(frozen=True)
class Call:
    """One loop of a kernel: `target`, if any, takes what its function returns."""

    loop: Loop
    target: str
    arguments: tuple[str, ...]
    numbers: tuple[str, ...]  # that its text has where the function has a blank


@dataclass(frozen=True)
class Loop:
    """A function that loops became: its text has blanks for numbers."""

    returns: str
    parameters: tuple[str, ...]
    body: str


class Outline:
    """The loops taken out of a program's kernels; first all are taken, then they are written."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._loops: dict[Loop, list[Call]] = {}

    def take(self, text: str) -> str:
        """The kernel with a mark for each loop that was taken out; `kernel` writes the calls in their places.

        All vector loops are, where there are many, and long loops of all kinds that have several like them.
        """
        many, likely = text.count("#pragma omp simd") >= MANY, text.count("for (") >= LIKE * LIKE
        if not many and not likely:
            return text
        lines = text.split("\n")
        found = list(_loops(lines))
        like = Counter(call.loop for _, _, call in found)
        kept, result = 0, list[str]()
        for start, end, call in found:
            vector = lines[start].lstrip().startswith("#pragma")
            if (many and vector) or (end - start >= LONG and like[call.loop] >= LIKE):
                indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
                result += [*lines[kept:start], f"{indent}\0{len(self.calls)}\0"]
                self.calls.append(call)
                self._loops.setdefault(call.loop, []).append(call)
                kept = end
        return _eased([*result, *lines[kept:]])

    def functions(self) -> dict[str, tuple[str, str]]:
        """By name the prototype and the text of each function. Kernels in other translation units may call it."""
        return {
            name: _function(name, loop, self._loops[loop], self._varying[loop]) for loop, name in self._names.items()
        }

    def kernel(self, text: str) -> str:
        """The kernel with its calls."""
        return _MARK.sub(lambda mark: self._text_of(self.calls[int(mark[1])]), text)

    def _text_of(self, call: Call) -> str:
        arguments = [*call.arguments, *(call.numbers[n] for n in self._varying[call.loop])]
        return f"{call.target}{self._names[call.loop]}({', '.join(arguments)});"

    @functools.cached_property
    def _names(self) -> dict[Loop, str]:
        return {loop: f"loop{n}" for n, loop in enumerate(self._loops)}

    @functools.cached_property
    def _varying(self) -> dict[Loop, dict[int, str]]:
        """For each function the blanks that its calls fill differently, which are parameters, and those parameters' types;
        the other blanks are filled in.
        """
        found: dict[Loop, dict[int, str]] = {}
        for loop, calls in self._loops.items():
            columns = list(zip(*(call.numbers for call in calls)))
            found[loop] = {n: _type_of(column[0]) for n, column in enumerate(columns) if len(set(column)) > 1}
        return found


def _loops(lines: list[str]) -> Iterator[tuple[int, int, Call]]:
    """The innermost loops that can be taken out, each by its first line, the line after it, and its call."""
    types: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number].lstrip()
        shared = number > 0 and lines[number - 1].lstrip().startswith("#pragma omp for")
        if line.startswith("#pragma omp simd") or (line.startswith("for (") and line.endswith("{") and not shared):
            head = number + line.startswith("#")
            end = _end_of_loop(lines, head)
            if not any(other.lstrip().startswith(("for (", "#")) for other in lines[head + 1 : end]):
                call = _call(lines[number:end], types)
                if call is not None:
                    yield number, end, call
                    number = end
                    continue
        types.update(_declarations(lines[number]))
        number += 1


def _call(loop: list[str], types: dict[str, str]) -> Call | None:
    """The call that stands for a loop, or None if it has a name that cannot be told."""
    body = "\n".join(loop)
    local = {name for line in loop for name, _ in _declarations(line)}
    used = dict.fromkeys(_NAME.findall(body))
    if any(n not in types and n not in local and n not in _FREE | _PRAGMA and not _called(n, body) for n in used):
        return None
    places: dict[tuple[str, str], str] = {}
    stored = set(_STORED.findall(body))
    body = _ELEMENT.sub(lambda match: _row(match[1], match[2], types, local, places), body)
    types = types | {place: types[name] for (name, _), place in places.items()}
    arguments = {place: f"{name} + {rest}" for (name, rest), place in places.items()}
    stored |= {place for (name, _), place in places.items() if name in stored}
    used = dict.fromkeys(_NAME.findall(body))
    outer = [name for name in used if name in types and name not in local]
    written = [n for n in dict.fromkeys(_ASSIGNED.findall(body)) if n in outer and "*" not in types[n]]
    returned, others = (written[0] if written else ""), set(written[1:])
    renamed = {name: f"p{n}" for n, name in enumerate(outer)}
    renamed |= {name: f"t{n}" for n, name in enumerate(n for n in used if n in local)}
    text = _dedented(_NAME.sub(lambda match: renamed.get(match[0], match[0]), body))
    parameters = tuple(_parameter(types[n], renamed[n], n in others, n in stored) for n in outer)
    before = "".join(f"  {_plain(types[n])} {renamed[n]} = *{renamed[n]}_at;\n" for n in outer if n in others)
    after = "".join(f"  *{renamed[n]}_at = {renamed[n]};\n" for n in outer if n in others)
    after += f"  return {renamed[returned]};\n" if returned else ""
    numbers = tuple(NUMBER.findall(text))
    function = Loop(
        _plain(types[returned]) if returned else "void", parameters, f"{before}{NUMBER.sub(_BLANK, text)}\n{after}"
    )
    given = tuple(f"&{n}" if n in others else arguments.get(n, n) for n in outer)
    return Call(function, f"{returned} = " if returned else "", given, numbers)


def _row(name: str, index: str, types: dict[str, str], local: set[str], places: dict[tuple[str, str], str]) -> str:
    """An element by what the loop adds to a place that is known before it: loops on other rows then read alike."""
    if name in local or "*" not in types.get(name, ""):
        return f"{name}[{index}]"
    kept: list[tuple[str, str]] = []
    moved: list[tuple[str, str]] = []
    for sign, term in _terms(index):
        names = set(_NAME.findall(term))
        (moved if names and not names & local else kept).append((sign, term))
    if not moved or any("?" in term or ("(" in term and _called_any(term)) for _, term in moved):
        return f"{name}[{index}]"
    place = places.setdefault((name, _sum(moved)), f"{name}_at{len(places)}")
    return f"{place}[{_sum(kept)}]"


@functools.lru_cache(4096)
def _terms(index: str) -> tuple[tuple[str, str], ...]:
    """The terms of a sum, each with its sign."""
    terms, sign, start, depth = [], "+", 0, 0
    for n, letter in enumerate(index):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter in "+-" and index[n - 1 : n] == " " and index[n + 1 : n + 2] == " ":
            terms.append((sign, index[start:n].strip()))
            sign, start = letter, n + 1
    if any(mark in index for mark in "?<>&|=:"):
        return (("+", index),)
    return (*terms, (sign, index[start:].strip()))


def _sum(terms: list[tuple[str, str]]) -> str:
    text = " ".join(f"{sign} {term}" for sign, term in terms) or "0"
    return text.removeprefix("+ ")


def _called_any(text: str) -> bool:
    return re.search(r"\w\(", text) is not None


def _function(name: str, loop: Loop, calls: list[Call], varying: dict[int, str]) -> tuple[str, str]:
    """The prototype and the text of a function, with the numbers that all its calls share filled in."""
    parameters = (*loop.parameters, *(f"{kind} number{n}" for n, kind in varying.items()))
    start = f'__attribute__((noinline, visibility("hidden"))) {loop.returns} {name}({", ".join(parameters)})'
    numbers = iter([f"number{n}" if n in varying else number for n, number in enumerate(calls[0].numbers)])
    return f"{start};", f"{start} {{\n{re.sub(_BLANK, lambda _: next(numbers), loop.body)}}}"


def _type_of(number: str) -> str:
    return "float" if number.endswith("f") else "double"


def _eased(lines: list[str]) -> str:
    """The kernel; a function all of whose loops do no more than call is marked, so that no optimiser dwells on it."""
    starts = [n for n, line in enumerate(lines) if line[:1] not in (" ", "}", "", "/", "#") and line.endswith("{")]
    for start in starts:
        end = _end_of_loop(lines, start)
        loops = [n for n in range(start, end) if lines[n].lstrip().startswith("for (")]
        if loops and all(any("\0" in line for line in lines[n : _end_of_loop(lines, n)]) for n in loops):
            lines[start] = f"{CALLER}{lines[start]}"
    return "\n".join(lines)


def _declarations(line: str) -> Iterator[tuple[str, str]]:
    """(name, type) of what a line declares."""
    for pattern in (_COUNTER, _PARAMETER, _DECLARED):
        match = pattern.match(line)
        if match and match[1].split()[-1] not in ("return", "else"):
            yield match[2], match[1]
            return
    match = _ARRAY.match(line)
    if match:
        yield match[2], f"{match[1]} *restrict"


def _called(name: str, body: str) -> bool:
    return re.search(rf"\b{name}\(", body) is not None


def _parameter(kind: str, name: str, written: bool, stored: bool) -> str:
    """A parameter's declaration. Of a pointer that nothing is stored to it says so; whether two may meet is no matter
    to a loop that is told to be a vector's.
    """
    if "*" in kind:
        kind = _plain(kind).removesuffix("restrict").rstrip()
        return f"{kind}{name}" if stored else f"const {kind}{name}"
    return f"{_plain(kind)} *restrict {name}_at" if written else f"{_plain(kind)} {name}"


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
