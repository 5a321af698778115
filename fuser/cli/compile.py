"""`python -m fuser compile --target tpu:v5e FILE:FUNCTION`: compile for a device that need not be there, and say what came out.

For a TPU: a folder with each kernel's Pallas text, the whole program, the compiled program's text, and its analysis as JSON:
kernels, bytes moved and operations as XLA counts them, memory, and vector memory a kernel. For a GPU (`cuda:90`): each kernel's Triton
text, and of each launch registers, spills, occupancy, widths of accesses, bytes, predicted time and limiter.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

from fuser.cli import compile_gpu
from fuser.cli.explain import ARGS_HELP, TARGET_HELP
from fuser.cli.output import Output, UsageError

NAME = "compile"
PLATFORM = "tpu"


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, parents=[shared], help="compile ahead of time", description=__doc__)
    parser.add_argument("function", metavar="FILE:FUNCTION", help=TARGET_HELP)
    parser.add_argument(
        "--target", metavar="NAME", required=True, help="the machine, as in tpu:v5e, cuda:90 or hip:gfx942"
    )
    parser.add_argument("--args", metavar="SPECS", help=ARGS_HELP)
    parser.add_argument("--out", metavar="FOLDER", type=pathlib.Path, help="where to write (default: NAME-v5e)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Trace, partition, compile, write; the function does not run."""
    import fuser
    from fuser.cli import target

    platform, _, machine = options.target.partition(":")
    gpus = compile_gpu.targets()
    if options.target not in gpus and (platform != PLATFORM or not machine):
        *names, last = ("tpu:v5e", "tpu:v5p", "tpu:v6e", *gpus)
        raise UsageError(f"{options.target!r} is no target; write {', '.join(names)} or {last}")
    with output.progress(f"reading {options.function}"):
        found = target.load(options.function)
        args, kwargs = target.arguments(found, options.args)
    backend = PLATFORM if platform == PLATFORM else compile_gpu.BACKEND
    with output.progress(f"tracing {found.name}"), fuser.config.using(backend=backend):
        lowered = target.staged(found).lower(*args, **kwargs)
    folder = options.out or pathlib.Path(f"{found.name.replace('.', '_')}-{machine}")
    with output.progress(f"compiling for {options.target}"):
        document, words, files = (
            _for_tpu(lowered, machine) if platform == PLATFORM else compile_gpu.compiled(lowered, options.target)
        )
    written = _write(folder, {**files, "analysis.json": json.dumps(document, indent=1) + "\n"})
    output.print(lowered.plan.explain())
    output.print(f"\n{words}")
    output.print(f"wrote {len(written)} files to {folder}")
    output.document({**document, "written": written})
    return 0


def _for_tpu(lowered: Any, machine: str) -> tuple[dict[str, Any], str, dict[str, str]]:
    """What is known of the compiled program, in words too, and the files to write."""
    from fuser.backends.tpu.aot import compile_plan
    from fuser.backends.tpu.program import program
    from fuser.config import extend_environment

    extend_environment({"JAX_PLATFORMS": "cpu"})  # JAX itself need not look for a TPU
    analysis = compile_plan(lowered.plan, machine)
    document = _document(lowered, analysis)
    files = {f"{source.name}.py": source.text for source in lowered.sources}
    files |= {"program.py": program(lowered.plan).text, "compiled.txt": analysis.text}
    return document, _in_words(document, machine), files


def _document(lowered: Any, analysis: Any) -> dict[str, Any]:
    """What is known of the compiled program."""
    kernels = [
        {
            "name": source.name,
            "language": source.language,
            "vector_memory_bytes": source.launch["vmem"],
            "grid": list(source.launch["grid"]),
            "bytes": source.launch["bytes"],
        }
        for source in lowered.sources
    ]
    return {
        "target": analysis.target,
        "launches": dict(analysis.launches),
        "bytes_accessed": analysis.bytes_accessed,
        "planned_bytes": int(lowered.cost_analysis()["bytes accessed"]),
        "flops": analysis.flops,
        "argument_bytes": analysis.argument_bytes,
        "output_bytes": analysis.output_bytes,
        "temporary_bytes": analysis.temporary_bytes,
        "kernels": kernels,
    }


def _write(folder: pathlib.Path, files: dict[str, str]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(files)


def _in_words(document: dict[str, Any], machine: str) -> str:
    from fuser.partition.explain import size

    launches = ", ".join(f"{count} {name}" for name, count in sorted(document["launches"].items()))
    return (
        f"Compiled for {machine}: it launches {launches or 'nothing'}, and moves "
        f"{size(document['bytes_accessed'])} by XLA's count ({size(document['planned_bytes'])} planned)."
    )
