"""The C compiler: where it is, what it is told, and shared libraries made from generated text.

In: C text. Out: the path of a shared library in the disk cache, keyed by all that its bytes depend on: text, flags,
compiler and processor. The compiler runs only on a miss, and its own words travel in `ToolchainError`.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import os
import pathlib
import platform
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fuser.config import config, environment, whole_environment
from fuser.errors import ToolchainError
from fuser.runtime import compilers, sources
from fuser.runtime.cache import DiskCache, default_cache, digest
from fuser.runtime.core import native
from fuser.runtime.device import cpu_count
from fuser.runtime.flags import FLAGS, LIBRARIES, OPENMP, PORTABLE, linking
from fuser.runtime.linking import without_libraries

CANDIDATES = ("cc", "gcc", "clang")
_thread_counts: list[ctypes.c_int] = []  # in the libraries that have been loaded
_forked = False
_locks: collections.defaultdict[str, threading.Lock] = collections.defaultdict(threading.Lock)  # by library key
os.register_at_fork(after_in_child=_locks.clear)
_FORMAT = 2  # to be raised when the meaning of a cached library changes though its text does not
_SHARES = re.compile(r"#pragma omp (parallel|for)|\bomp_\w+\(|\bteam_\w+\(")  # what a text has whose work threads share
THREADS = "__attribute__((weak)) int fuser_threads = 1;"  # how a text declares the number of threads that it may use; `load_shared` sets it


@dataclass(frozen=True)
class CompiledLibrary:
    """A shared library on disk."""

    path: pathlib.Path
    seconds: float  # that the compiler ran; 0 when the library was there already
    cached: bool


def find_compiler() -> str:
    """The path of the C compiler: FUSER_CC, else the first of cc, gcc and clang. Raises ToolchainError."""
    import shutil  # with its archive formats it takes milliseconds, which a program in the disk cache need not pay

    path: str | None
    if config.cc:
        path = shutil.which(config.cc)
        if path is None:
            raise ToolchainError(
                f"FUSER_CC names {config.cc!r}, which is no program on PATH; correct it, or unset it to let fuser look "
                f"for {', '.join(CANDIDATES)}"
            )
        return path
    for name in CANDIDATES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise ToolchainError(
        f"no C compiler was found (looked for {', '.join(CANDIDATES)} on PATH); install one: "
        '"apt-get install gcc" (Debian, Ubuntu), "dnf install gcc" (Fedora), "xcode-select --install" (macOS); '
        "or set FUSER_BACKEND=reference to run in NumPy"
    )


def compiler_version(path: str) -> str:
    """The first line of what the compiler says of itself; asked once per installed compiler, not per process."""
    real = os.path.realpath(path)
    status = os.stat(real)
    return _version(real, status.st_mtime_ns, status.st_size)


@functools.cache
def _version(path: str, modified: int, size: int) -> str:
    key = f"compiler version {path} {modified} {size}"
    known = default_cache().get_json(key)
    if isinstance(known, str):
        return known
    import subprocess  # with a warm cache no process is ever started, and the import takes milliseconds

    try:
        output = subprocess.run(
            [path, "--version"], env=whole_environment(), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"the C compiler {path} cannot be run: {error}; set FUSER_CC to another one") from None
    if output.returncode:
        words = (output.stderr.strip() or output.stdout.strip()).rstrip(";.") or "it says nothing"
        raise ToolchainError(
            f"the C compiler {path} cannot be run: {words}{_ended(output.returncode)}; set FUSER_CC to another one"
        )
    version = output.stdout.strip().split("\n")[0]
    default_cache().put_json(key, version)
    return version


def _ended(status: int) -> str:
    return f" (exit status {status})" if status > 0 else f" (killed by signal {-status})"


@functools.cache
def tuning(path: str) -> tuple[str, ...]:
    """What more the compiler is told of the processor: gcc compiles for one that is newer than itself as for the nearest that it
    knows, but tunes as for any, and then reads no elements at computed indices in vectors. Asked once per compiler and processor."""
    output = _asked(path, f"compiler tuning {processor()}", "-march=native", "-E", "-v", "-x", "c", os.devnull)
    found = dict(re.findall(r" -m(arch|tune)=(\S+)", output))
    nearest = found.get("arch", "")
    known = nearest if found.get("tune") == "generic" and not nearest.startswith("x86-64") else ""
    return (f"-mtune={known}",) if known else ()


@functools.cache
def _linker(path: str) -> str:
    """The path of the linker that the compiler calls; nothing where it is not GNU's compiler for Linux."""
    if linking(compiler_version(path)) == LIBRARIES:
        return ""
    import shutil

    return shutil.which(_asked(path, "compiler linker", "-print-prog-name=ld").strip()) or ""


def _asked(path: str, what: str, *arguments: str) -> str:
    """What the compiler says to these arguments, asked once per installed compiler; nothing where it cannot be run."""
    key = f"{what} {path} {compiler_version(path)} {' '.join(arguments)}"
    known = default_cache().get_json(key)
    if isinstance(known, str):
        return known
    import subprocess

    try:
        done = subprocess.run(
            [path, *arguments],
            env=whole_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
        said = done.stdout + done.stderr
    except (OSError, subprocess.SubprocessError):
        said = ""
    default_cache().put_json(key, said)
    return said


@functools.cache
def processor() -> str:
    """The model and features that -march=native stands for here."""
    try:
        with open("/proc/cpuinfo") as file:
            fields = dict(line.split(":", 1) for line in file.read(16384).split("\n\n")[0].splitlines() if ":" in line)
    except (OSError, ValueError):
        return f"{platform.machine()} {platform.processor()}"
    names = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")
    return "; ".join(value.strip() for name, value in fields.items() if name.strip() in names)


def library_key(texts: Sequence[str], compiler: str) -> str:
    """The cache key of the library that the compiler makes of these translation units."""
    import json  # here: `import fuser` does without

    version = compiler_version(compiler)
    parts = [
        _FORMAT,
        *texts,
        FLAGS,
        linking(version),
        os.path.realpath(compiler),
        version,
        processor(),
        tuning(compiler),
    ]
    parts += [_team_entries()] if _has_team(texts, version) else []
    return digest(json.dumps(parts).encode())


def _has_team(texts: Sequence[str], version: str) -> bool:
    """Whether threads of the process's own team work for the library of these texts. Another compiler than gcc brings its OpenMP along."""
    return bool(OPENMP) and "clang" not in version and any(_SHARES.search(text) for text in texts)


def _team_text(name: str) -> str:
    """A file of `runtime/kernels/team` with its header."""
    return sources.read(f"team/{name}").replace('#include "team.h"', sources.read("team/team.h"))


@functools.cache
def _team_entries() -> str:
    """The entry points of OpenMP that a library has, which go to the team."""
    return _team_text("openmp.c")


def _team_object(compiler: str) -> str:
    """The path of these entry points as an object file, compiled once."""
    import json

    command = [compiler, *PORTABLE, "-c"]
    cache, text = default_cache(), _team_entries()
    key = digest(json.dumps([_FORMAT, text, *command, compiler_version(compiler)]).encode())
    path = cache.get(key)
    if path is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="fuser-cc-") as folder:
            source, target = os.path.join(folder, "team.c"), os.path.join(folder, "team.o")
            pathlib.Path(source).write_text(text, encoding="utf-8")
            compilers.run([[*command, "-o", target, source]], [source], lambda _: source, folder)
            path = cache.put(key, ".o", pathlib.Path(target).read_bytes())
    return os.fspath(path)


def compile_shared(*texts: str) -> CompiledLibrary:
    """The library of one or more C texts, from the cache or the compiler. Threads and processes may call it at once.

    Several texts are compiled at the same time, by a compiler each, and linked. Raises ToolchainError with the
    compiler's own words and the path of the refused source.
    """
    compiler = find_compiler()
    key = library_key(texts, compiler)
    cache = default_cache()
    path = cache.get(key)
    if path is not None:
        return CompiledLibrary(path, 0.0, True)
    with _locks[key]:
        path = cache.get(key)  # another thread may have been compiling the same text
        if path is not None:
            return CompiledLibrary(path, 0.0, True)
        start = time.perf_counter()
        data = _compile(compiler, texts, key, cache)
        try:
            path = cache.put(key, ".so", data)
        except OSError as error:
            raise ToolchainError(
                f"a compiled library cannot be stored, nor in a temporary directory: {error}"
            ) from None
        return CompiledLibrary(path, time.perf_counter() - start, False)


def load_shared(path: str | os.PathLike[str]) -> ctypes.CDLL:
    """The library in this process, its symbols kept apart from those of others. Raises ToolchainError."""
    try:
        library = ctypes.CDLL(os.fspath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise ToolchainError(f"a compiled library cannot be loaded: {error}") from None
    with contextlib.suppress(ValueError):  # the calling thread does all
        ctypes.c_void_p.in_dll(library, "fuser_team").value = ctypes.addressof(_team())
    with contextlib.suppress(ValueError):
        count = ctypes.c_int.in_dll(library, "fuser_threads")
        _thread_counts.append(count)
        count.value = thread_count()
    return library


def thread_count() -> int:
    """How many threads a kernel may use: FUSER_THREADS, else OMP_NUM_THREADS, else the processors of this process."""
    if _forked:
        return 1
    if config.threads:
        return int(config.threads)
    first = (environment("OMP_NUM_THREADS") or "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else cpu_count()


def _set_threads(count: int | None, of_thread: bool = False) -> None:
    """Let every kernel, loaded or not yet, use so many threads; 0 for as many as there are processors."""
    if of_thread:
        if count is not None:
            raise AttributeError("threads is a setting of the whole process; use config.update('threads', ...)")
        return
    if not isinstance(count, int) or count < 0:
        raise ValueError(
            f"threads is the number of threads that kernels may use, or 0 for all processors; got {count!r}"
        )
    for known in _thread_counts:
        known.value = thread_count()
    if _team.cache_info().currsize:
        _team().set_most(thread_count())


@contextlib.contextmanager
def without_team() -> Iterator[None]:
    """Kernels that the calling thread runs get this thread alone: others run the same program beside it."""
    if native is None and not _team.cache_info().currsize:
        yield  # no kernel has been loaded, and there may be no compiler to make a team with
        return
    before = _team().set_limit(1)
    try:
        yield
    finally:
        _team().set_limit(before)


class _Team(ctypes.Structure):
    """`team_calls` of runtime/kernels/team/team.h."""

    _fields_ = (
        ("called_by_kernels", ctypes.c_void_p * 10),
        ("set_most", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("set_limit", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
        ("reset", ctypes.CFUNCTYPE(None)),
    )


@functools.cache
def _team() -> Any:
    """The process's team of threads."""
    if native is not None:
        team = _Team.from_address(native.team_address)
    else:
        team = _Team.in_dll(ctypes.CDLL(os.fspath(compile_shared(_team_text("pool.c")).path)), "process_team")
    team.set_most(thread_count())
    os.register_at_fork(after_in_child=_after_fork)
    return team


def _after_fork() -> None:
    """The threads do not survive a fork, and programs fork for as many children as there are processors: a child's threads work alone."""
    global _forked
    _forked = True
    _team().reset()
    _set_threads(0)


_POLL = """
int (*ensure)(void); void (*release)(int); int (*check)(void); void *(*occurred)(void);
int poll(void) {
  int state = ensure(), raised = occurred() != 0 || check() != 0;
  release(state);
  return raised;
}
"""


@functools.cache
def poll_address() -> int:
    """The address of `int poll(void)`, which takes the GIL and runs the handlers of pending signals; nonzero if one raised.

    No Python function will do: what a handler raises inside of one that C calls is printed and lost.
    """
    if native is not None:
        return int(native.poll_address)
    library = load_shared(compile_shared(_POLL).path)
    python = {"ensure": "PyGILState_Ensure", "release": "PyGILState_Release", "check": "PyErr_CheckSignals"}
    for name, function in {**python, "occurred": "PyErr_Occurred"}.items():
        found = ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p)
        ctypes.c_void_p.in_dll(library, name).value = found.value
    address = ctypes.cast(library.poll, ctypes.c_void_p).value
    assert address is not None
    return address


def overridden(name: str, text: str, suffix: str = ".c") -> str:
    """The text of `<name>.c` in the directory FUSER_OVERRIDE, if there is one, else `text`."""
    if config.override:
        path = pathlib.Path(config.override) / f"{name}{suffix}"
        if path.is_file():
            return path.read_text()
    return text


def _compile(compiler: str, texts: Sequence[str], key: str, cache: DiskCache) -> bytes:
    import tempfile

    def keep(source: str) -> pathlib.Path:
        return cache.put(key + " source", ".c", pathlib.Path(source).read_bytes())

    try:
        with tempfile.TemporaryDirectory(prefix="fuser-cc-") as folder:
            files = [os.path.join(folder, f"kernel{number or ''}.c") for number in range(len(texts))]
            for source, text in zip(files, texts):
                pathlib.Path(source).write_text(text, encoding="utf-8")
            target = os.path.join(folder, "kernel.so")
            flags, version = (*FLAGS, *tuning(compiler)), compiler_version(compiler)
            team = (_team_object(compiler),) if _has_team(texts, version) else ()
            flags += ("-DFUSER_TEAM",) if team else ()
            linker = _linker(compiler)
            if len(texts) == 1 and not linker:
                final = [compiler, *flags, "-o", target, files[0], *team, *linking(version)]
            else:
                objects = [f"{source}.o" for source in files]
                parts = [[compiler, *flags, "-c", "-o", o, source] for o, source in zip(objects, files)]
                compilers.run(parts, files, keep, folder)
                objects += team
                final = [compiler, *flags, "-o", target, *objects, *linking(version)]
                if linker and all(map(os.path.isfile, objects)):
                    final = without_libraries(linker, objects, target) or final
            compilers.run([final], files[:1], keep, folder)
            if not os.path.isfile(target):
                raise ToolchainError(
                    f"the C compiler {compiler} reported success (exit status 0) and wrote no library; it may be a wrapper "
                    f"that does nothing: set FUSER_CC to another one; the command was: {' '.join(part.removeprefix(folder + os.sep) for part in final)}"
                )
            return pathlib.Path(target).read_bytes()
    except OSError as error:
        raise ToolchainError(f"the C compiler {compiler} cannot be run in {tempfile.gettempdir()}: {error}") from None


config.watch("threads", _set_threads)
