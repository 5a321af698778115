"""`breakpoint`: stops a running program where it stands in the user's functions, with the values of their variables.

The user's frames are copied while the function is traced, arrays among their variables are operands of a callback, and the callback
starts a debugger on the copies: compiled programs have no frames of their own.
"""

from __future__ import annotations

import cmd
import linecache
import pprint
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, TextIO

import numpy as np

from fuser.api.callbacks import debug_callback, pure_callback
from fuser.frames import include_frame
from fuser.lax.marks import stop_gradient
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.core import Tracer

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Frame:
    """A copy of a frame: where it stood, and its variables."""

    filename: str
    line: int
    function: str
    variables: dict[str, Any]
    globals: dict[str, Any]

    def __str__(self) -> str:
        return f"  File {self.filename!r}, line {self.line}, in {self.function}"

    def listing(self, around: int) -> str:
        """The lines of source about the one where it stood, which is marked."""
        lines = linecache.getlines(self.filename, self.globals)
        numbers = range(max(self.line - around, 1), min(self.line + around, len(lines)) + 1)
        return "".join(f"{'->' if n == self.line else '  '} {lines[n - 1].rstrip()}\n" for n in numbers)


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
) -> Any:
    """Stop here each time the program gets here, in a debugger with the values of the variables of the functions that are running.

    Its commands: p and pp (print an expression), l (source), w (frames), u and d (to another frame), c (go on), q (end the process). Of the
    frames, fuser's own are left out with `filter_frames`, and the innermost `num_frames` are kept. Under vmap it stops once an
    element, under derivatives once. With `token`, a tree of arrays that is returned, it stops where they are computed and used; not
    with `ordered` (ValueError). ValueError for a backend other than "cli"; it reads from `stdin` and writes to `stdout`.
    """
    if backend not in (None, "cli"):
        raise ValueError(f"Invalid debugger {backend!r}: the debugger of fuser is 'cli'")
    if token is not None and ordered:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    frames = _frames(sys._getframe(1), filter_frames)[:num_frames]
    values, filled = _split(frames)

    def stop(*values: Any) -> None:
        with _one_at_a_time:
            Debugger(filled(values), stdin, stdout).run()

    if token is None:
        debug_callback(stop, *values, ordered=ordered)
        return None

    def passed_on(token: Any, *values: Any) -> Any:
        stop(*values)
        return token

    token, values = stop_gradient((token, values))
    return pure_callback(passed_on, token, token, *values, vmap_method="sequential")


def _frames(frame: FrameType | None, filtered: bool) -> list[Frame]:
    """Copies of a frame and of those that called it, the innermost first."""
    found = []
    while frame is not None:
        if not filtered or include_frame(frame):
            code = frame.f_code
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name, dict(frame.f_locals), frame.f_globals))
        frame = frame.f_back
    return found


def _split(frames: list[Frame]) -> tuple[list[Any], Callable[..., list[Frame]]]:
    """The arrays among the frames' variables, and the frames as a function of the arrays' values."""
    leaves, structure = tree.flatten([frame.variables for frame in frames])
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, (Array, Tracer, np.ndarray))]

    def filled(values: Any) -> list[Frame]:
        known = dict(zip(places, values))
        variables = tree.unflatten(structure, [known.get(n, leaf) for n, leaf in enumerate(leaves)])
        return [Frame(f.filename, f.line, f.function, v, f.globals) for f, v in zip(frames, variables)]

    return [leaves[n] for n in places], filled


class Debugger(cmd.Cmd):
    """The commands, on copies of frames."""

    prompt = "(jdb) "  # as in JAX

    def __init__(self, frames: list[Frame], stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.frames = frames
        self.place = 0

    def run(self) -> None:
        """Read commands until one goes on."""
        self._say("Entering jdb:")
        self.cmdloop()

    @property
    def frame(self) -> Frame:
        return self.frames[self.place]

    def _say(self, text: str) -> None:
        print(text, file=self.stdout)

    def _show(self, expression: str, form: Callable[[Any], str]) -> None:
        try:
            self._say(form(eval(expression, dict(self.frame.globals), self.frame.variables)))
        except Exception as error:
            self._say("*** " + "".join(traceback.format_exception_only(error)).strip())

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> bool | None:  # type: ignore[override]
        """What is no command is an expression; the end of the input goes on."""
        if line == "EOF":
            return True
        self._show(line, repr)
        return None

    def do_p(self, line: str) -> None:
        """p(rint) an expression."""
        self._show(line, repr)

    def do_pp(self, line: str) -> None:
        """Print an expression over several lines."""
        self._show(line, pprint.pformat)

    def do_list(self, line: str) -> None:
        """l(ist) the lines of source about this one."""
        self._say(f"> {self.frame.filename}({self.frame.line})\n{self.frame.listing(5)}")

    def do_where(self, line: str) -> None:
        """w(here), bt: the frames, the innermost last."""
        self._say("Traceback:")
        for frame in self.frames[::-1]:
            self._say(str(frame))

    def do_up(self, line: str) -> None:
        """u(p): to the function that called this one."""
        self._move(1, "At topmost frame.")

    def do_down(self, line: str) -> None:
        """d(own): to the function that this one called."""
        self._move(-1, "At bottommost frame.")

    def _move(self, by: int, refusal: str) -> None:
        if not 0 <= self.place + by < len(self.frames):
            self._say(refusal)
            return
        self.place += by
        self._say(f"{self.frame}\n{self.frame.listing(2)}")

    def do_continue(self, line: str) -> bool:
        """c(ontinue): go on with the program."""
        return True

    def do_quit(self, line: str) -> None:
        """q(uit): end the process."""
        sys.exit(0)

    do_c = do_cont = do_continue
    do_d, do_u, do_l, do_q = do_down, do_up, do_list, do_quit
    do_w = do_bt = do_backtrace = do_where
