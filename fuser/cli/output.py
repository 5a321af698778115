"""Where a command's words go: text or one JSON document to stdout, progress and errors to stderr.

Progress appears only for work that lasts over a second, and only on a terminal.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from rich.console import Console, RenderableType

PATIENCE = 1.0  # seconds of silent work after which progress is shown


class UsageError(Exception):
    """The command was called wrongly; the text says what is missing and how to give it."""


class Output:
    """The two streams of one command."""

    def __init__(self, command: str, as_json: bool) -> None:
        self.command = command
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=True, emoji=False)
        self._progress = Console(stderr=True, highlight=False)

    def print(self, *renderables: RenderableType | str, markup: bool = False) -> None:
        """Text for a person; nothing when JSON was asked for."""
        if not self.as_json:
            self.console.print(*renderables, markup=markup)

    def document(self, fields: dict[str, Any]) -> None:
        """The JSON document of the command; nothing when text was asked for."""
        if self.as_json:
            print(json.dumps({"command": self.command, **fields}, indent=1, default=str))

    def error(self, error: BaseException) -> None:
        """What went wrong, with the user's line where it is known."""
        if self.as_json:
            self.document({"error": {"type": type(error).__name__, "message": str(error), "where": _where(error)}})
            return
        kind = "" if isinstance(error, (UsageError, KeyboardInterrupt)) else f"{type(error).__name__}: "
        where = "" if isinstance(error, UsageError) else _where(error)
        seen = where and where not in str(error)
        print(f"error: {kind}{error}{f' ({where})' if seen else ''}", file=sys.stderr)

    @contextlib.contextmanager
    def progress(self, text: str) -> Iterator[None]:
        """Say on a terminal what takes so long, from the second second on."""
        if not self._progress.is_terminal:
            yield
            return
        status = self._progress.status(text)
        timer = threading.Timer(PATIENCE, status.start)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            status.stop()


def _where(error: BaseException) -> str:
    """`model.py:12`: the innermost line of the user's program in the traceback; "" where there is none."""
    from fuser.ir.source import Source, is_hidden

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_hidden(frame.filename)]
    own = [frame for frame in frames if "runpy" not in frame.filename]
    return Source(own[-1].filename, own[-1].lineno or 0).short if own else ""
