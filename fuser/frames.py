"""Tracebacks that end in the user's line: fuser's own frames are taken out, with a note how to see them.

`FUSER_TRACEBACK=full` leaves everything in place.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import TracebackType
from typing import Any

from fuser.config import config
from fuser.errors import FuserError
from fuser.ir.source import hide_frames_of, is_hidden

EXCLUDED: list[str] = []  # the files of libraries whose frames are hidden as fuser's are
RAISE = dis.opmap["RAISE_VARARGS"]
NOTE = "fuser's own frames are hidden; set FUSER_TRACEBACK=full to see them"


def hide(error: BaseException) -> BaseException:
    """`error` with a traceback of the user's frames alone, to be raised again; a defect of fuser's, with none of them, keeps all."""
    if config.traceback == "full":
        return error
    kept = []
    frame = error.__traceback__
    hidden = 0
    while frame is not None:
        if is_hidden(frame.tb_frame.f_code.co_filename):
            hidden += 1
        else:
            kept.append(frame)
        frame = frame.tb_next
    if not kept and not isinstance(error, FuserError) and not _refuses(error):
        return error
    rebuilt: TracebackType | None = None
    for frame in reversed(kept):
        rebuilt = TracebackType(rebuilt, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    if hidden and NOTE not in getattr(error, "__notes__", ()):
        error.add_note(NOTE)
    return error.with_traceback(rebuilt)


def _refuses(error: BaseException) -> bool:
    """Whether a `raise` of fuser's says what it cannot take: what Python raises by itself is a defect, and so is an `assert` that fails."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None or not isinstance(error, (TypeError, ValueError, IndexError, NotImplementedError)):
        return False
    return frame.tb_frame.f_code.co_code[frame.tb_lasti] == RAISE


def is_own(error: BaseException) -> bool:
    """Whether it was raised in a frame of fuser's own, not of the user's."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and is_hidden(frame.tb_frame.f_code.co_filename)


def register_exclusion(path: str) -> None:
    """Hide the frames of a library's file as fuser's own are hidden, in tracebacks and where equations come from."""
    EXCLUDED.append(path)
    hide_frames_of(path)


def include_frame(frame: Any) -> bool:
    """Whether a frame is the user's own."""
    return not is_hidden(frame.f_code.co_filename)


def api_boundary(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function itself: the functions of fuser hide their frames by themselves."""
    return function
