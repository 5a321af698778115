"""Arrays of a block on the stack: those of one size begin at different places of their pages."""

from __future__ import annotations

from fuser.backends.c.builder import STAGGER, Builder
from fuser.backends.c.function import PLAIN


def declared(kind: str, extent: int | str) -> str:
    builder = Builder()
    builder.buffer(kind, "block", extent, "")
    (line,) = builder.statements[0].lines("", PLAIN)
    return line


def test_arrays_that_fill_parts_of_pages_are_some_lines_longer() -> None:
    assert declared("float", 1024) == f"float block[1024 + {STAGGER} / sizeof(float)];"
    assert declared("double", 2048) == f"double block[2048 + {STAGGER} / sizeof(double)];"
    assert (
        STAGGER % 64 == 0 and STAGGER // 64 % 2 == 1
    )  # an odd number of lines: no two of 64 arrays begin at one place


def test_others_are_as_long_as_they_were_asked_for() -> None:
    assert declared("float", 80) == "float block[80];"
    assert declared("float", 1000) == "float block[1000];"
    assert declared("float", "16") == "float block[16];"
