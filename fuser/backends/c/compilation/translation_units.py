"""From a plan's sources to functions: equal kernels and loops once, in as many translation units as are worth a compiler.

Two kernels are equal if they differ in names and comments alone, and one function serves those that differ in
numbers too; what this process has loaded before is not compiled again. Long plans are shared out to several compilers,
which run at the same time, and linked to one library.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuser.backends.base import KernelSource, Loaded
from fuser.backends.c.compilation.literal_arguments import shared
from fuser.backends.c.compilation.outlining import Outline
from fuser.backends.c.control_flow.driver import objects, with_addresses
from fuser.backends.c.control_flow.interrupt import connect
from fuser.backends.c.function import KEY, Definition, For, Function, Module, Parts, Symbol, symbols, text_of, walk
from fuser.backends.c.library.on_demand import address
from fuser.config import config
from fuser.errors import ToolchainError
from fuser.runtime import compilers, toolchain
from fuser.runtime.device import cpu_count
from fuser.runtime.executable import CFunction
from fuser.runtime.garbage_collection import no_collection

LONG = 10_000  # characters of text from which a second compiler pays
LOOP = 300  # characters beside which a loop that is vectorised is as much work: it becomes three
INLINE = 700  # and a function of maths in it, or a maximum with what zeros and nan ask
INLINED = ("_f32", "_f64", "imum_of_float", "imum_of_double")
Unit = Callable[[str, Counter[str]], str]  # kernels and loops, and the names that they use: a whole C file
VISIBLE = '__attribute__((visibility("hidden"))) '  # to the other translation units of a library

# By kernel: the function, size arguments that it needs at the end, and the library that must stay with it.
_symbols: dict[str, tuple[Any, tuple[int, ...], Any]] = {}
_lock = threading.Lock()


def load(sources: Sequence[KernelSource], unit: Unit) -> Loaded:
    """A function for each source. Raises ToolchainError."""
    kernels = [key(source) for source in sources]
    distinct = dict(zip(reversed(kernels), reversed(sources)))  # of equal ones, the first
    known = {} if config.override else {k: _symbols[k] for k in distinct if k in _symbols}
    missing = {k: distinct[k] for k in dict.fromkeys(kernels) if k not in known}
    seconds, cached, compiled = 0.0, True, 0
    if missing:
        with no_collection():
            modules = [module_of(source) for source in missing.values()]
            counts = [len(source.launch.get("sizes", ())) for source in missing.values()]
            ways = [(module, ()) for module in modules] if config.override else shared(modules, counts)
            wanted = list({module.name: module for module, _ in ways}.values())
            texts, used = _texts(wanted, unit)
        with library_functions(missing.values()):
            library = toolchain.compile_shared(*texts)
        seconds, cached, compiled = library.seconds, library.cached, len(wanted)
        handle = toolchain.load_shared(library.path)
        connect(handle, used)
        known |= {k: (getattr(handle, module.name), more, handle) for k, (module, more) in zip(missing, ways)}
        with _lock:
            _symbols.update({} if config.override else known)
    functions = tuple(_function(source, *known[k]) for k, source in zip(kernels, sources))
    return Loaded(functions, seconds, cached, 0 if cached else compiled)


@contextlib.contextmanager
def library_functions(sources: Iterable[KernelSource]) -> Iterator[None]:
    """Meanwhile the functions that these kernels call are compiled as well; who asks for one's address later has it."""

    def prepare(function: tuple[Any, ...]) -> None:
        with contextlib.suppress(ToolchainError):  # it is raised where the address is asked for
            address(function)

    functions = (function for source in sources for _, function in source.launch.get("functions", ()))
    wanted = {function for function in functions if function[0] != "object"}
    with compilers.beside(functools.partial(prepare, function) for function in wanted):
        yield


def _function(source: KernelSource, symbol: Any, more: tuple[int, ...], handle: Any) -> CFunction:
    return CFunction(symbol, (*with_addresses(source.launch), *more), handle, objects(source.launch))


def module_of(source: KernelSource) -> Module:
    assert isinstance(source.code, Module)
    return source.code


def key(source: KernelSource) -> str:
    """The text by which kernels are told apart: without comments, under a name that all share."""
    return module_of(source).text(KEY)


@dataclass(frozen=True)
class Piece:
    """Functions that stay together in one translation unit."""

    parts: Parts

    @functools.cached_property
    def text(self) -> str:
        return text_of(self.parts)

    @functools.cached_property
    def used(self) -> Counter[str]:
        """How often it names what stands elsewhere, and its own functions."""
        return symbols(self.parts)

    @functools.cached_property
    def work(self) -> float:
        """A compiler's work on it, in characters of an ordinary function."""
        functions = [part for part in self.parts if isinstance(part, Function)]
        calling = any(function.calling for function in functions)
        loops = sum(isinstance(s, For) and s.vector for function in functions for s in walk(function.body))
        inline = sum(times for name, times in self.used.items() if name.endswith(INLINED))
        return len(self.text) * (0.4 if calling else 1.0) + LOOP * loops + INLINE * inline


def translation_units(kernels: Sequence[Module], unit: Unit, workers: int) -> list[str]:
    """The C files of a program: one, or up to `workers` of about the same length."""
    return [unit(text, used) for text, used in _units(kernels, workers)]


def _units(kernels: Sequence[Module], workers: int) -> Iterator[tuple[str, Counter[str]]]:
    """The texts of the files, and the names that each uses."""
    outline = Outline()
    taken = [outline.take(kernel) for kernel in kernels]
    written = [Piece(outline.kernel(kernel).named()) for kernel in taken]
    functions = {name: Piece((function,)) for name, function in outline.functions().items()}
    if min(workers, sum(len(piece.text) for piece in written) // LONG) > 1:
        written = [parted(piece, functions) for piece in written]
        written = [_without(piece, functions) for piece in written]
    pieces = [*functions.values(), *written]
    count = max(1, min(workers, int(sum(piece.work for piece in pieces)) // LONG, len(pieces)))
    for share in shared_out(pieces, count):
        used = sum((piece.used for piece in share), Counter[str]())
        inside = {id(piece) for piece in share}
        others = [piece.parts[-1] for n, piece in functions.items() if n in used and id(piece) not in inside]
        prototypes = [f"{replace(f, calling=False).declaration()};" for f in others if isinstance(f, Function)]
        yield "\n".join([*prototypes, text_of(_once(part for piece in share for part in piece.parts))]), used


def _once(parts: Iterable[Function | Definition]) -> Parts:
    """Functions of one name are equal: several loops call them."""
    found: dict[Any, Function | Definition] = {}
    for part in parts:
        found.setdefault(part.name if isinstance(part, Function) else part, part)
    return tuple(found.values())


def _without(piece: Piece, functions: dict[str, Piece]) -> Piece:
    """The piece without what stands among `functions`, where another kernel has it too."""
    return Piece(tuple(p for p in piece.parts if not (isinstance(p, Function) and _name(p) in functions)))


def _name(function: Function) -> str:
    return function.name.name if isinstance(function.name, Symbol) else ""


def parted(piece: Piece, functions: dict[str, Piece]) -> Piece:
    """A kernel that only calls, without the functions that stand before it; `functions` gains those by name, as others may
    be compiled beside them.
    """
    if not any(part.calling for part in piece.parts if isinstance(part, Function)):
        return piece
    waiting: list[Function | Definition] = []
    for part in piece.parts:
        waiting.append(part)
        if isinstance(part, Function) and part.separable and isinstance(part.name, Symbol):
            waiting[-1] = replace(part, static=False, attributes=VISIBLE + part.attributes)
            functions[part.name.name] = Piece(tuple(waiting))
            waiting = []
    return Piece(tuple(waiting))


def shared_out(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """The pieces in `count` lists that take a compiler about the same time, each in order."""
    shares: list[list[int]] = [[] for _ in range(count)]
    lengths = [0.0] * count
    for number in sorted(range(len(pieces)), key=lambda n: -pieces[n].work):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(number)
        lengths[shortest] += pieces[number].work
    return [[pieces[number] for number in sorted(share)] for share in shares if share]


def _texts(kernels: Sequence[Module], unit: Unit) -> tuple[list[str], Counter[str]]:
    """The C files, and the names that they use."""
    units = [_edited(kernels)] if config.override else list(_units(kernels, cpu_count()))
    texts = [unit(text, used) for text, used in units]
    return texts, sum((used for _, used in units), Counter[str]())


def _edited(kernels: Sequence[Module]) -> tuple[str, Counter[str]]:
    """The text of one file in which kernels that a user has edited take the place of the generated ones, and its names."""
    edited = [toolchain.overridden(kernel.name, "") for kernel in kernels]
    others = _once(part for kernel, text in zip(kernels, edited) if not text for part in kernel.named())
    text = "\n\n".join([text_of(others), *filter(None, edited)])
    return text, Counter(re.findall(r"[A-Za-z_]\w*", text))
