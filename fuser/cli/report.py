"""`python -m fuser report FILE:FUNCTION`: run the function, and say what each kernel cost and how near the limit it runs."""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

from fuser.cli.explain import ARGS_HELP, TARGET_HELP
from fuser.cli.output import Output, UsageError

NAME = "report"


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, parents=[shared], help="what each kernel costs", description=__doc__)
    parser.add_argument("target", metavar="FILE:FUNCTION", help=TARGET_HELP)
    parser.add_argument("--args", metavar="SPECS", help=ARGS_HELP)
    parser.add_argument("--html", metavar="FILE", type=pathlib.Path, help="write the report as one self-contained page")
    parser.add_argument("--trace", metavar="FILE", type=pathlib.Path, help="write a trace for ui.perfetto.dev")
    parser.add_argument("--text", metavar="FILE", type=pathlib.Path, help="write the text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Profile, print, write."""
    import fuser
    from fuser.cli import target

    files = {name: getattr(options, name) for name in ("html", "trace", "text") if getattr(options, name)}
    for path in files.values():
        if not path.resolve().parent.is_dir():
            raise UsageError(f"there is no directory {path.resolve().parent} to write {path.name} in")
    with output.progress(f"reading {options.target}"):
        found = target.load(options.target)
        args, kwargs = target.arguments(found, options.args)
    with output.progress(f"profiling {found.name}"):
        profile = fuser.profile(target.staged(found))(*args, **kwargs)
    output.print(profile.text(width=output.console.width))
    forms = {"html": profile.html, "trace": profile.chrome_trace, "text": profile.text}
    for name, path in files.items():
        path.write_text(forms[name](), encoding="utf-8")
        output.print(f"wrote {path}")
    output.document({**json.loads(profile.to_json()), "written": {name: str(path) for name, path in files.items()}})
    return 0
