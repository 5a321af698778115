"""`python -m fuser demo`: three programs with and without fuser: the same results, how much faster, how near the limit.

A photograph and two million options in plain NumPy behind `@fuser.accelerate`, and a softmax behind `@fuser.jit`. Calls
of NumPy and fuser alternate, so that both meet the same noise; times are medians.
"""

from __future__ import annotations

import argparse
import inspect
import pathlib
import statistics
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fuser.cli.output import Output, UsageError

NAME = "demo"
ROUNDS = 5
TOLERANCES = {4: 1e-4, 8: 1e-10}  # largest difference from NumPy, over the largest value, by bytes of an element


@dataclass(frozen=True)
class Program:
    """One part of the demo: a decorated function, what NumPy runs instead, and the input of both."""

    title: str
    fused: Callable[..., Any]
    plain: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]

    @property
    def name(self) -> str:
        return self.fused.__name__


@dataclass(frozen=True)
class Outcome:
    """What one part of the demo found; times in seconds, `difference` relative to the largest value."""

    name: str
    numpy_seconds: float
    fuser_seconds: float
    first_call_seconds: float
    speedup: float
    difference: float
    agrees: bool
    operations: int
    kernels: int
    bytes: int
    unfused_bytes: int
    fraction_of_copy_bandwidth: float
    report: str


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        NAME, parents=[shared], help="see what fuser does, in 20 seconds", description=__doc__
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=pathlib.Path,
        default=pathlib.Path("fuser-demo"),
        help="where reports and pictures go (default: fuser-demo)",
    )
    parser.add_argument("--small", action="store_true", help="small inputs: shows what is done, not how fast it can be")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the three programs; status 1 if a result differs from NumPy's."""
    file = _place(options.output)
    with output.progress("reading the photograph"):
        programs = _programs(file, options.small)
    copy_bandwidth = _measured_copy_bandwidth(output)
    outcomes = [_show(program, copy_bandwidth, options.output, output) for program in programs]
    pictures = _pictures(programs[0], options.output)
    _conclude(file, outcomes, pictures, output)
    fine = all(outcome.agrees for outcome in outcomes)
    files = [str(path) for path in (file, *pictures)] + [outcome.report for outcome in outcomes]
    parts = [asdict(outcome) for outcome in outcomes]
    output.document({"ok": fine, "copy_bandwidth": copy_bandwidth, "programs": parts, "files": files})
    return 0 if fine else 1


def _place(folder: pathlib.Path) -> pathlib.Path:
    """The file of programs in the output directory; one that is there is the user's and stays."""
    file = folder / "programs.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_text(
                pathlib.Path(__file__).with_name("programs.py").read_text(encoding="utf-8"), encoding="utf-8"
            )
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}; name another directory with --output"
        ) from None
    return file


def _programs(file: pathlib.Path, small: bool) -> list[Program]:
    from fuser.cli.target import load

    module = load(f"{file}:develop").module
    try:
        (photograph,) = module.develop_args(1 if small else 4)
    except ImportError:
        raise UsageError(
            'the demo needs scikit-image for its photograph; install it with: python -m pip install ".[demo]"'
        ) from None
    count, rows = (20_000, 256) if small else (2_000_000, 4096)
    pixels = f"{photograph.shape[1]} × {photograph.shape[0]} pixels"
    return [
        Program(f"A photograph of {pixels}", module.develop, module.develop.__wrapped__, (photograph,)),
        Program(
            f"{count:,} options",
            module.black_scholes,
            module.black_scholes.__wrapped__,
            module.black_scholes_args(count),
        ),
        Program(f"Softmax of {rows} × {rows}", module.softmax, module.softmax_in_numpy, module.softmax_args(rows)),
    ]


def _measured_copy_bandwidth(output: Output) -> float:
    from fuser.report.units import bandwidth, count
    from fuser.runtime import device, roofline

    where = device.devices()[0]
    with output.progress("measuring the copy bandwidth"):
        measured = roofline.copy_bandwidth(where)
    name = f"{device.cpu_name()}, {count(device.cpu_count(), 'core')}" if where.platform == "cpu" else where.kind
    output.print(f"This machine: {name}; a plain copy moves {bandwidth(measured)}, the limit of what follows.")
    return measured


def _show(program: Program, copy_bandwidth: float, folder: pathlib.Path, output: Output) -> Outcome:
    """Run one program both ways, and print what came of it."""
    output.print(f"\n[bold]{program.title}[/bold]\n", markup=True)
    output.print(textwrap.indent(inspect.getsource(program.fused.__wrapped__), "    "))  # type: ignore[attr-defined]
    with output.progress(f"running {program.name}"):
        outcome = _measure(program, copy_bandwidth, folder)
    _print_outcome(outcome, output)
    return outcome


def _measure(program: Program, copy_bandwidth: float, folder: pathlib.Path) -> Outcome:
    import fuser

    fused = program.fused
    start = time.perf_counter()
    found = np.asarray(fused(*program.arguments))
    first = time.perf_counter() - start
    wanted = program.plain(*program.arguments)
    difference = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    del found, wanted
    plain_seconds, fused_seconds = _alternate(
        lambda: program.plain(*program.arguments), lambda: fused(*program.arguments)
    )
    page = fuser.profile(fused)(*program.arguments).save(folder / f"{program.name}.html")
    explanation = fuser.explain(fused)(*program.arguments)
    return Outcome(
        program.name,
        plain_seconds,
        fused_seconds,
        first,
        plain_seconds / fused_seconds,
        difference,
        difference <= TOLERANCES[program.arguments[0].itemsize],
        explanation.operations,
        len(explanation.steps),
        explanation.bytes,
        explanation.unfused_bytes,
        explanation.bytes / fused_seconds / copy_bandwidth,
        str(page),
    )


def _alternate(plain: Callable[[], Any], fused: Callable[[], Any]) -> tuple[float, float]:
    """Median seconds of each, in calls that take turns; fuser's calls are waited for."""
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for times, function in zip(samples, (plain, fused)):
            start = time.perf_counter()
            result = function()
            getattr(result, "block_until_ready", lambda: None)()
            times.append(time.perf_counter() - start)
            del result
    return statistics.median(samples[0]), statistics.median(samples[1])


def _print_outcome(outcome: Outcome, output: Output) -> None:
    from fuser.report.units import count, percent, seconds, size

    fused = f"{count(outcome.operations, 'operation')} became {count(outcome.kernels, 'kernel')}"
    faster = f"{outcome.speedup:.1f}× faster" if outcome.speedup >= 1 else f"{1 / outcome.speedup:.1f}× slower"
    verdict = "the same results" if outcome.agrees else "[red]other results than NumPy[/red]"
    output.print(
        f"  NumPy {seconds(outcome.numpy_seconds)}, fuser {seconds(outcome.fuser_seconds)}: "
        f"[bold]{faster}[/bold], {verdict} (largest difference {outcome.difference:.0e})\n"
        f"  {fused}, moving {size(outcome.bytes)} instead of {size(outcome.unfused_bytes)}, at "
        f"{percent(outcome.fraction_of_copy_bandwidth)} of the copy bandwidth\n"
        f"  the first call took {seconds(outcome.first_call_seconds)}, compiling included; full report: {outcome.report}",
        markup=True,
    )


def _pictures(program: Program, folder: pathlib.Path) -> list[pathlib.Path]:
    """The photograph before and after, one tile of it; none without matplotlib."""
    try:
        from matplotlib.image import imsave
    except ImportError:
        return []
    photograph = program.arguments[0][:512, :512]
    paths = [folder / "photograph.png", folder / "developed.png"]
    for path, picture in zip(paths, (photograph, program.plain(photograph))):
        imsave(path, np.ascontiguousarray(picture))
    return paths


def _conclude(file: pathlib.Path, outcomes: list[Outcome], pictures: list[pathlib.Path], output: Output) -> None:
    output.print("\nOpen the reports in a browser: " + ", ".join(outcome.report for outcome in outcomes))
    if pictures:
        output.print("The photograph before and after: " + ", ".join(str(path) for path in pictures))
    output.print(f'What fuses, line by line: "python -m fuser explain {file}:{outcomes[0].name}"')
    output.print(f"Your own function: put the decorator on it, or change {file} and run the demo again.")
