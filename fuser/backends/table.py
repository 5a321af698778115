"""How a target spells the scalar vocabulary, as data: one table a backend.

`operations` maps a class of dtypes to the operations that the target has on it, each with its spelling. What a table lacks is
decomposed into what it has before anything is spelt (`kernel/decompose.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.scalar import LEAVES, Scalar
from fuser.ir.types import BOOL, is_complex, is_inexact

# A spelling: a text in which `{0}`, `{1}` … are operands and `{name}` what depends on their type, or a function of the node and
# its operands.
Spelling = str | Callable[[Scalar, Sequence[Any]], Any]

_DOUBLE = np.dtype("float64")
_WORD = re.compile(r"\w+")


def classes(dtype: np.dtype) -> tuple[str, ...]:
    """The classes that a dtype belongs to, the narrowest first; keys are unsigned."""
    if dtype == BOOL:
        return ("bool", "any")
    if is_complex(dtype):
        return ("complex", "any")
    if is_inexact(dtype):
        narrow = ("double",) if dtype == _DOUBLE else ("half",) if dtype.itemsize == 2 else ()
        return (*narrow, "float", "any")
    return ("signed" if dtype.kind == "i" else "unsigned", "integer", "any")


def operand_dtype(node: Scalar) -> np.dtype:
    """The dtype by which an operation is looked up: that of its first operand, of a selection that of what is chosen."""
    return node.args[1].dtype if node.op == "select" else node.args[0].dtype


@dataclass(frozen=True, eq=False)
class Table:
    """The operations of a target by class of their operands, and helper functions, each after those that it calls."""

    language: str
    operations: Mapping[str, Mapping[str, Spelling]]
    helpers: dict[str, str] = field(default_factory=dict)  # by name, the text of a function
    fields: Callable[[np.dtype], Mapping[str, str]] = lambda dtype: {}  # what `{name}` stands for beside such operands
    fill: Callable[[str, Sequence[Any]], Any] = lambda form, args: form.format(*args)

    def spelling(self, op: str, dtype: np.dtype) -> Spelling | None:
        """How the operation is spelt on operands of this dtype; None where the target lacks it."""
        return self._spellings(op, dtype)

    def has(self, node: Scalar) -> bool:
        """Whether the node can be spelt: leaves always can."""
        return node.op in LEAVES or not node.args or self.spelling(node.op, operand_dtype(node)) is not None

    def operation(self, node: Scalar, args: Sequence[Any]) -> Any:
        """The expression of a node on operands that are names or literals."""
        form = self.spelling(node.op, operand_dtype(node))
        if form is None:
            raise UnsupportedError(f"{self.language} has no {node.op} of {operand_dtype(node)}, nor what it is made of")
        return self.fill(form, args) if isinstance(form, str) else form(node, args)

    def used(self, words: Iterable[str]) -> tuple[list[str], set[str]]:
        """The texts of the helpers that a text with these words calls, in order; the words, those of the helpers too."""
        found, known = [], set(words)
        for name in reversed(self.helpers):
            if name in known:
                found.append(self.helpers[name])
                known |= self._words[name]
        return found[::-1], known

    def without(self, *names: str) -> Table:
        """The table of a target that lacks these operations."""
        kept = {kind: {n: s for n, s in lines.items() if n not in names} for kind, lines in self.operations.items()}
        return replace(self, operations=kept)

    def changed(self, kind: str, **lines: Spelling) -> Table:
        """The table with other spellings of these operations on one class of dtypes."""
        return replace(self, operations={**self.operations, kind: {**self.operations.get(kind, {}), **lines}})

    @functools.cached_property
    def _spellings(self) -> Callable[[str, np.dtype], Spelling | None]:
        @functools.cache
        def look_up(op: str, dtype: np.dtype) -> Spelling | None:
            lines = (self.operations[kind] for kind in classes(dtype) if kind in self.operations)
            form = next((line[op] for line in lines if op in line), None)
            if isinstance(form, str):
                for name, text in self.fields(dtype).items():
                    form = form.replace(f"{{{name}}}", text)
            return form

        return look_up

    @functools.cached_property
    def _words(self) -> dict[str, set[str]]:
        return {name: words(text) for name, text in self.helpers.items()}


def words(text: str) -> set[str]:
    """The names in a text."""
    return set(_WORD.findall(text))
