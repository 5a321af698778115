"""`python -m fuser doctor`: what fuser found on this machine, what is missing and how to get it.

Each check gives a `Finding`; its state is `ok`, `absent` (optional, and not here) or `problem` (exit status 1).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from fuser.cli.output import Output

NAME = "doctor"
OK, ABSENT, PROBLEM = "ok", "absent", "problem"
STYLES = {OK: "green", ABSENT: "dim", PROBLEM: "bold red"}
NEEDED = ("numpy", "ml_dtypes", "optree", "opt_einsum", "rich")
OPTIONAL = {
    "torch": ("library calls on the GPU, torch tensors in and out", "pip install torch"),
    "triton": ("kernels on GPUs", "pip install triton"),
    "jax": ("programs on TPUs; comparisons in the benchmarks and tests", "pip install 'fuser[tpu]'"),
    "libtpu": ("programs on TPUs, and compiling for them ahead of time", "pip install 'fuser[tpu]'"),
    "scikit-image": ("the demo's photograph", "pip install scikit-image"),
}
_OPENMP_PROBE = "#include <omp.h>\nint most_threads(void) { return omp_get_max_threads(); }\n"


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `found` says what is there, `remedy` what to do about what is not."""

    name: str
    state: str
    found: str
    remedy: str = ""


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, parents=[shared], help="what this machine has and lacks", description=__doc__)
    parser.add_argument(
        "--jax",
        action="store_true",
        help="look at the installed libraries for JAX, and what each needs that is missing",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Look at everything, print a line each, and say what to do."""
    with output.progress("examining this machine"):
        found = libraries() if options.jax else findings()
    width = max(13, *(len(finding.name) for finding in found)) + 1
    for finding in found:
        state, name = (f"{finding.state:<8}", STYLES[finding.state]), (f"{finding.name:<{width}}", "bold")
        output.print(Text.assemble(state, name, finding.found))
    _print_remedies("\nTo be mended:", [finding for finding in found if finding.state == PROBLEM], output)
    _print_remedies("\nOptional:", [finding for finding in found if finding.state == ABSENT], output)
    status = int(any(finding.state == PROBLEM for finding in found))
    output.document({"ok": not status, "findings": [asdict(finding) for finding in found]})
    return status


def _print_remedies(heading: str, found: list[Finding], output: Output) -> None:
    remedies = [f"  {finding.name}: {finding.remedy}" for finding in found if finding.remedy]
    if remedies:
        output.print("\n".join([heading, *remedies]))


def findings() -> list[Finding]:
    """What every check found, in order."""
    result = []
    for check in CHECKS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result += list(check())
        except Exception as error:
            name = check.__name__.strip("_").replace("_", " ")
            result.append(Finding(name, PROBLEM, f"{type(error).__name__}: {error}"))
    return result


def libraries() -> list[Finding]:
    """Each installed library that needs JAX: what it asks for that fuser, as its `jax`, lacks."""
    from fuser.compat import install_as_jax, needs

    install_as_jax()
    result = []
    for library in needs.libraries():
        found = needs.needs_of(library)
        facts = f"{found.version}, asks for {len(found.names)} names"
        optional = f"; {len(found.optional)} that it can do without are missing" if found.optional else ""
        if found.missing:
            facts += f"; missing: {', '.join(sorted(found.missing))}"
        remedy = (
            "programs that reach a missing name raise an error that names it: see docs/jax-programs.md"
            if found.missing
            else ""
        )
        result.append(Finding(found.library, ABSENT if found.missing else OK, facts + optional, remedy))
    return result or [Finding("libraries", ABSENT, "no library that needs JAX is installed", "pip install optax")]


def _python() -> Iterator[Finding]:
    from fuser import __version__

    version = platform.python_version()
    yield Finding("fuser", OK, f"{__version__} under Python {version} on {platform.system()} {platform.machine()}")
    for name in NEEDED:
        found = _version(name)
        yield Finding(name, OK if found else PROBLEM, found or "missing", "" if found else f"pip install {name}")


def _processor() -> Iterator[Finding]:
    from fuser.report.units import bandwidth, count
    from fuser.runtime import device, roofline

    facts = f"{device.cpu_name()}, {count(device.cpu_count(), 'core')} for this process"
    yield Finding("processor", OK, f"{facts}, copies {bandwidth(roofline.copy_bandwidth())}")


def _native_core() -> Iterator[Finding]:
    from fuser.runtime import core

    if core.native is not None:
        yield Finding("native core", OK, "calls run in C")
        return
    remedy = (
        "unset FUSER_NATIVE"
        if "FUSER_NATIVE" in core.reason
        else (
            "install fuser from its source where there is a C compiler and Python's headers: pip install --no-binary fuser fuser"
        )
    )
    yield Finding("native core", ABSENT, f"calls run in Python, which is slower: {core.reason}", remedy)


def _compiler() -> Iterator[Finding]:
    from fuser.config import config
    from fuser.errors import ToolchainError
    from fuser.runtime import toolchain

    state = ABSENT if config.backend == "reference" or _has_gpu() else PROBLEM
    try:
        path = toolchain.find_compiler()
        yield Finding("C compiler", OK, f"{path}: {toolchain.compiler_version(path)}")
    except ToolchainError as error:
        what, _, remedy = str(error).partition("; ")
        yield Finding("C compiler", state, what, remedy)
        return
    try:
        library = toolchain.load_shared(toolchain.compile_shared(_OPENMP_PROBE).path)
        yield Finding("OpenMP", OK, f"{library.most_threads()} threads")
    except ToolchainError as error:
        words = str(error).strip().splitlines()
        yield Finding(
            "OpenMP", state, words[-1], "install the compiler's OpenMP library (libgomp with gcc, libomp with clang)"
        )


def _gpu() -> Iterator[Finding]:
    from fuser.report.units import size

    if not _has_gpu():
        yield Finding("GPU", ABSENT, "none; programs run on the processor")
        return
    import torch

    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        yield Finding(
            "GPU", OK, f"{about.name}, {size(about.total_memory)}, compute capability {about.major}.{about.minor}"
        )


def _packages() -> Iterator[Finding]:
    for name, (use, remedy) in OPTIONAL.items():
        found = _version(name)
        yield Finding(name, OK if found else ABSENT, found or f"not installed; used for {use}", "" if found else remedy)


def _disk_cache() -> Iterator[Finding]:
    from fuser.cli.cache import in_words
    from fuser.runtime.cache import DiskCache, default_cache

    known = default_cache()
    if known.directory is None:
        yield Finding("disk cache", ABSENT, "switched off by FUSER_CACHE", "unset FUSER_CACHE")
        return
    cache = DiskCache(known.directory, known.limit_bytes)  # a fresh one: it says once what is wrong with a directory
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cache.put_json("doctor", True)
        cache.remove("doctor")
    if said:
        what, _, remedy = str(said[0].message).rpartition("; ")
        yield Finding("disk cache", PROBLEM, what, remedy)
    else:
        yield Finding("disk cache", OK, in_words(cache))


def _settings() -> Iterator[Finding]:
    from fuser.config import FLAGS, environment, unknown_variables

    changed = [
        f"{variable}={environment(variable)}" for variable, _, _ in FLAGS.values() if environment(variable) is not None
    ]
    yield Finding("settings", OK, ", ".join(changed) or "none changed by the environment")
    for variable, near in unknown_variables().items():
        remedy = f"unset it, or write {near}" if near else "unset it, or see docs/environment.md"
        yield Finding("settings", PROBLEM, f"{variable} is no setting of fuser's, and does nothing", remedy)


def _first_program() -> Iterator[Finding]:
    """A small program from end to end on the default backend."""
    import numpy as np

    import fuser
    from fuser.errors import ToolchainError

    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    program = fuser.jit(lambda x: (x * 2 + 1).sum(axis=1))
    try:
        agrees = np.allclose(np.asarray(program(x)), (x * 2 + 1).sum(axis=1))
    except ToolchainError as error:
        yield Finding(
            "first program", PROBLEM, str(error).splitlines()[0].partition("; ")[0], "see the C compiler above"
        )
        return
    backend = program.lower(x).plan.backend
    words = "compiled, ran and agreed with NumPy" if agrees else "gave other results than NumPy"
    yield Finding("first program", OK if agrees else PROBLEM, f"{words} (backend {backend})")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _processor,
    _native_core,
    _compiler,
    _gpu,
    _packages,
    _disk_cache,
    _settings,
    _first_program,
)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _has_gpu() -> bool:
    from fuser.runtime import device

    return device.has_cuda()
