"""`python -m bench.replay --save FILE` or `--compare FILE`: has a change of the compiler changed what it generates?

Lowers the benchmark's workloads and their gradients, draws of the suites of traps and of whole programs, random programs, what the
examples compile, and every sample of every primitive for c, triton and tpu; runs none of it on a device. Keeps a hash of each plan
and of each kernel: its text, and what differs between calls of one text. A refactoring shows an empty comparison, and a change that
is meant to change kernels the programs that it reaches. Exit status 1: something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rich.console import Console

import fuser
from bench import traps
from bench.random_programs import draw
from bench.workloads import WORKLOADS
from fuser.api import compiler
from fuser.backends import get
from fuser.backends.base import KernelSource
from fuser.compile import Lowering, lower
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import REGISTRY, Fusion, Primitive
from fuser.ir.types import ArrayType
from fuser.trace.core import type_of

BACKENDS = ("c", "triton", "tpu")
GROUPS = ("workloads", "suites", "random", "examples", "samples")
SIZES = ("tiny", "full")
DRAWS, SEED = 5, 0  # of each line of the suites
RANDOM = 100  # programs
EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
# Arguments with which an example compiles what it compiles at any size, and takes a second or two. Examples for several devices
# are left out: how many there are is settled by now.
ARGUMENTS = {
    "black_scholes": [],
    "digits_classifiers": ["--size", "200"],
    "hamiltonian_monte_carlo": [],
    "image_pipeline": ["--size", "96", "--rounds", "1"],
    "kmeans_digits": ["--size", "200", "--clusters", "4"],
    "lotka_volterra": [],
    "option_pricing": [],
    "private_gradients": [],
}

Record = dict[str, dict[str, str]]  # program and backend: part ("plan", a kernel's name): hash


@dataclass(frozen=True)
class Program:
    """A traced graph, and the inputs whose memory results may take over."""

    name: str
    graph: Graph
    donated: tuple[int, ...] = ()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description="Has the generated code changed?")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--save", metavar="FILE", type=pathlib.Path, help="write the hashes of this checkout")
    action.add_argument("--compare", metavar="FILE", type=pathlib.Path, help="say what differs from saved hashes")
    parser.add_argument("--groups", default=",".join(GROUPS), help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--backends", default=",".join(BACKENDS), help=f"of {', '.join(BACKENDS)} (default: all)")
    parser.add_argument("--texts", metavar="FOLDER", type=pathlib.Path, help="write the plans and kernels out as well")
    options = parser.parse_args(arguments)
    groups, backends = options.groups.split(","), options.backends.split(",")
    if unknown := [name for name in (*groups, *backends) if name not in (*GROUPS, *BACKENDS)]:
        parser.error(f"unknown: {', '.join(unknown)}")
    found: Record = {}
    with Console(stderr=True).status("lowering") as status:
        for program in programs(groups):
            status.update(program.name)
            for backend in backends:
                found[f"{program.name} {backend}"] = record(program, backend, options.texts)
    if options.save:
        options.save.write_text(json.dumps(found, indent=0, sort_keys=True))
        print(f"{sum(map(len, found.values()))} hashes of {len(found)} programs in {options.save}")
        return 0
    older = json.loads(options.compare.read_text())
    return report(differences(older, found, groups, backends), len(found))


def programs(groups: list[str]) -> Iterator[Program]:
    """The programs of the chosen groups, in an order that does not change."""
    makers: dict[str, Callable[[], Iterator[Program]]] = {
        "workloads": workloads,
        "suites": suites,
        "random": random,
        "examples": examples,
        "samples": samples,
    }
    for group in groups:
        yield from makers[group]()


def workloads() -> Iterator[Program]:
    """Each workload at a tiny and at its full size, and its gradient where there is one."""
    for workload in WORKLOADS.values():
        for size in SIZES:
            types = [ArrayType(x.shape, x.dtype) for x in workload.inputs(size)]
            run = lambda *inputs, workload=workload: workload.run(fuser, inputs)
            yield _traced(f"workloads/{workload.name}/{size}", run, types)
        floats = tuple(n for n, aval in enumerate(types) if aval.dtype.kind == "f")
        if floats and not workload.program:
            total = functools.partial(_total, run)
            with contextlib.suppress(fuser.errors.UnsupportedError, TypeError):
                yield _traced(f"workloads/{workload.name}/gradient", fuser.grad(total, floats), types)


def _total(run: Callable[..., Any], *inputs: Any) -> Any:
    """The sum of all that a workload gives."""
    results = run(*inputs)
    parts = results if isinstance(results, tuple | list) else (results,)
    return sum(part.astype("float32").sum() for part in parts)


def _traced(name: str, function: Callable[..., Any], types: list[ArrayType]) -> Program:
    return Program(name, fuser.jit(function).trace(*types).graph)


def suites() -> Iterator[Program]:
    """The first draws of each line of the suites of traps and of whole programs."""
    for name in traps.lines("fuser"):
        for number in range(DRAWS):
            line, program = traps.program_of("fuser", name, number, SEED)
            if line.peer != "numpy":  # those are accelerated, call by call
                arguments = fuser.tree_util.tree_map(lambda x: ArrayType(x.shape, x.dtype), program.arguments)
                label = f"suites/{name}/{number} {program.label}"
                yield Program(label, fuser.jit(program.function).trace(*arguments).graph)


def random() -> Iterator[Program]:
    """The first random programs: shapes, and work side by side, of which no other group thinks."""
    for seed in range(RANDOM):
        program = draw(seed)
        run = functools.partial(program.function, fuser.numpy)
        yield _traced(f"random/{seed}", run, [ArrayType(x.shape, x.dtype) for x in program.arguments])


def examples() -> Iterator[Program]:
    """What each example compiles as it runs, on the CPU, at a small size."""
    for path in (EXAMPLES / f"{name}.py" for name in sorted(ARGUMENTS)):
        with recorded() as graphs:
            module = _module(path)
            quiet = contextlib.redirect_stdout(io.StringIO())
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), quiet:
                module.main(ARGUMENTS[path.stem])
        for number, (graph, donated) in enumerate(graphs):
            yield Program(f"examples/{path.stem}/{number}-{graph.name}", graph, donated)


@contextlib.contextmanager
def recorded() -> Iterator[list[tuple[Graph, tuple[int, ...]]]]:
    """The graphs that are lowered meanwhile."""
    graphs: list[tuple[Graph, tuple[int, ...]]] = []
    before = compiler.lower

    def keep(graph: Graph, backend: Any, donated: Any = ()) -> Lowering:
        graphs.append((graph, tuple(donated)))
        return before(graph, backend, donated)

    compiler.lower = keep
    try:
        yield graphs
    finally:
        compiler.lower = before


def _module(path: pathlib.Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def samples() -> Iterator[Program]:
    """Each sample of each primitive as a graph of one equation."""
    for name in sorted(REGISTRY):
        primitive = REGISTRY[name]
        if primitive.collect is None and primitive.fusion is not Fusion.CONTROL and primitive.samples is not None:
            for number, (arrays, params) in enumerate(primitive.rule("samples")()):
                yield Program(f"samples/{name}/{number}", _graph_of(primitive, arrays, params))


def _graph_of(primitive: Primitive, arrays: tuple[Any, ...], params: dict[str, Any]) -> Graph:
    operands = tuple(Var(type_of(array)) for array in arrays)
    result = primitive.rule("type")(*(v.aval for v in operands), **params)
    outvars = tuple(Var(aval) for aval in (result if primitive.multiple_results else (result,)))
    return Graph(operands, (), (), (Eqn(primitive, operands, params, outvars),), outvars, primitive.name)


def record(program: Program, backend: str, texts: pathlib.Path | None = None) -> dict[str, str]:
    """The hash of the plan and of each kernel; of the refusal, if the backend refuses the program."""
    try:
        lowering = lower(program.graph, get(backend), program.donated)
    except fuser.errors.FuserError as error:
        return {"refused": digest(str(error))}
    parts = {"plan": str(lowering.plan)}
    for number, source in enumerate(lowering.sources):
        parts[f"{number}-{source.name}"] = text_of(source)
    if texts is not None:
        folder = texts / program.name.replace("/", "-") / backend
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in parts.items():
            (folder / f"{name}.txt").write_text(text)
    return {name: digest(text) for name, text in parts.items()}


def text_of(source: KernelSource) -> str:
    """A kernel's text, and what differs between calls of it."""
    launch = "\n".join(f"{key} = {source.launch[key]!r}" for key in sorted(source.launch))
    return f"{source.language} {source.params}\n{launch}\n{source.text}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(older: Record, newer: Record, groups: list[str], backends: list[str]) -> list[tuple[str, str, str]]:
    """(program and backend, part, "changed" | "new" | "gone"), of the chosen groups and backends."""

    def chosen(name: str) -> bool:
        return name.split("/")[0] in groups and name.rsplit(" ", 1)[1] in backends

    found = []
    for name in sorted(filter(chosen, older | newer)):
        before, after = older.get(name, {}), newer.get(name, {})
        for part in sorted(before | after):
            if before.get(part) != after.get(part):
                found.append((name, part, "gone" if part not in after else "new" if part not in before else "changed"))
    return found


def report(found: list[tuple[str, str, str]], count: int) -> int:
    """One line a difference; the exit status."""
    for name, part, what in found:
        print(f"{what:<8} {name}  {part}")
    print(f"{len(found)} differences in {len({name for name, _, _ in found})} of {count} programs")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
