"""The public names of JAX that fuser lacks are those that docs/differences-from-jax.md lists, neither more nor fewer."""

from __future__ import annotations

import importlib

import jax
import pytest

import fuser
from fuser import gaps
from fuser.errors import AbsentError
from tests import surface

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
