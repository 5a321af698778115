"""Tracebacks that end in the user's line: fuser's own frames are taken out, with a note how to see them.

`FUSER_TRACEBACK=full` leaves everything in place.
"""

from __future__ import annotations

from types import TracebackType

from fuser.config import config
from fuser.ir.source import is_hidden

NOTE = "fuser's own frames are hidden; set FUSER_TRACEBACK=full to see them"


def hide(error: BaseException) -> BaseException:
    """`error` with a traceback of the user's frames alone, to be raised again."""
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
    if not kept:
        return error
    rebuilt: TracebackType | None = None
    for frame in reversed(kept):
        rebuilt = TracebackType(rebuilt, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    if hidden and NOTE not in getattr(error, "__notes__", ()):
        error.add_note(NOTE)
    return error.with_traceback(rebuilt)
