"""`python -m fuser compile --target cuda:90`: the kernels of a plan compiled for a GPU that need not be there, and a report of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fuser.errors import UnsupportedError

BACKEND = "triton"


def targets() -> tuple[str, ...]:
    """The GPUs that reports are made for."""
    from fuser.backends.triton.target import MACHINES

    return tuple(MACHINES)


def compiled(lowered: Any, target: str) -> tuple[dict[str, Any], str, dict[str, str]]:
    """What is known of the compiled kernels, in words too, and the files to write. UnsupportedError without Triton."""
    import importlib.util

    if importlib.util.find_spec("triton") is None:
        raise UnsupportedError("compiling for a GPU needs triton, which is not installed; install fuser[gpu]")
    from fuser.backends.triton.device.compilation import Job, compile_together
    from fuser.backends.triton.machine_code import report
    from fuser.backends.triton.target import MACHINES

    machine, sources = MACHINES[target], {source.name: source for source in lowered.sources}
    groups = {group.name: group for group in _groups(lowered.plan) if group.name in sources}
    compile_together(
        Job(source, n, machine.platform, machine.arch)
        for source in sources.values()
        for n in range(len(source.launch["launches"]))
    )
    found = [report(group, sources[name], machine) for name, group in groups.items()]
    library = [group.name for group in _groups(lowered.plan) if group.reason and not group.bodies]
    document = {
        "target": target,
        "machine": machine.name,
        "predicted_seconds": sum(kernel.seconds for kernel in found),
        "kernels": [
            {
                "name": kernel.name,
                "moved_bytes": kernel.moved,
                "ideal_bytes": kernel.ideal,
                "predicted_seconds": kernel.seconds,
                "limiter": kernel.limiter,
                "seconds": kernel.times,
                "launches": [asdict(launch) for launch in kernel.launches],
            }
            for kernel in found
        ],
        "library_steps": library,
    }
    return document, _in_words(found, library, target), {f"{s.name}.py": s.text for s in lowered.sources}


def _groups(plan: Any) -> list[Any]:
    """The steps of a plan, and of the bodies of its loops once."""
    return [g for group in plan.groups for g in (group, *(i for body in group.bodies for i in _groups(body)))]


def _in_words(found: list[Any], library: list[str], target: str) -> str:
    from fuser.ir.target import duration
    from fuser.partition.explain import size
    from fuser.report.units import count

    lines = [f"Compiled for {target}: {count(len(found), 'kernel')}."]
    for kernel in found:
        lines.append(
            f"  {kernel.name}: {duration(kernel.seconds)} predicted, limited by {kernel.limiter}; moves {size(kernel.moved)} of "
            f"{size(kernel.ideal)} that any must"
        )
        for launch in kernel.launches:
            code = launch.code
            units = ", on matrix units" if code.matrix_units else ""
            units += ", operands by tensor maps" if code.tensor_maps else ""
            lines.append(
                f"      {launch.name}: {count(launch.grid, 'program')} of {count(launch.warps, 'warp')}{units}; {count(code.registers, 'register')}, "
                f"{size(code.spills)} spilled, {size(code.shared)} shared, occupancy {launch.occupancy:.0%}; "
                f"loads of {code.load_bits} bits, stores of {code.store_bits}, {count(code.barriers, 'barrier')}"
            )
    if library:
        lines.append(f"  by a library, without a figure: {', '.join(library)}")
    return "\n".join(lines)
