"""Literal arguments: kernels that differ in constants alone become one function, which reads them behind its size arguments.

In: kernels. Out: for each the kernel to compile, the same for all that differ so, and the further size arguments of its calls.
Layers of a network differ so in their rates, steps of a simulation in their times.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fuser.backends.c.function import (
    FORM,
    SIZES,
    Element,
    Function,
    Let,
    Module,
    Number,
    Part,
    Variable,
    code,
    leaves,
    rewritten,
)


def shared(kernels: Sequence[Module], counts: Sequence[int]) -> list[tuple[Module, tuple[int, ...]]]:
    """For each kernel what is compiled for it, and the size arguments that it needs at the end; `counts` are those it has."""
    alike: dict[tuple[str, int], list[int]] = {}
    for n, (kernel, count) in enumerate(zip(kernels, counts)):
        alike.setdefault((kernel.text(FORM), count), []).append(n)
    result: list[tuple[Module, tuple[int, ...]]] = [(kernel, ()) for kernel in kernels]
    for (_, count), members in alike.items():
        numbers = [[number for f in kernels[n].functions for number in numbers_of(f)] for n in members]
        varying = [n for n, column in enumerate(zip(*numbers)) if len(set(column)) > 1]
        reading = _reading(kernels[members[0]], count, varying) if varying else None
        if reading is not None:
            for member, own in zip(members, numbers):
                result[member] = (reading, tuple(_bits(own[n]) for n in varying))
    return result


def numbers_of(function: Function) -> Iterator[Number]:
    """The numbers of a function, in the order of its text."""
    parts = (part for statement in function.body for part in statement.parts())
    return (leaf for leaf in leaves(*parts) if type(leaf) is Number)


def _reading(kernel: Module, count: int, varying: Sequence[int]) -> Module | None:
    """The kernel with the numbers at these places read from `sizes`, which has `count` others; None where one stands in a
    function whose size arguments differ from call to call.
    """
    places = {number: count + n for n, number in enumerate(varying)}
    position = itertools.count()
    parts = list(kernel.parts)
    for n, function in enumerate(parts):
        if not isinstance(function, Function):
            continue
        numbers = list(zip(position, numbers_of(function)))
        own = {at: number for at, number in numbers if at in places}
        if own and function.first_size is None:
            return None
        if own:
            parts[n] = _with_arguments(function, numbers[0][0], own, places)
    return Module(kernel.name, tuple(parts)).changed(lambda f: replace(f, comments=()))  # it serves several lines


def _with_arguments(function: Function, first: int, own: dict[int, Number], places: dict[int, int]) -> Function:
    """The function with its numbers from the `first` on, as far as they are in `own`, taken from its size arguments."""
    assert function.first_size is not None
    variables = {at: Variable(f"number{at}", number.type) for at, number in own.items()}
    lets = [
        Let(
            f"const {variable.type}",
            (variable,),
            (
                code(
                    f"((union {{{{ int64_t bits; {variable.type} value; }}}}) {{{{ {{}} }}}}).value",
                    Element(SIZES, code(str(places[at] - function.first_size))),
                ),
            ),
        )
        for at, variable in variables.items()
    ]
    position = itertools.count(first)

    def change(part: Part) -> Part:
        return variables.get(next(position), part) if type(part) is Number else part

    return replace(function, body=(*lets, *rewritten(function.body, change)))


def _bits(number: Number) -> int:
    """What `sizes` holds for a number."""
    value = float(number.text.removesuffix("f"))
    packed = struct.pack("=fi", value, 0) if number.type == "float" else struct.pack("=d", value)
    return int(struct.unpack("=q", packed)[0])
