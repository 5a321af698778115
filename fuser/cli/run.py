"""`python -m fuser run script.py [arguments]`: a program written for JAX, unmodified, with fuser as its `jax`.

As `python script.py`, or `python -m module` with -m: the same `sys.argv`, `sys.path` and `__main__`.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from types import TracebackType
from typing import Any

from fuser.cli.output import Output, UsageError

NAME = "run"


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, help="run a JAX program, with fuser as its jax", description=__doc__)
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument("program", metavar="PROGRAM", help="a script, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the program gets in sys.argv")
    parser.set_defaults(run=run, json=False)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the program to its end; 1 where it raises, with its own traceback."""
    from fuser.compat import install_as_jax

    if not options.module and not os.path.exists(options.program):
        raise UsageError(f"there is no script {options.program}; give a module's name with -m")
    install_as_jax()
    sys.argv = [options.program, *options.arguments]
    try:
        if options.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(options.program))
            runpy.run_path(options.program, run_name="__main__")
    except Exception as error:
        error.__traceback__ = _own_frames(error.__traceback__)
        traceback.print_exception(error)
        return 1
    return 0


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the program."""
    starting = (__file__, runpy.__file__, "<frozen runpy>")
    while frames is not None and frames.tb_frame.f_code.co_filename in starting:
        frames = frames.tb_next
    return frames
