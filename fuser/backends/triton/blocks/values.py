"""Values of a kernel over blocks as text: names in registers, and parts of memory that are loaded where their elements are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fuser.backends.triton import spell
from fuser.ir.types import ArrayType

MOST_ELEMENTS = 1 << 14  # of one value, which lies in registers


class Refused(Exception):
    """Why a kernel has no form here."""


@dataclass(frozen=True)
class Value:
    """A name of the text, of a type; of rank 0 any scalar expression."""

    text: str
    aval: ArrayType


@dataclass(frozen=True)
class Along:
    """A dimension of a view of memory: of the array the dimension, the text of its first element, and the extent; `seen` or one element."""

    dimension: int
    start: str
    extent: int
    seen: bool = True


@dataclass(frozen=True)
class Memory:
    """A part of an input: its dimensions in the order of the view, those of one element that are not seen behind."""

    param: str
    array: ArrayType
    along: tuple[Along, ...]

    @property
    def aval(self) -> ArrayType:
        return ArrayType(tuple(a.extent for a in self.along if a.seen), self.array.dtype)


@dataclass(frozen=True)
class Product(Value):
    """A product that is written where it is added to something."""

    sides: tuple[str, str] = ("", "")


Held = Value | Memory


def always(held: Held) -> Callable[[], Held]:
    """An input that is known."""
    return lambda: held


def check_powers(aval: ArrayType) -> None:
    if any(e < 1 or e & (e - 1) for e in aval.shape):
        raise Refused(f"a tensor of Triton's has powers of two as extents, and {aval} has not")


def integer(text: str) -> Value:
    """A program id: an expression of the text, or a number."""
    aval = ArrayType((), np.dtype(np.int32))
    return Value(spell.typed(np.int32(int(text)), aval.dtype) if text.isdigit() else text, aval)


def shape_text(aval: ArrayType) -> str:
    return f"({', '.join(map(str, aval.shape))},)" if aval.ndim == 1 else f"({', '.join(map(str, aval.shape))})"


def plain(text: str) -> str:
    """The number itself of a literal's text."""
    return text.removeprefix("tl.full((), ").split(",")[0] if text.startswith("tl.full((), ") else text


def times(text: str, factor: int) -> str:
    if factor == 1 or text == "0":
        return text
    return (
        str(int(text) * factor) if text.isdigit() else f"({text}) * {factor}" if " + " in text else f"{text} * {factor}"
    )


def plus(a: str, b: str) -> str:
    return b if a == "0" else a if b == "0" else f"{a} + {b}"


def summed(text: str) -> str:
    parts = text.split(" + ")
    return str(sum(map(int, parts))) if all(p.isdigit() for p in parts) else text
