"""From a plan's sources to functions: equal kernels and loops once, in as many translation units as are worth a compiler.

Two kernels are equal if their texts differ in names and comments alone, and one function serves those that differ in
numbers too; what this process has loaded before is not compiled again. Long plans are shared out to several compilers,
which run at the same time, and linked to one library.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fuser.backends.base import KernelSource, Loaded
from fuser.backends.c.control import with_addresses
from fuser.backends.c.interrupt import connect
from fuser.backends.c.library import address
from fuser.backends.c.numbers import shared
from fuser.backends.c.outline import CALLER, Outline
from fuser.config import config
from fuser.errors import ToolchainError
from fuser.runtime import toolchain
from fuser.runtime.device import cpu_count
from fuser.runtime.executable import CFunction

LONG = 12_000  # characters of text from which a second compiler pays
Unit = Callable[[str], str]  # kernels and loops as a whole C file

_COMMENT = re.compile(r"^\s*//[^\n]*\n", re.MULTILINE)
_PART = re.compile(
    rf"^({re.escape(CALLER)})?static (void (\w+)\(void \*\*buffers, const int64_t \*sizes\)) \{{$", re.MULTILINE
)
# By kernel: the function, size arguments that it needs at the end, and the library that must stay with it.
_symbols: dict[str, tuple[Any, tuple[int, ...], Any]] = {}
_lock = threading.Lock()


def load(sources: Sequence[KernelSource], unit: Unit) -> Loaded:
    """A function for each source. Raises ToolchainError."""
    kernels = [kernel(source) for source in sources]
    distinct = dict(zip(reversed(kernels), reversed(sources)))  # of equal ones, the first
    known = {} if config.override else {k: _symbols[k] for k in distinct if k in _symbols}
    missing = {k: distinct[k] for k in dict.fromkeys(kernels) if k not in known}
    seconds, cached, compiled = 0.0, True, list[KernelSource]()
    if missing:
        wanted = list(missing.values())
        ways = [(source, ()) for source in wanted] if config.override else shared(wanted)
        compiled = list({source.name: source for source, _ in ways}.values())
        with library_functions(missing.values()):
            library = toolchain.compile_shared(*_texts(compiled, unit))
        seconds, cached = library.seconds, library.cached
        handle = toolchain.load_shared(library.path)
        connect(handle, "".join(source.text for source in compiled))
        known |= {k: (getattr(handle, source.name), more, handle) for k, (source, more) in zip(missing, ways)}
        with _lock:
            _symbols.update({} if config.override else known)
    functions = tuple(_function(source, *known[k]) for k, source in zip(kernels, sources))
    return Loaded(functions, seconds, cached, 0 if cached else len(compiled))


@contextlib.contextmanager
def library_functions(sources: Iterable[KernelSource]) -> Iterator[None]:
    """Meanwhile the functions that these kernels call are compiled as well; who asks for one's address later has it."""

    def prepare(function: tuple[Any, ...]) -> None:
        with contextlib.suppress(ToolchainError):  # it is raised where the address is asked for
            address(function)

    wanted = {function for source in sources for _, function in source.launch.get("functions", ())}
    threads = [threading.Thread(target=prepare, args=(function,)) for function in wanted]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def _function(source: KernelSource, symbol: Any, more: tuple[int, ...], handle: Any) -> CFunction:
    return CFunction(symbol, (*with_addresses(source.launch), *more), keep=handle)


def kernel(source: KernelSource) -> str:
    """The text by which kernels are told apart: without comments, under a name that all share."""
    return _COMMENT.sub("", source.text).replace(source.name, "kernel")


def translation_units(sources: Sequence[KernelSource], unit: Unit, workers: int) -> list[str]:
    """The C files of a program: one, or up to `workers` of about the same length."""
    outline = Outline()
    taken = [outline.take(source.text) for source in sources]
    kernels = [outline.kernel(text) for text in taken]
    functions = outline.functions()
    long = min(workers, sum(map(len, kernels)) // LONG) > 1
    if long:
        kernels = [parted(text, functions) for text in kernels]
    pieces = [*(text for _, text in functions.values()), *kernels]
    count = max(1, min(workers, sum(map(len, pieces)) // LONG, len(pieces)))
    units = []
    for share in shared_out(pieces, count):
        text = "\n\n".join(share)
        needed = [prototype for name, (prototype, own) in functions.items() if own not in share and f"{name}(" in text]
        units.append(unit("\n".join([*needed, text])))
    return units


def parted(text: str, functions: dict[str, tuple[str, str]]) -> str:
    """A kernel that only calls, without the functions that stand before it; `functions` gains those, as others may be
    compiled beside them: by name the prototype and the text.
    """
    if CALLER not in text:
        return text
    start = 0
    for match in _PART.finditer(text):
        end = text.index("\n}\n", match.end()) + 2
        entry = f'__attribute__((visibility("hidden"))) {match[2]}'
        own = f"{match[1] or ''}{entry}{text[match.end(2) : end]}"
        functions[match[3]] = f"{entry};", f"{text[start : match.start()].strip()}\n{own}"
        start = end
    return text[start:].strip()


def shared_out(pieces: Sequence[str], count: int) -> list[list[str]]:
    """The pieces in `count` lists that take a compiler about the same time, each in order."""
    shares: list[list[int]] = [[] for _ in range(count)]
    lengths = [0.0] * count
    for number in sorted(range(len(pieces)), key=lambda n: -_work(pieces[n])):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(number)
        lengths[shortest] += _work(pieces[number])
    return [[pieces[number] for number in sorted(share)] for share in shares if share]


def _work(text: str) -> float:
    """A compiler's work on a function, in characters of an ordinary one."""
    return len(text) * (0.4 if CALLER in text else 1.0)


def _texts(sources: Sequence[KernelSource], unit: Unit) -> list[str]:
    texts = translation_units(sources, unit, 1 if config.override else cpu_count())
    return [toolchain.overridden(sources[0].name, texts[0])] if config.override else texts
