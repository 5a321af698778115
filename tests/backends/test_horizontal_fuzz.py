"""A fixed share of `fuzz_bundles`: unrelated kernels of all dtypes in one program, against each by itself in NumPy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fuser.backends.c.compilation import outlining
from fuser.backends.c.function import Function
from fuser.config import config
from tests.backends import fuzz_horizontal as fuzz
from tests.backends.horizontal_cases import DTYPES, Piece

SEED = 2


@pytest.fixture(scope="module")
def compiler() -> Iterator[str]:
    with fuzz.scratch() as quick:
        yield quick


@pytest.fixture(scope="module")
def made() -> list[Piece]:
    """Without library functions, which take long to compile for all dtypes, and have tests of their own."""
    with config.using(enable_x64=True):
        return [part for part in fuzz.pool(SEED, 200) if not {"product", "sort"} & set(re.findall(r"\w+", part.name))]


def test_the_pool_has_all_dtypes_and_pieces_without_elements(made: list[Piece]) -> None:
    arrays = [a for part in made for a in (*part.arrays, *part.expected)]
    assert set(DTYPES) <= {a.dtype for a in arrays} and any(a.size == 0 for a in arrays)
    again = fuzz.piece(int(made[5].name.split(":")[0]))
    assert again is not None and again.name == made[5].name


@pytest.mark.parametrize("number", range(6))
def test_many_kernels_in_one_program(number: int, made: list[Piece], compiler: str) -> None:
    """The first is optimised as usual."""
    with config.using(enable_x64=True, cc=compiler if number else ""):
        pieces = fuzz.program(SEED, number, made)
        assert fuzz.check(pieces, f"{SEED}/{number}") == []


def test_the_fuzz_finds_a_type_that_is_not_the_loops_own(
    made: list[Piece], compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the types of one kernel served the next: then stores go to the wrong places, or nothing compiles."""
    known: dict[str, str] = {}
    before = outlining.Outline.functions

    def mistyped(self: outlining.Outline) -> dict[str, Function]:
        found = before(self)
        for name, function in found.items():
            kinds = tuple((known.setdefault(v.name, kind), v) for kind, v in function.parameters)
            found[name] = replace(function, parameters=kinds)
        return found

    monkeypatch.setattr(outlining.Outline, "functions", mistyped)
    with config.using(enable_x64=True, cc=compiler):
        wrong = [fuzz.check(fuzz.program(SEED, number, made), f"{SEED}/{number}") for number in range(3)]
    assert any(wrong)
