"""The kernels inside a loop: functions under names of the loop's own, each once.

In: the kernels that a loop or a branch calls, loops among them. Out: their functions, which stand before that of the loop.
A name holds a hash of the text: equal kernels have equal names, and so have loops that call them one text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fuser.backends.c.control_flow import thread_tuning
from fuser.backends.c.control_flow.interrupt import START
from fuser.backends.c.emitter import NOINLINE
from fuser.backends.c.function import (
    KEY,
    Buffer,
    Definition,
    Function,
    Module,
    Own,
    Parts,
    Symbol,
    rewritten,
    text_of,
    walk,
)

DIGITS = 8  # of the hash in a name


class Nested:
    """The functions of the kernels inside the loop `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Function | Definition] = []
        self.names: set[Any] = set()  # of what loops call

    def take(self, module: Module, name: str) -> Symbol:
        """Take the functions of the kernel `name` in; gives the name that its entry has here. Equal kernels share one."""
        *inner, own = _runs(module.parts)
        for run in inner:
            self._add(run)
        title = self._within(name)
        if title not in module.inside:
            module.inside[title] = _titled(own, title)
        self._add(module.inside[title])
        entry = module.inside[title][-1]
        assert isinstance(entry, Function) and isinstance(entry.name, Symbol)
        return entry.name

    def _add(self, run: Parts) -> None:
        entry = run[-1]
        assert isinstance(entry, Function)
        if entry.name not in self.names:
            self.names.add(entry.name)
            self.parts += run

    def _within(self, name: str) -> str:
        """The name of a kernel in this loop without what its own begins with too, nor numbers: equal kernels differ in them."""
        pieces, own = name.split("_"), self.name.split("_")
        shared = next((n for n, (a, b) in enumerate(zip(pieces, own)) if a != b), 0)
        return "_".join(piece for piece in pieces[shared:] if not piece.isdigit())


def _titled(own: Parts, title: str) -> Parts:
    """A kernel's functions as a loop calls them, under names that begin with `title` and end with a hash of the text."""
    own = tuple(_inside(part) if isinstance(part, Function) else part for part in own)
    names = [part.name for part in own if isinstance(part, Function)]
    text = text_of(_renamed(own, {each: Own(f" {n}") for n, each in enumerate(names)}), KEY)
    title = f"{title}_{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"
    *others, entry = _renamed(
        own, {each: Symbol(f"{title}{each.suffix}" if isinstance(each, Own) else each.name) for each in names}
    )
    assert isinstance(entry, Function)
    return (*others, replace(entry, static=True, separable=True))


def _inside(function: Function) -> Function:
    """A kernel's function where a loop calls it. One whose stack grows with its arguments is no part of the loop's."""
    dynamic = any(isinstance(s, Buffer) and s.dynamic for s in walk(function.body))
    attributes = NOINLINE if dynamic and NOINLINE not in function.attributes else ""
    body = tuple(s for s in function.body if s != START)
    return thread_tuning.inside(
        replace(function, body=body, first_size=None, attributes=attributes + function.attributes)
    )


def _runs(parts: Parts) -> Iterator[Parts]:
    """The functions that loops call, the last of all among them, each behind those that it alone calls."""
    start = 0
    for n, part in enumerate(parts, 1):
        if n == len(parts) or (isinstance(part, Function) and part.separable):
            yield parts[start:n]
            start = n


def _renamed(parts: Parts, names: Mapping[Any, Any]) -> Parts:
    """The functions under other names."""

    def change(part: Any) -> Any:
        return names.get(part, part) if type(part) is Own or type(part) is Symbol else part

    return tuple(
        replace(part, name=change(part.name), body=rewritten(part.body, change)) if isinstance(part, Function) else part
        for part in parts
    )
