"""`python -m fuser explain FILE:FUNCTION`: what fused, what did not and why, in the user's source lines."""

from __future__ import annotations

import argparse
from typing import Any

from fuser.cli.output import Output

NAME = "explain"
ARGS_HELP = 'example arguments: dtypes with shapes and Python literals, as in "f32[4096,4096], i32, 3.0, axis=1"'
TARGET_HELP = "a Python file and a function in it, as in model.py:softmax"


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, parents=[shared], help="what fused, what did not and why", description=__doc__)
    parser.add_argument("target", metavar="FILE:FUNCTION", help=TARGET_HELP)
    parser.add_argument("--args", metavar="SPECS", help=ARGS_HELP)
    parser.add_argument("--graph", action="store_true", help="also print the optimised graph")
    parser.add_argument("--schedules", action="store_true", help="also say how the loops of each kernel run")
    parser.add_argument("--kernels", action="store_true", help="also print the generated kernels")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Trace, partition and print; the function does not run."""
    from fuser.cli import target
    from fuser.report.explanation import of_plan

    with output.progress(f"reading {options.target}"):
        found = target.load(options.target)
        args, kwargs = target.arguments(found, options.args)
    with output.progress(f"tracing {found.name}"):
        lowered = target.staged(found).lower(*args, **kwargs)
    explanation = of_plan(lowered.plan, sources=lowered.sources, verbose=options.schedules)
    output.print(str(explanation))
    document = explanation.to_dict()
    if options.graph:
        document["graph"] = str(lowered.graph)
        output.print(f"\n{lowered.graph}")
    if options.kernels:
        document["kernels"] = [_kernel(source) for source in lowered.sources]
        for source in lowered.sources:
            output.print(f"\n{source.text}")
    output.document(document)
    return 0


def _kernel(source: Any) -> dict[str, Any]:
    return {"name": source.name, "language": source.language, "text": source.text, "key": source.key}
