"""From a plan's sources to functions: equal kernels and loops once, in as many translation units as are worth a compiler.

Two kernels are equal if their texts differ in names and comments alone; what this process has loaded before is not
compiled again. Long plans are shared out to several compilers, which run at the same time, and linked to one library.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fuser.backends.base import KernelSource, Loaded
from fuser.backends.c.control import with_addresses
from fuser.backends.c.outline import function, outline, prototype
from fuser.config import config
from fuser.runtime import toolchain
from fuser.runtime.device import cpu_count
from fuser.runtime.executable import CFunction

LONG = 12_000  # characters of text from which a second compiler pays
Unit = Callable[[str], str]  # kernels and loops as a whole C file

_COMMENT = re.compile(r"^\s*//[^\n]*\n", re.MULTILINE)
_symbols: dict[str, tuple[Any, Any]] = {}  # by kernel: the function, and the library that must stay with it
_lock = threading.Lock()


def load(sources: Sequence[KernelSource], unit: Unit) -> Loaded:
    """A function for each source. Raises ToolchainError."""
    kernels = [kernel(source) for source in sources]
    distinct = dict(zip(reversed(kernels), reversed(sources)))  # of equal ones, the first
    known = {} if config.override else {k: _symbols[k] for k in distinct if k in _symbols}
    missing = {k: distinct[k] for k in dict.fromkeys(kernels) if k not in known}
    seconds, cached = 0.0, True
    if missing:
        library = toolchain.compile_shared(*_texts(list(missing.values()), unit))
        seconds, cached = library.seconds, library.cached
        handle = toolchain.load_shared(library.path)
        known |= {k: (getattr(handle, source.name), handle) for k, source in missing.items()}
        with _lock:
            _symbols.update({} if config.override else known)
    functions = tuple(
        CFunction(known[k][0], with_addresses(source.launch), keep=known[k][1]) for k, source in zip(kernels, sources)
    )
    return Loaded(functions, seconds, cached, 0 if cached else len(missing))


def kernel(source: KernelSource) -> str:
    """The text by which kernels are told apart: without comments, under a name that all share."""
    return re.sub(rf"\b{re.escape(source.name)}(?=\b|_)", "kernel", _COMMENT.sub("", source.text))


def translation_units(sources: Sequence[KernelSource], unit: Unit, workers: int) -> list[str]:
    """The C files of a program: one, or up to `workers` of about the same length."""
    loops: dict[str, str] = {}
    kernels = [outline(source.text, loops) for source in sources]
    functions = {name: function(name, text) for text, name in loops.items()}
    prototypes = {name: prototype(name, text) for text, name in loops.items()}
    pieces = [*functions.values(), *kernels]
    count = max(1, min(workers, sum(map(len, pieces)) // LONG, len(pieces)))
    units = []
    for share in shared_out(pieces, count):
        text = "\n\n".join(share)
        needed = [p for name, p in prototypes.items() if functions[name] not in share and f"{name}(" in text]
        units.append(unit("\n".join([*needed, text])))
    return units


def shared_out(pieces: Sequence[str], count: int) -> list[list[str]]:
    """The pieces in `count` lists of about the same length of text, each in order."""
    shares: list[list[int]] = [[] for _ in range(count)]
    lengths = [0] * count
    for number in sorted(range(len(pieces)), key=lambda n: -len(pieces[n])):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(number)
        lengths[shortest] += len(pieces[number])
    return [[pieces[number] for number in sorted(share)] for share in shares if share]


def _texts(sources: Sequence[KernelSource], unit: Unit) -> list[str]:
    texts = translation_units(sources, unit, 1 if config.override else cpu_count())
    return [toolchain.overridden(sources[0].name, texts[0])] if config.override else texts
