"""Progress: shown on terminals for work that lasts, and nowhere else."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from fuser.cli import output as module
from fuser.cli.output import Output


def progress_of(work: float, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """What appears on standard error while `work` seconds pass, with a patience of 0.1 s."""
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    output, stream = Output("test", False), io.StringIO()
    output._progress = Console(file=stream, force_terminal=terminal)
    with output.progress("weighing the moon"):
        time.sleep(work)
    return stream.getvalue()


def test_progress_is_shown_for_work_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "weighing the moon" in progress_of(0.5, True, monkeypatch)


def test_no_progress_for_quick_work_or_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "weighing" not in progress_of(0.0, True, monkeypatch)
    assert progress_of(0.3, False, monkeypatch) == ""


def test_progress_ends_with_the_work_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output("test", False)
    output._progress = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(ZeroDivisionError), output.progress("dividing"):
        _ = 1 / 0


def test_text_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        output = Output("test", as_json)
        output.print("words")
        output.document({"key": 1})
    assert capsys.readouterr().out == 'words\n{\n "command": "test",\n "key": 1\n}\n'
