"""Where an equation comes from: the user's own line, and the transforms that it came through.

`current_source()` walks the Python stack to the first frame outside fuser, NumPy, torch and optree.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from fuser.ir.names import printable

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("numpy", "torch", "optree", "opt_einsum"))
_hidden: dict[str, bool] = {}
# What `via` holds besides names of scopes.
TRANSFORMS = frozenset({"grad", "jet", "jit", "jvp", "linearize", "vjp", "vmap"})


class _State(threading.local):
    via: tuple[str, ...] = ()
    forward: Source | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's program: full file name, line number, function; and `via`, the transforms passed."""

    file: str = ""
    lineno: int = 0
    function: str = ""
    via: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """`mlp.py:12 (loss)`, or `` when unknown."""
        return f"{self._name}:{self.lineno} ({printable(self.function)})" if self.file else ""

    @property
    def name_stack(self) -> str:
        """The names of the `named_scope` blocks around the operation, outermost first: `encoder/attention`."""
        return "/".join(name for name in self.via if name not in TRANSFORMS)

    @property
    def short(self) -> str:
        """`mlp.py:12`."""
        return f"{self._name}:{self.lineno}" if self.file else "an unknown line"

    @property
    def code(self) -> str:
        """What stands on the line; `` where it cannot be read."""
        try:
            readable = os.path.isfile(self.file) or not os.path.exists(self.file)  # a notebook's cell is no file
            return printable(linecache.getline(self.file, self.lineno).strip().expandtabs()) if readable else ""
        except ValueError:  # a name that no file can have
            return ""

    @property
    def _name(self) -> str:
        return printable(os.path.basename(self.file))

    def __str__(self) -> str:
        return self.line + (f" via {', '.join(self.via)}" if self.via else "")


UNKNOWN = Source()
_state = _State()


def is_hidden(filename: str) -> bool:
    """Whether frames of this file are fuser's or a library's, not the user's."""
    known = _hidden.get(filename)
    if known is None:
        known = filename.startswith((_OWN, "<")) or (
            "site-packages" in filename and any(part in filename for part in _LIBRARIES)
        )
        if filename.startswith(("<ipython", "<stdin", "<string", "<doctest")):
            known = False
        _hidden[filename] = known
    return known


def hide_frames_of(filename: str) -> None:
    """Have frames of this file count as a library's: what it calls comes from the line that called it."""
    _hidden[filename] = True


def current_source() -> Source:
    """The innermost line of the user's program that is now running."""
    if _state.forward is not None:
        return _state.forward
    frame = sys._getframe(1)
    while frame is not None:
        if not is_hidden(frame.f_code.co_filename):
            return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, _state.via)
        frame = frame.f_back  # type: ignore[assignment]
    return UNKNOWN


@contextlib.contextmanager
def replayed(source: Source) -> Iterator[None]:
    """Equations made in this block come from `source`, through its transforms and those of the block around."""
    saved = _state.forward
    via = (*source.via, *(name for name in _state.via if name not in source.via))
    _state.forward = source if via == source.via else Source(source.file, source.lineno, source.function, via)
    try:
        yield
    finally:
        _state.forward = saved


@contextlib.contextmanager
def through(transform: str, forward: Source | None = None) -> Iterator[None]:
    """Equations made in this block came through `transform`; with `forward`, from that line of the forward pass."""
    saved = _state.via, _state.forward
    _state.via = _state.via if transform in _state.via else (*_state.via, transform)
    forward = forward or _state.forward
    if forward is not None:
        via = forward.via if transform in forward.via else (*forward.via, transform)
        _state.forward = Source(forward.file, forward.lineno, forward.function, via)
    try:
        yield
    finally:
        _state.via, _state.forward = saved
