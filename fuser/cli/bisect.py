"""`python -m fuser bisect FILE:FUNCTION`: which merge of kernels changes a result, by running with fewer and fewer of them.

The program runs on the reference backend, in NumPy, and on another with its first n merges allowed; status 1 when a
result differs, with the merge that makes the difference.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from fuser.cli.explain import ARGS_HELP, TARGET_HELP
from fuser.cli.output import Output

NAME = "bisect"


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(NAME, parents=[shared], help="the merge that changes a result", description=__doc__)
    parser.add_argument("target", metavar="FILE:FUNCTION", help=TARGET_HELP)
    parser.add_argument("--args", metavar="SPECS", help=ARGS_HELP)
    parser.add_argument("--backend", default="c", help="whose kernels are in question (default: c)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Trace, then run with fewer and fewer merges."""
    from fuser import backends
    from fuser.cli import target
    from fuser.debug.bisect import bisect_graph

    backend = backends.get(options.backend)
    with output.progress(f"reading {options.target}"):
        found = target.load(options.target)
        args, kwargs = target.arguments(found, options.args)
    with output.progress(f"tracing {found.name}"):
        graph = target.staged(found).trace(*args, **kwargs).graph
    arrays, given = inputs(graph, args, kwargs)
    with output.progress("running"):
        guilty = bisect_graph(graph, arrays, backend)
    whose = "the given arguments" if given else "random inputs of the program's types"
    if guilty is None:
        output.print(f"{found.name} agrees with the reference on {whose}, with all merges")
    else:
        output.print(f"{found.name}, on {whose}: {guilty}")
    output.document(
        {
            "function": found.name,
            "backend": options.backend,
            "given_arguments": given,
            "agrees": guilty is None,
            "merge": None if guilty is None else guilty.number,
            "result": None if guilty is None else guilty.output,
            "kernel": None if guilty is None else guilty.kernel,
        }
    )
    return int(guilty is not None)


def inputs(graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[np.ndarray], bool]:
    """Arrays for the graph's inputs, and whether they are the given arguments.

    They are not where the graph has other inputs, such as globals that the function reads.
    """
    from fuser.cli.arguments import random_array
    from fuser.trace import tree

    leaves = tree.leaves((args, kwargs))
    found = [np.asarray(leaf) for leaf in leaves if hasattr(leaf, "dtype") or isinstance(leaf, (float, complex))]
    if [a.shape for a in found] == [aval.shape for aval in graph.in_avals]:
        return [a.astype(aval.dtype) for a, aval in zip(found, graph.in_avals)], True
    generator = np.random.default_rng(0)
    return [random_array(aval.shape, aval.dtype, generator) for aval in graph.in_avals], False
