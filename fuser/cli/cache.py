"""`python -m fuser cache list | size | clear`: the compiled kernels on this machine's disk."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from rich.table import Table

from fuser.cli.output import Output

NAME = "cache"
ACTIONS = ("list", "size", "clear")


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, parents=[shared], help="the kernels on disk", description=__doc__)
    parser.add_argument("action", choices=ACTIONS, help="show the entries, show what they take, or remove them all")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Look at the disk cache, or empty it."""
    from fuser.runtime.cache import default_cache

    actions = {"list": _list, "size": _size, "clear": _clear}
    cache = default_cache()
    fields = {"action": options.action, "directory": None if cache.directory is None else str(cache.directory)}
    output.document({**fields, **actions[options.action](cache, output)})
    return 0


def in_words(cache: Any) -> str:
    """`12 entries, 340 kB of at most 1.07 GB, in /home/me/.cache/fuser`."""
    entries = cache.entries()
    total = sum(entry.size for entry in entries)
    return f"{_count(len(entries))}, {_bytes(total)} of at most {_bytes(cache.limit_bytes)}, in {cache.directory}"


def _list(cache: Any, output: Output) -> dict[str, Any]:
    entries = cache.entries()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("last used", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("key", no_wrap=True)
    for entry in entries:
        table.add_row(_moment(entry.last_used).replace("T", " "), _bytes(entry.size), _kind(entry), entry.key[:16])
    if entries:
        output.print(table)
    output.print(f"{_count(len(entries))} in {cache.directory}")
    listed = [
        {"key": e.key, "bytes": e.size, "kind": _kind(e), "last_used": _moment(e.last_used), "path": str(e.path)}
        for e in entries
    ]
    return {"entries": listed}


def _size(cache: Any, output: Output) -> dict[str, Any]:
    entries = cache.entries()
    output.print(in_words(cache))
    return {"count": len(entries), "bytes": sum(entry.size for entry in entries), "limit_bytes": cache.limit_bytes}


def _clear(cache: Any, output: Output) -> dict[str, Any]:
    count, size = cache.clear()
    output.print(f"removed {_count(count)}, {_bytes(size)}, from {cache.directory}")
    return {"removed": count, "bytes": size}


def _kind(entry: Any) -> str:
    return {".so": "library", ".json": "figures", ".c": "refused source"}.get(
        entry.path.suffix, entry.path.suffix.strip(".")
    )


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).isoformat(timespec="seconds")


def _bytes(number: int) -> str:
    from fuser.report.units import size

    return size(number)


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
