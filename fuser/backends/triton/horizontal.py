"""Elementwise kernels that share a launch: a program is of one part, by its number, and runs that part's function.

In: a HORIZONTAL group. Out: one kernel over the arrays of all parts, whose functions are those that the parts have alone. Parts of one
text share its code: a program finds its part's arrays and sizes among the parameters by a binary search of its number. So the update of
many small arrays, whose launches would take longer than their bytes, is one launch of a short text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.elementwise import elementwise
from fuser.backends.triton.emitter import Function, Launch
from fuser.backends.triton.target import WARP
from fuser.ir.graph import Var
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.decompose import decompose
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower
from fuser.partition.group import FusionGroup

NUMBER = "number"
Scalars = Callable[[Kernel], Collection[int]]
PARAMETER_BYTES = 32764  # of one launch, since CUDA 12.1
FORMER_PARAMETER_BYTES = 4096
_ENDS = 32  # bytes of parameters that Triton adds
MOST_COMMENTS = 12  # lines of the user's that a text names


@dataclass(frozen=True)
class Part:
    """One kernel of the launch: its function, and the group's parameters that are its own."""

    kernel: Kernel
    function: Function
    params: tuple[int, ...]


def parts_of(group: FusionGroup) -> list[Part]:
    """The parts, each with a function that is told its program's number."""
    position: dict[Any, int] = {v: n for n, v in enumerate(_params(group))}
    found = []
    for part in group.parts:
        kernel = decompose(split_complex(lower(part), whole=False), spell.TABLE.has)
        (function,) = elementwise(kernel, arrange(kernel), number=NUMBER)
        found.append(Part(kernel, function, tuple(position[v] for v in _params(part))))
    return found


def _params(group: FusionGroup) -> list[Any]:
    return [*group.graph.invars, *(v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var))]


@dataclass(frozen=True)
class Member:
    """A part among those of one text: the first of its programs, and its sizes, as parameters of the launch."""

    part: Part
    first: str
    sizes: tuple[str, ...]


def horizontal(
    group: FusionGroup, parts: Sequence[Part], of_kernel: Scalars, room: int = PARAMETER_BYTES
) -> tuple[str, tuple[Launch, ...]]:
    """The text of a launch of all parts, or of several where their parameters take more than `room` bytes, and the launches;
    `of_kernel` gives the parameters of a kernel that may be numbers."""
    runs = _fitting(parts, room)
    made = []
    for number, run in enumerate(runs):
        made.append(_launch(group.name if len(runs) == 1 else f"{group.name}_{number}", run, of_kernel))
    functions = dict.fromkeys(function for of_run, _, _ in made for function in of_run)
    comments = dict.fromkeys(line for part in parts for line in part.kernel.comments)
    noted = "\n".join(f"# {line}" for line in list(comments)[:MOST_COMMENTS])
    body = "\n\n\n".join([*functions, *(f"{noted}\n{text}" if noted else text for _, text, _ in made)])
    return f"{spell.header(body)}\n\n\n{body}\n", tuple(launch for _, _, launch in made)


def _fitting(parts: Sequence[Part], room: int) -> list[list[Part]]:
    """The parts in runs whose addresses and sizes fit as parameters; one that does not fit is alone."""
    runs: list[list[Part]] = [[]]
    left = room = room - _ENDS
    for part in parts:
        needed = 8 * len(part.params) + 8 * (len(part.function.launch.sizes) + 2)
        if needed > left and runs[-1]:
            runs.append([])
            left = room
        runs[-1].append(part)
        left -= needed
    return runs


def _launch(name: str, parts: Sequence[Part], of_kernel: Scalars) -> tuple[list[str], str, Launch]:
    """The functions of the parts, each once, the kernel that calls them, and its launch."""
    names = {n: part.kernel.params[k].name + f"_{n}" for part in parts for k, n in enumerate(part.params)}
    buffers = tuple(sorted(names))
    sizes: list[int] = []
    constants: dict[str, Any] = {}
    lines, functions, grid = ["    program = tl.program_id(0)"], [], 0

    def size(value: int) -> str:
        sizes.append(value)
        return f"s{len(sizes) - 1}"

    for number, alike in enumerate(_by_text(parts)):
        members = []
        for part in alike:
            first = size(grid) if grid else "0"
            members.append(Member(part, first, tuple(map(size, part.function.launch.sizes))))
            grid += part.function.launch.grid
        launch = alike[0].function.launch
        named = {name: f"{name}_{number}" for name in launch.constants}
        constants |= {named[name]: value for name, value in launch.constants.items()}
        constants |= {"PTX": False, "GCN": False} if len(members) > 1 else {}
        given = [f"{name}={mine}" for name, mine in named.items()]
        lines.append(f"    if (program >= {members[0].first}) & (program < {size(grid)}):")
        call = _chosen(members, names, [1 + n for n in of_kernel(alike[0].kernel)])
        lines += [f"        {line}" for line in call[:-1]]
        lines.append(f"        {launch.function}({', '.join([call[-1], *given])})")
        functions.append(alike[0].function.text)
    quoted = ", ".join(f'"s{n}"' for n in range(len(sizes)))
    params = [
        *(names[n] for n in buffers),
        *(f"s{n}" for n in range(len(sizes))),
        *(f"{constant}: tl.constexpr" for constant in constants),
    ]
    head = [f"@triton.jit(do_not_specialize=[{quoted}])", f"def {name}({', '.join(params)}):"]
    alone = [part.function.launch for part in parts]
    made = Launch(name, buffers, tuple(sizes), constants, grid, max(launch.warps for launch in alone))
    threads = max(launch.threads or made.warps * WARP["hip"] for launch in alone)
    return functions, "\n".join([*head, *lines]), replace(made, threads=threads)


def _by_text(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts whose functions differ in their names alone, together: of one type each their arrays and sizes."""
    found: dict[Any, list[Part]] = {}
    for part in parts:
        launch = part.function.launch
        text = part.function.text.replace(f"def {launch.function}(", "def function(", 1)
        kinds = tuple(-(2**31) <= size < 2**31 for size in launch.sizes)
        types = tuple((param.dtype, not param.shape) for param in part.kernel.params)
        found.setdefault((text, tuple(launch.constants.items()), kinds, types), []).append(part)
    return list(found.values())


def _chosen(members: Sequence[Member], names: dict[int, str], scalars: Collection[int]) -> list[str]:
    """Lines that find the arguments of the member that a program is of, and last the arguments; numbers and arrays of rank 0 are
    read where they are found, because one may be a number and another lie in memory."""
    rows = [[m.first, *(names[n] for n in m.part.params), *m.sizes] for m in members]
    columns = list(zip(*rows))
    differing = [n for n, column in enumerate(columns) if len(set(column)) > 1]
    first, *rest = (f"a{n}" if n in differing else column[0] for n, column in enumerate(columns))

    def search(low: int, high: int) -> list[str]:
        if high - low == 1:
            found = [f"a{n} = {f'scalar_of({rows[low][n]})' if n in scalars else rows[low][n]}" for n in differing]
            ptx, gcn = f"'mov.b32 $0, $1; // {low}', '=r,r'", f"'s_mov_b32 $0, $1 ; {low}', '=s,s'"
            return [
                *found,
                "if PTX:",
                f"    program = opaque(program, {ptx})",
                "if GCN:",
                f"    program = opaque(program, {gcn})",
            ]
        middle = (low + high) // 2
        return [
            f"if program < {members[middle].first}:",
            *(f"    {line}" for line in search(low, middle)),
            "else:",
            *(f"    {line}" for line in search(middle, high)),
        ]

    start = "program" if first == "0" else f"program - {first}"
    return [*(search(0, len(members)) if len(members) > 1 else []), ", ".join([start, *rest])]


def dtypes(parts: Sequence[Part]) -> tuple[np.dtype, ...]:
    """Of the group's parameters."""
    found = {n: part.kernel.params[k].dtype for part in parts for k, n in enumerate(part.params)}
    return tuple(found[n] for n in range(len(found)))


def scalars(parts: Sequence[Part], of_kernel: Scalars) -> tuple[int, ...]:
    """The group's parameters that may be numbers: those that may in all parts that read them."""
    own = {n for part in parts for n in part.params}
    barred = {n for part in parts for k, n in enumerate(part.params) if k not in of_kernel(part.kernel)}
    return tuple(sorted(own - barred))
