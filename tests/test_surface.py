"""The public names of JAX that fuser lacks are those that docs/differences-from-jax.md lists, neither more nor fewer."""

from __future__ import annotations

import importlib
import inspect

import jax
import pytest

import fuser.extend.core
from fuser import gaps
from fuser.errors import AbsentError
from tests import signatures, surface

HINT = "run `python -m tests.surface --write`"


@pytest.mark.skipif(jax.__version__ != surface.VERSION, reason=f"the page is about JAX {surface.VERSION}")
def test_the_page_lists_what_is_missing() -> None:
    _, pending, _ = surface.survey()
    deliberate, still = surface.sections(surface.PAGE.read_text())
    assert deliberate == surface.table(), HINT
    assert still == surface.listing(pending), HINT


def test_what_is_left_out_on_purpose_says_so() -> None:
    for module, names in gaps.NAMES.items():
        found = importlib.import_module(f"fuser.{module}".rstrip("."))
        for name, (why, instead) in names.items():
            with pytest.raises(AbsentError) as caught:
                getattr(found, name)
            path = ".".join(filter(None, ("jax", module, name)))
            assert str(caught.value) == f"{path} is not offered: {why}; instead: {instead}"
            assert not hasattr(found, name)
    for module, (why, instead) in gaps.MODULES.items():
        parent, _, name = module.rpartition(".")
        found = importlib.import_module(f"fuser.{parent}".rstrip("."))
        with pytest.raises(AbsentError) as caught:
            getattr(found, name)
        assert str(caught.value) == f"jax.{module} is not offered: {why}; instead: {instead}"


def test_other_names_are_plain_attribute_errors() -> None:
    with pytest.raises(AttributeError) as caught:
        fuser.no_such_name  # noqa: B018
    assert (
        type(caught.value) is AttributeError and str(caught.value) == "module 'fuser' has no attribute 'no_such_name'"
    )


@pytest.mark.skipif(jax.__version__ != surface.VERSION, reason=f"the page is about JAX {surface.VERSION}")
def test_functions_take_what_those_of_jax_take() -> None:
    found = signatures.differences()
    assert {name: text for name, text in found.items() if name not in signatures.REASONS} == {}
    assert set(signatures.REASONS) <= set(found)
    assert signatures.undocumented() == []
    assert signatures.written() == signatures.table(), "run `python -m tests.signatures --write`"


def test_a_difference_of_signatures_is_found() -> None:
    def theirs(x: object, y: object = 1, *, axis: int = 0) -> None: ...

    def more(x: object, y: object = 1, z: object = None, *, axis: int = 0) -> None: ...

    def renamed(x: object, w: object = 1, *, axis: int = 0) -> None: ...

    def other(x: object, y: object = 1, *, axis: int = 1) -> None: ...

    def fewer(x: object, y: object = 1) -> None: ...

    def asking(x: object, y: object = 1, *, axis: int = 0, out: object) -> None: ...

    wanted = inspect.signature(theirs)
    texts = [signatures.difference(wanted, inspect.signature(f)) for f in (theirs, more, renamed, other, fewer, asking)]
    assert texts == [
        None,
        None,
        "positional parameters ['x', 'y'], found ['x', 'w']",
        "axis is 1 if left out, not 0",
        "no parameter axis",
        "out must be given",
    ]


@pytest.mark.parametrize("name", ["DropVar", "gensym", "jaxprs_in_params"])
def test_names_that_moved_out_of_core_are_there_with_a_warning(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"Use fuser.extend.core.{name}"):
        found = getattr(fuser.core, name)
    assert found is getattr(fuser.extend.core, name)
