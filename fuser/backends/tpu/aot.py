"""Compilation for TPUs that are not there: libtpu against a description of a machine, with what XLA says of the result.

In: any function of JAX and the types of its arguments, or a plan. Out: `Analysis`: the kernels that one call launches,
the bytes they move, the memory they take. JAX itself runs on the CPU meanwhile.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.backends.tpu.backend import INSTALL, require_jax
from fuser.backends.tpu.program import compiled, program
from fuser.config import extend_environment
from fuser.errors import ToolchainError, UnsupportedError
from fuser.ir.types import KEY, ArrayType
from fuser.partition.group import Plan

# What libtpu asks for where no TPU and no metadata server can be asked.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nothing is opened, so several processes may compile at once
}
TARGETS = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
# Instructions of a compiled program that launch nothing: names for memory, and what starts or awaits a copy.
FREE = frozenset(
    ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "copy-start", "copy-done", "iota", "after-all")
    + ("slice-start", "slice-done", "async-start", "async-done", "async-update", "opt-barrier", "partition-id")
)
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\([^=]*?\)|\S+) ([\w\-]+)\(")


@dataclass(frozen=True)
class Analysis:
    """What one call of a compiled program does: instructions that launch work, by name; bytes moved, as XLA counts them."""

    target: str
    launches: Counter[str]
    bytes_accessed: int
    flops: int
    argument_bytes: int
    output_bytes: int
    temporary_bytes: int
    text: str

    @property
    def kernels(self) -> int:
        """How many things one call launches, the bodies of loops counted once."""
        return sum(self.launches.values())


def compile_plan(plan: Plan, target: str) -> Analysis:
    """The program of a plan, compiled for a TPU such as "v5e". ToolchainError carries XLA's own words."""
    require_jax()
    given = [v.aval for v in (*plan.graph.invars, *plan.graph.constvars)]
    whole = program(plan)
    for _, eqn in whole.host_calls:
        raise UnsupportedError(
            f"{eqn.primitive} ({eqn.source.short}) runs on the host, which a program that is compiled ahead of time cannot call; "
            "compile the function without it"
        )
    return compile_function(compiled(whole.text, False), given, target)


def compile_function(function: Callable[..., Any], avals: Sequence[ArrayType], target: str) -> Analysis:
    """A function of JAX, compiled for a TPU that need not be there."""
    jax, device = _device(target)
    from jax._src.mesh import AbstractDevice
    from jax.sharding import AbstractMesh, SingleDeviceSharding, use_abstract_mesh

    sharding = SingleDeviceSharding(device)
    shapes = [jax.ShapeDtypeStruct(*_described(aval), sharding=sharding) for aval in avals]
    # Pallas asks the device for its registers; without a TPU the abstract mesh is what answers.
    abstract = AbstractDevice(device_kind=device.device_kind, num_cores=1, platform="tpu")
    mesh = AbstractMesh((), (), abstract_device=abstract)
    with tempfile.TemporaryDirectory() as folder, use_abstract_mesh(mesh):
        try:
            traced = jax.jit(function, keep_unused=True).trace(*shapes)
            lowered = traced.lower(lowering_platforms=("tpu",))
            result = lowered.compile(compiler_options={"xla_dump_to": folder})
        except Exception as error:
            raise ToolchainError(f"the TPU compiler refuses the program: {error}") from error
        return _analysis(target, result, _dumped(pathlib.Path(folder)) or result.as_text())


def _described(aval: ArrayType) -> tuple[tuple[int, ...], np.dtype]:
    return ((*aval.shape, 2), np.dtype("uint32")) if aval.dtype == KEY else (aval.shape, aval.dtype)


def _device(target: str) -> tuple[Any, Any]:
    """JAX, and the first device of the machine that a target names."""
    if target not in TARGETS:
        raise UnsupportedError(f"no TPU {target!r} is known; the targets are {', '.join(TARGETS)}")
    require_jax()
    if importlib.util.find_spec("libtpu") is None:
        raise UnsupportedError(f"compiling for a TPU needs libtpu, which is not installed; {INSTALL}")
    extend_environment(ENVIRONMENT)
    import jax
    from jax.experimental import topologies

    return jax, topologies.get_topology_desc(platform="tpu", topology_name=TARGETS[target]).devices[0]


def _dumped(folder: pathlib.Path) -> str:
    """The compiled program's text as libtpu wrote it, since JAX cannot read asynchronous gathers back; "" without one."""
    texts = [path.read_text() for path in folder.glob("*.after_optimizations.txt")]
    return max(texts, key=len, default="")


def _analysis(target: str, result: Any, text: str) -> Analysis:
    cost, memory = result.cost_analysis() or {}, result.memory_analysis()
    return Analysis(
        target,
        launches(text),
        int(cost.get("bytes accessed", 0)),
        int(cost.get("flops", 0)),
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        text,
    )


def launches(text: str) -> Counter[str]:
    """The instructions of a compiled program that launch work: those of its entry, and of the bodies of its loops."""
    found: Counter[str] = Counter()
    for computation in _computations(text):
        found.update(op for op in computation if op not in FREE and op not in ("while", "conditional", "call"))
    return found


def _computations(text: str) -> list[list[str]]:
    """The operations of the entry and of what it calls as control flow; fused computations and reductions are no programs."""
    operations: dict[str, list[str]] = {}
    called: dict[str, list[str]] = {}
    name = entry = ""
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name = head[2]
            entry = name if head[1] else entry
            operations[name], called[name] = [], []
        elif name and (instruction := _INSTRUCTION.match(line)):
            operations[name].append(instruction[1])
            if instruction[1] in ("while", "conditional", "call"):
                called[name] += re.findall(r"(?:body|condition|to_apply|_computation)=%?([\w.\-]+)", line)
                called[name] += re.findall(
                    r"%([\w.\-]+)", (re.findall(r"branch_computations=\{([^}]*)\}", line) or [""])[0]
                )
    result, stack, seen = [], [entry], {entry}
    while stack:
        own = stack.pop()
        result.append(operations.get(own, []))
        fresh = [c for c in called.get(own, []) if c not in seen]
        seen.update(fresh)
        stack += fresh
    return result
