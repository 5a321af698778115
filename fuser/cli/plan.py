"""`python -m fuser plan FILE:FUNCTION --mesh data=64,model=8 --link nvlink`: what a program needs on devices that are not there.

How arguments lie over the mesh is said by FUNCTION_specs in the file: a tuple with a PartitionSpec, or a tree of them, for
each argument. Out: memory, operations and bytes sent of one device, the predicted time of a step, and how well it scales.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from fuser.cli.explain import ARGS_HELP, TARGET_HELP
from fuser.cli.output import Output, UsageError

NAME = "plan"


def declare(subparsers: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        NAME, parents=[shared], help="plan for devices that are not there", description=__doc__
    )
    parser.add_argument("function", metavar="FILE:FUNCTION", help=TARGET_HELP)
    parser.add_argument("--mesh", metavar="AXIS=SIZE,...", required=True, help="the mesh, as in data=64,model=8")
    parser.add_argument(
        "--link",
        metavar="LINK",
        default="nvlink",
        help="nvlink, infiniband, ethernet; AXIS=LINK,... where axes differ; or a JSON file",
    )
    parser.add_argument("--device", metavar="NAME", default="h100", help="h100, a100, or this: the CPU here, measured")
    parser.add_argument("--args", metavar="SPECS", help=ARGS_HELP)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Divide and plan; the function does not run."""
    from fuser.cli import target
    from fuser.parallel import network as links
    from fuser.parallel import planning

    axes = _axes(options.mesh)
    try:
        network = links.read_network(options.link)
    except ValueError as error:
        raise UsageError(str(error)) from None
    machine = _machine(options.device)
    with output.progress(f"reading {options.function}"):
        found = target.load(options.function)
        args, kwargs = target.arguments(found, options.args)
    if kwargs:
        raise UsageError("plan takes positional arguments only; let the arguments be a tuple")
    name = f"{found.name.replace('.', '_')}_specs"
    if not hasattr(found.module, name):
        raise UsageError(
            f"plan needs to know how arguments lie: define {name} in {found.path.name}, a tuple with a PartitionSpec (or a tree of "
            "them) for each argument"
        )
    with output.progress(f"dividing {found.name} over {math.prod(axes.values())} devices"):
        plan = planning.plan(found.function, args, getattr(found.module, name), axes, machine, network)
    output.print(_in_words(plan))
    output.document({**plan.document(), "device": options.device, "link": options.link})
    return 0


def _axes(text: str) -> dict[str, int]:
    try:
        axes = {name.strip(): int(size) for name, size in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise UsageError(f"--mesh {text!r} is no mesh; write data=64,model=8") from None
    if not all(name and size > 0 for name, size in axes.items()):
        raise UsageError(f"--mesh {text!r} is no mesh; write data=64,model=8")
    return axes


def _machine(name: str) -> Any:
    from fuser.parallel.planning import MACHINES, Machine
    from fuser.runtime import roofline

    if name == "this":
        return Machine(roofline.peak_flops(), roofline.copy_bandwidth(), 1e-6)
    if name not in MACHINES:
        raise UsageError(f"there is no device {name!r}; the devices are {', '.join(MACHINES)} and this")
    return MACHINES[name]


def _in_words(plan: Any) -> str:
    mega = lambda count: f"{count / 1e6:,.1f} MB"
    milli = lambda seconds: f"{seconds * 1e3:,.3f} ms"
    devices = math.prod(plan.mesh.values())
    lines = [
        f"{plan.name} over {devices:,} devices ({', '.join(f'{n}={s}' for n, s in plan.mesh.items())}), each:",
        f"  memory      {mega(plan.argument_bytes)} arguments, {mega(plan.result_bytes)} results, {mega(plan.temporary_bytes)} temporaries",
        f"  arithmetic  {plan.flops / 1e9:,.2f} GFLOP in {plan.kernels} kernels, {mega(plan.moved_bytes)} through memory",
    ]
    for c in plan.collectives:
        over = ", ".join(c.axes)
        lines.append(f"  sends       {mega(c.sent_bytes)} by {c.count} × {c.name} over {over}: {milli(c.seconds)}")
    lines.append(
        f"  step        {milli(plan.step_seconds)}: {milli(plan.compute_seconds)} computing, {milli(plan.waiting_seconds)} "
        f"waiting for {milli(plan.collective_seconds)} of communication; weak scaling {plan.efficiency:.1%}"
    )
    return "\n".join(lines)
