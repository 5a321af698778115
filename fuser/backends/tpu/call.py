"""The text around a kernel's body: the function of a group, its call of Pallas, arguments and results in the right form.

Bools are bytes in memory, single numbers matrices of one in scalar memory, and random keys pairs of words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fuser.backends.tpu import spell
from fuser.backends.tpu.blocks import Windows
from fuser.backends.tpu.loop_kernel import LoopKernel
from fuser.backends.tpu.reductions import Rows
from fuser.backends.tpu.tiling import Tiling, Window
from fuser.ir.scalar import COSTS
from fuser.ir.types import BOOL, KEY
from fuser.kernel.kernel import Kernel, Param

LEAST_VMEM, MOST_VMEM = 16 << 20, 60 << 20  # bytes that a kernel may ask for: cores have 64 MiB and more
DEAR = 10  # additions from which an operation counts as a transcendental function


@dataclass(frozen=True)
class Before:
    """What a function does before its kernel: the arguments it takes, and lines that name what the kernel reads."""

    arguments: tuple[str, ...]
    lines: tuple[str, ...]


def write_call(name: str, before: Before, writer: LoopKernel | Rows) -> list[str]:
    """The lines of the function of a kernel."""
    kernel, windows = writer.kernel, writer.windows
    refs = [w.name for w in (*windows.inputs, *windows.outputs)] + [s.split(":")[0] for s in writer.scratch]
    outputs = sorted(windows.outputs, key=lambda window: window.param)
    results = [_result(windows.outputs.index(window), kernel.params[window.param]) for window in outputs]
    return [
        f"def {name}({', '.join(before.arguments)}):",
        *before.lines,
        f"    def kernel({', '.join(refs)}):",
        *writer.body(),
        "",
        *_pallas_call(name, writer),
        f"    return [{', '.join(results)}]",
    ]


def _pallas_call(name: str, writer: LoopKernel | Rows) -> list[str]:
    kernel, windows, tiling = writer.kernel, writer.windows, writer.tiling
    shapes = [_out_shape(kernel.params[w.param]) for w in windows.outputs]
    lines = ["    results = pl.pallas_call(", "        kernel,", f"        grid={windows.grid.extents},"]
    lines += _list("in_specs", [_spec(w, windows) for w in windows.inputs])
    lines += _list("out_specs", [_spec(w, windows, out=True) for w in windows.outputs])
    lines += _list("out_shape", shapes)
    if writer.scratch:
        lines += _list("scratch_shapes", [s.split(": ", 1)[1] for s in writer.scratch])
    order = ", ".join(f'"{_semantics(axis, windows)}"' for axis in windows.grid.axes)
    limit = min(max(2 * tiling.used(), LEAST_VMEM), MOST_VMEM)
    flops, dear = _cost(kernel, tiling)
    moved = sum(windows.moved(w) for w in (*windows.inputs, *windows.outputs))
    return [
        *lines,
        f"        compiler_params=pltpu.CompilerParams(dimension_semantics=({order},), vmem_limit_bytes={limit}),",
        f"        cost_estimate=pl.CostEstimate(flops={flops}, transcendentals={dear}, bytes_accessed={moved}),",
        "        interpret=INTERPRET,",
        f'        name="{name}",',
        f"    )({', '.join(_argument(kernel.params[w.param]) for w in windows.inputs)})",
    ]


def _list(name: str, texts: list[str]) -> list[str]:
    return [f"        {name}=[", *(f"            {text}," for text in texts), "        ],"]


def _semantics(axis: object, windows: Windows) -> str:
    """Whether programs along a dimension of the grid write different blocks, so that their order does not matter."""
    own = axis is not None and axis in windows.tiling.kernel.parallel
    return "parallel" if own and all(axis in w.axes for w in windows.outputs) else "arbitrary"


def _spec(window: Window, windows: Windows, out: bool = False) -> str:
    single = not windows.tiling.kernel.params[window.param].shape
    return "pl.BlockSpec(memory_space=pltpu.SMEM)" if single and not out else windows.spec(window)


def _argument(param: Param) -> str:
    """An array as its window wants it."""
    if param.dtype == KEY:
        return f"{param.name}.reshape(1, 2)"
    if not param.shape:
        wide = "jnp.int32" if param.dtype == BOOL else spell.storage(spell.local(param.dtype))
        return f"{param.name}.astype({wide}).reshape(1, 1)"
    return f"{param.name}.astype(jnp.int8)" if param.dtype == BOOL else param.name


def _out_shape(param: Param) -> str:
    dtype = "jnp.int8" if param.dtype == BOOL else spell.storage(param.dtype)
    return f"jax.ShapeDtypeStruct({param.shape or (1, 1)}, {dtype})"


def _result(number: int, param: Param) -> str:
    text = f"results[{number}]" + ("" if param.shape else ".reshape(())")
    return f"{text} != 0" if param.dtype == BOOL else text


def _cost(kernel: Kernel, tiling: Tiling) -> tuple[int, int]:
    """Operations of one run, and how many of them are transcendental functions."""
    time = kernel.loop.time if kernel.loop is not None else None
    total = math.prod(axis.extent for axis in tiling.order) * (1 if time is None else time.extent)
    plain = sum(node.op not in ("const", "load", "index") for node in kernel.nodes)
    dear = sum(COSTS.get(node.op, 1) >= DEAR for node in kernel.nodes)
    return plain * total, dear * total
