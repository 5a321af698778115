"""Kernels that differ in numbers alone: one function, which reads the numbers behind its size arguments.

In: the sources of kernels. Out: for each the source to compile, one for all that are alike, and the size arguments that a
call has more. Layers of a network differ so in their rates, steps of a simulation in their times.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Sequence

from fuser.backends.base import KernelSource

NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)f?(?![\w.])")
_COMMENT = re.compile(r"^\s*//[^\n]*\n", re.MULTILINE)
_START = re.compile(r"^[a-z_](?:[^\n;]*[ *])?(\w+)\(([^\n]*)\) \{$", re.MULTILINE)
_TAIL = re.compile(r"\(void \*\)\(sizes \+ (\d+)\)")


def shared(sources: Sequence[KernelSource]) -> list[tuple[KernelSource, tuple[int, ...]]]:
    """For each kernel the source that is compiled for it, and the size arguments that it needs at the end."""
    texts = [_COMMENT.sub("", source.text) for source in sources]
    alike: dict[tuple[str, int], list[int]] = {}
    for n, (source, text) in enumerate(zip(sources, texts)):
        form = NUMBER.sub("?", text.replace(source.name, "kernel"))
        alike.setdefault((form, len(source.launch.get("sizes", ()))), []).append(n)
    result: list[tuple[KernelSource, tuple[int, ...]]] = [(source, ()) for source in sources]
    for (_, count), members in alike.items():
        numbers = [NUMBER.findall(texts[n]) for n in members]
        varying = [n for n, column in enumerate(zip(*numbers)) if len(set(column)) > 1]
        first = sources[members[0]]
        reading = _reading(first.name, texts[members[0]], count, varying) if varying else None
        if reading is not None:
            source = dataclasses.replace(first, text=reading)
            for member, own in zip(members, numbers):
                result[member] = (source, tuple(_bits(own[n]) for n in varying))
    return result


def _reading(name: str, text: str, count: int, varying: Sequence[int]) -> str | None:
    """The text with the numbers at these places read from `sizes`, which has `count` others; None where it has functions
    that get no sizes, or others than their own.
    """
    places = {number: count + n for n, number in enumerate(varying)}
    starts = list(_START.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    passed = 0
    parts = [text[: starts[0].start()]] if starts else []
    for start, end in zip(starts, ends):
        head, body = text[start.start() : start.end()], text[start.end() : end]
        inside = range(passed, passed + len(NUMBER.findall(body)))
        passed = inside.stop
        mine = [n for n in inside if n in places]
        if mine:
            first = _first_size(start[1], name, text)
            if first is None or "const int64_t *sizes" not in start[2]:
                return None
            numbers = iter(inside)
            found = NUMBER.sub(lambda match: f"number{n}" if (n := next(numbers)) in places else match[0], body)  # noqa: B023
            kinds = dict(zip(inside, NUMBER.findall(body)))
            body = "".join(_declaration(n, kinds[n], places[n] - first) for n in mine) + found
        parts.append(head + body)
    return "".join(parts) if passed > max(varying) and not NUMBER.search(parts[0]) else None


def _first_size(function: str, name: str, text: str) -> int | None:
    """Which of the kernel's size arguments its function gets as the first; None if that is not known."""
    if function in (name, f"{name}_share"):
        return 0
    offsets = set(_TAIL.findall(text))
    return int(offsets.pop()) if function == f"{name}_tail" and len(offsets) == 1 else None


def _declaration(number: int, text: str, place: int) -> str:
    kind = "float" if text.endswith("f") else "double"
    return f"\n  const {kind} number{number} = ((union {{ int64_t bits; {kind} value; }}) {{ sizes[{place}] }}).value;"


def _bits(text: str) -> int:
    """What `sizes` holds for a number."""
    value = float(text.removesuffix("f"))
    packed = struct.pack("=fi", value, 0) if text.endswith("f") else struct.pack("=d", value)
    return int(struct.unpack("=q", packed)[0])
