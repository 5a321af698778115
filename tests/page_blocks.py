"""The Python blocks of README and docs, and a process that runs those of a page: in order, in one scope, each with what it prints.

`python -m tests.page_blocks [--stand-in] [--kernels]` reads a page's blocks from standard input as JSON and writes a list
of `[printed, failed]` there: what a block prints, its error as Python's last line, and whether there was one. `--stand-in`: on a GPU that is
none. `--kernels`: Triton's front end reads each kernel that runs; one that it refuses is an error of its block.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """Each block of a page with what stands below it."""
    return BLOCKS.findall((ROOT / page).read_text())


def settings(folder: pathlib.Path, **others: str) -> dict[str, str]:
    """The environment of a page's process: no settings of fuser's but these, a cache in the folder, this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FUSER_")}
    return kept | {"FUSER_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)} | others


def run(codes: list[str], folder: pathlib.Path, environment: dict[str, str], *options: str) -> list[tuple[str, bool]]:
    """What each block prints, and whether it failed. Raises RuntimeError where the process fails, or writes to standard error."""
    command = [sys.executable, "-m", "tests.page_blocks", *options]
    result = subprocess.run(
        command, input=json.dumps(codes), capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    if result.returncode or result.stderr:
        raise RuntimeError(f"the process ended with {result.returncode}: {result.stderr[-3000:]}")
    return [(printed, failed) for printed, failed in json.loads(result.stdout)]


def printed_by(codes: list[str]) -> list[tuple[str, bool]]:
    """The same in this process."""
    scope: dict[str, Any] = {"__name__": "example"}
    found = []
    for number, code in enumerate(codes):
        name = "example.py" if number == 0 else f"example{number + 1}.py"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        printed, failed = io.StringIO(), False
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(code, name, "exec"), scope)
            except Exception as error:
                failed = True
                print(f"{type(error).__name__}: {error}")
        found.append((printed.getvalue(), failed))
    return found


def main(options: list[str]) -> None:
    """Run the blocks that come in."""
    codes = json.load(sys.stdin)
    with contextlib.ExitStack() as stack:
        if "--stand-in" in options:
            from tests import cuda_stand_in

            stack.enter_context(cuda_stand_in.opened())
            stack.enter_context(cuda_stand_in.default())
        if "--kernels" in options:
            from tests import front_end

            stack.enter_context(front_end.reading())
        found = printed_by(codes)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
