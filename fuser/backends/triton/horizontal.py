"""Elementwise kernels that share a launch: a program is of one part, by its number, and runs that part's function.

In: a HORIZONTAL group. Out: one kernel over the arrays of all parts, whose functions are those that the parts have alone. So the update of
many small arrays, whose launches would take longer than their bytes, is one launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.elementwise import elementwise
from fuser.backends.triton.emitter import Function, Launch
from fuser.ir.graph import Var
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.decompose import decompose
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower
from fuser.partition.group import FusionGroup

NUMBER = "number"
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


def horizontal(group: FusionGroup, parts: Sequence[Part]) -> tuple[str, Launch]:
    """The text of a launch of all parts, and the launch."""
    names = {n: part.kernel.params[k].name + f"_{n}" for part in parts for k, n in enumerate(part.params)}
    buffers = [names[n] for n in range(len(names))]
    sizes: list[int] = []
    constants: dict[str, Any] = {}
    lines, grid = ["    program = tl.program_id(0)"], 0
    for number, part in enumerate(parts):
        launch = part.function.launch
        first = "0"
        if number:
            first = f"s{len(sizes)}"
            sizes.append(grid)
        own = [f"s{len(sizes) + n}" for n in range(len(launch.sizes))]
        sizes += launch.sizes
        named = {name: f"{name}_{number}" for name in launch.constants}
        constants |= {named[name]: value for name, value in launch.constants.items()}
        grid += launch.grid
        arguments = [f"program - {first}" if number else "program", *(names[n] for n in part.params), *own]
        arguments += [f"{name}={mine}" for name, mine in named.items()]
        last = f"s{len(sizes)}"
        sizes.append(grid)
        lines += [
            f"    if (program >= {first}) & (program < {last}):",
            f"        {launch.function}({', '.join(arguments)})",
        ]
    quoted = ", ".join(f'"s{n}"' for n in range(len(sizes)))
    params = [*buffers, *(f"s{n}" for n in range(len(sizes))), *(f"{name}: tl.constexpr" for name in constants)]
    head = [f"@triton.jit(do_not_specialize=[{quoted}])", f"def {group.name}({', '.join(params)}):"]
    comments = dict.fromkeys(line for part in parts for line in part.kernel.comments)
    head = [*(f"# {line}" for line in list(comments)[:MOST_COMMENTS]), *head]
    body = "\n\n\n".join([*(part.function.text for part in parts), "\n".join([*head, *lines])])
    warps = max(part.function.launch.warps for part in parts)
    launch = Launch(group.name, tuple(range(len(buffers))), tuple(sizes), constants, grid, warps)
    return f"{spell.header(body)}\n\n\n{body}\n", launch


def dtypes(parts: Sequence[Part]) -> tuple[np.dtype, ...]:
    """Of the group's parameters."""
    found = {n: part.kernel.params[k].dtype for part in parts for k, n in enumerate(part.params)}
    return tuple(found[n] for n in range(len(found)))


def scalars(parts: Sequence[Part], of_kernel: Any) -> tuple[int, ...]:
    """The group's parameters that may be numbers: those that may in all parts that read them."""
    own = {n for part in parts for n in part.params}
    barred = {n for part in parts for k, n in enumerate(part.params) if k not in of_kernel(part.kernel)}
    return tuple(sorted(own - barred))
