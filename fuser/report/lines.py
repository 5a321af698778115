"""The user's lines that a kernel comes from, each once, with the code on them where its file can be read."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.source import Source
from fuser.report.data import SourceLine


def user_lines(sources: Sequence[Source]) -> tuple[SourceLine, ...]:
    """Where each source stands, and its text."""
    lines = (SourceLine(str(source), source.code) for source in sources if source.file)
    return tuple(dict.fromkeys(lines))
