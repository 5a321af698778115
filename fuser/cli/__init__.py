"""The command line: `python -m fuser run | demo | explain | report | bisect | compile | plan | cache | doctor`.

In: arguments. Out: an exit status: 0 fine, 1 the program found a problem, 2 wrong usage. Each command is a file of this
folder with two functions: `declare(subparsers)` and `run(options, output) -> status`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from fuser.cli import bisect, cache, compile, demo, doctor, explain, plan, report, run
from fuser.cli.output import Output, UsageError

FINE, PROBLEM, USAGE = 0, 1, 2

COMMANDS = (run, demo, explain, report, bisect, compile, plan, cache, doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    options = _parser().parse_args(arguments)
    output = Output(options.command, options.json)
    try:
        return int(options.run(options, output))
    except UsageError as error:
        output.error(error)
        return USAGE
    except KeyboardInterrupt:
        output.error(KeyboardInterrupt("interrupted"))
        return PROBLEM
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, and Python would complain about it at exit
        return PROBLEM
    except Exception as error:
        if getattr(options, "traceback", False):
            traceback.print_exc()
        output.error(error)
        return PROBLEM


def _parser() -> argparse.ArgumentParser:
    from fuser import __version__

    parser = argparse.ArgumentParser(
        prog="python -m fuser",
        description="fuser turns array functions into few fused kernels. These commands show what it does and how well.",
        epilog="exit status: 0 fine, 1 a problem was found, 2 wrong usage",
    )
    parser.add_argument("--version", action="version", version=f"fuser {__version__}")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.declare(subparsers, shared)
    return parser
