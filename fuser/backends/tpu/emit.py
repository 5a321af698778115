"""FusionGroup → the text of one Python function: a Pallas kernel with its grid and blocks, or calls that XLA compiles.

`form` decides which, without devices: `Refused` by the tiling or the writer means XLA, with that reason. Where arrays are
only read in an order that tiles lack, XLA moves them first and the kernel reads the copy; the text and the plan say so.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from fuser.backends.tpu import spell
from fuser.backends.tpu.arrays import Arrays
from fuser.backends.tpu.looped import Looped
from fuser.backends.tpu.rows import Rows, phases
from fuser.backends.tpu.tile import Refused, Tiling, Window
from fuser.backends.tpu.window import Windows, grid_of
from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import COSTS
from fuser.ir.types import BOOL, KEY
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower, results
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FusionGroup, Kind

PALLAS = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN, Kind.LOOP)
MOST_VMEM = 60 << 20  # bytes of vector memory that a kernel may ask for: cores have 64 MiB and more
SPREADING = ("broadcast_in_dim", "iota")  # movement that makes arrays larger is left to the kernel


@dataclass(frozen=True)
class Emitted:
    """A function's text, and of a Pallas kernel: its grid, bytes of vector memory, and bytes that it moves."""

    text: str
    pallas: bool
    note: str = ""
    grid: tuple[int, ...] = ()
    vmem: int = 0
    moved: int = 0


@functools.lru_cache(maxsize=256)
def form(group: FusionGroup, vmem: int) -> Emitted:
    """The function of a group that is elementwise, a reduction, a scan or a loop: a kernel, or else what XLA makes of it."""
    try:
        return _pallas(group, [], vmem)
    except Refused as refusal:
        reason = str(refusal)
    moved, inner = hoisted(group)
    if moved:
        try:
            found = _pallas(inner, moved, vmem)
            names = ", ".join(dict.fromkeys(eqn.primitive.name for eqn in moved))
            return replace(found, note=f"XLA moves its inputs first ({names}): {reason}")
        except Refused:
            pass
    return Emitted(in_xla(group, reason), False, f"XLA compiles it: {reason}")


def in_xla(group: FusionGroup, reason: str = "") -> str:
    """The group as calls of jax.lax, which XLA compiles and fuses."""
    arrays = Arrays()
    names = [f"in{n}" for n in range(len(group.graph.invars))]
    arrays.names.update(zip(group.graph.invars, names))
    arrays.graph(group.graph)
    head = [f"def {group.name}({', '.join(names)}):"]
    if reason:
        head.append(f"    # No Pallas kernel: {reason}.")
    outputs = [arrays.operand(v) for v in results(group)]
    return "\n".join([*_comments(group), *head, *arrays.lines, f"    return {_listed(outputs)}"])


def hoisted(group: FusionGroup) -> tuple[list[Eqn], FusionGroup]:
    """Movement of the group's inputs that XLA can do before the kernel, and the group without it."""
    known: set[Var] = set(group.graph.invars)
    moved = []
    for eqn in group.graph.eqns:
        movement = eqn.primitive.fusion is Fusion.MOVEMENT and eqn.primitive.name not in SPREADING
        if movement and all(v in known for v in eqn.operands()) and any(True for _ in eqn.operands()):
            moved.append(eqn)
            known.update(eqn.outvars)
    rest = tuple(eqn for eqn in group.graph.eqns if eqn not in moved)
    if not any(eqn.primitive.fusion is not Fusion.MOVEMENT and eqn.primitive.name != "copy" for eqn in rest):
        return [], group  # nothing would be left but a copy
    needed = dict.fromkeys(v for eqn in rest for v in eqn.operands() if v in known)
    return moved, replace(group, graph=replace(group.graph, invars=tuple(needed), eqns=rest))


def _pallas(group: FusionGroup, moved: list[Eqn], vmem: int) -> Emitted:
    """The kernel of a group, behind the movement of its inputs."""
    if any(v.aval.dtype == KEY for eqn in group.graph.eqns for v in (*eqn.invars, *eqn.outvars)):
        raise Refused("random keys are pairs of words, which registers have no type for")
    kernel = lower_loop(group) if group.kind is Kind.LOOP else lower(group)
    if not kernel.rows and not kernel.cols:
        raise Refused("it computes single numbers")
    if any(node.op == "lane" for node in kernel.nodes):
        raise Refused("its lanes read each other's values")
    tiling = Tiling(kernel, vmem)
    backwards = any(node.op == "scan" and node.attr.reverse for node in kernel.nodes)
    count = phases(kernel.stages) if tiling.cut_columns else 1
    windows = Windows(tiling, grid_of(tiling, count, backwards), backwards)
    writer: Looped | Rows = (Looped if kernel.loop is not None else Rows)(kernel, tiling, windows)
    writer.write()
    text = _function(group, moved, kernel, writer)
    bytes_moved = sum(windows.moved(w) for w in (*windows.inputs, *windows.outputs))
    return Emitted(text, True, "", windows.grid.extents, tiling.used(), bytes_moved)


def _function(group: FusionGroup, moved: list[Eqn], kernel: Kernel, writer: Looped | Rows) -> str:
    """The text around a kernel's body: arguments as windows want them, the call, and results in their own shape."""
    windows, tiling = writer.windows, writer.tiling
    own = [f"in{n}" for n in range(len(kernel.params) - sum(p.out for p in kernel.params))]
    arrays = Arrays()
    first: list[str] = []
    if moved:
        outer = dict.fromkeys(v for eqn in moved for v in eqn.operands())
        made = {v for eqn in moved for v in eqn.outvars}
        given = [v for v in dict.fromkeys([*group.graph.invars, *outer]) if v not in made]
        arrays.names.update((v, f"array{n}") for n, v in enumerate(given))
        for eqn in moved:
            arrays.eqn(eqn)
        first = [*arrays.lines, *(f"    {n} = {arrays.names[v]}" for n, v in zip(own, group.graph.invars))]
        own = [f"array{n}" for n in range(len(given))]
    body = [
        f"    def kernel({', '.join([*(w.name for w in windows.inputs), *(w.name for w in windows.outputs), *(s.split(':')[0] for s in writer.scratch)])}):"
    ]
    order = sorted(windows.outputs, key=lambda w: w.param)
    call = ["    results = pl.pallas_call(", "        kernel,", f"        grid={windows.grid.extents},"]
    call += ["        in_specs=[", *(f"            {_spec(w, writer)}," for w in windows.inputs), "        ],"]
    call += ["        out_specs=[", *(f"            {windows.spec(w)}," for w in windows.outputs), "        ],"]
    shapes = [f"jax.ShapeDtypeStruct({_shape(w, kernel)}, {_memory(w, kernel)})" for w in windows.outputs]
    call += ["        out_shape=[", *(f"            {text}," for text in shapes), "        ],"]
    if writer.scratch:
        call.append(f"        scratch_shapes=[{', '.join(s.split(': ', 1)[1] for s in writer.scratch)}],")
    semantics = tuple(
        "parallel" if axis is not None and axis in kernel.rows and _shared(axis, windows) else "arbitrary"
        for axis in windows.grid.axes
    )
    limit = min(max(2 * tiling.used(), 16 << 20), MOST_VMEM)
    call.append(
        f"        compiler_params=pltpu.CompilerParams(dimension_semantics={semantics}, vmem_limit_bytes={limit}),"
    )
    flops, dear = _cost(kernel, tiling)
    moved_bytes = sum(windows.moved(w) for w in (*windows.inputs, *windows.outputs))
    call.append(
        f"        cost_estimate=pl.CostEstimate(flops={flops}, transcendentals={dear}, bytes_accessed={moved_bytes}),"
    )
    call += [
        "        interpret=INTERPRET,",
        f'        name="{group.name}",',
        f"    )({', '.join(_argument(w, kernel) for w in windows.inputs)})",
    ]
    outputs = [_result(windows.outputs.index(w), w, kernel) for w in order]
    head = f"def {group.name}({', '.join(own)}):"
    return "\n".join(
        [*_comments(group), head, *first, *body, *writer.body(), "", *call, f"    return {_listed(outputs)}"]
    )


def _shared(axis: object, windows: Windows) -> bool:
    """Whether programs along a dimension of the grid write different blocks, so that their order does not matter."""
    return all(axis in w.axes for w in windows.outputs)


def _spec(window: Window, writer: Looped | Rows) -> str:
    if not writer.kernel.params[window.param].shape:
        return "pl.BlockSpec(memory_space=pltpu.SMEM)"
    return writer.windows.spec(window)


def _argument(window: Window, kernel: Kernel) -> str:
    """An array as its window wants it: bools as bytes, and single numbers widened, as matrices of one."""
    param = kernel.params[window.param]
    if not param.shape:
        wide = "jnp.int32" if param.dtype == BOOL else spell.storage(spell.local(param.dtype))
        return f"{param.name}.astype({wide}).reshape(1, 1)"
    return f"{param.name}.astype(jnp.int8)" if param.dtype == BOOL else param.name


def _shape(window: Window, kernel: Kernel) -> tuple[int, ...]:
    return kernel.params[window.param].shape or (1, 1)


def _memory(window: Window, kernel: Kernel) -> str:
    dtype = kernel.params[window.param].dtype
    return "jnp.int8" if dtype == BOOL else spell.storage(dtype)


def _result(number: int, window: Window, kernel: Kernel) -> str:
    param = kernel.params[window.param]
    text = f"results[{number}]" + ("" if param.shape else ".reshape(())")
    return f"{text} != 0" if param.dtype == BOOL else text


def _cost(kernel: Kernel, tiling: Tiling) -> tuple[int, int]:
    """Operations of one run, and how many of them are transcendental functions."""
    total = functools.reduce(lambda n, axis: n * axis.extent, tiling.order, 1)
    times = kernel.loop.time.extent if kernel.loop is not None and kernel.loop.time is not None else 1
    plain = sum(node.op not in ("const", "load", "index") for node in kernel.nodes)
    dear = sum(COSTS.get(node.op, 1) >= 10 for node in kernel.nodes)
    return plain * total * times, dear * total * times


def _comments(group: FusionGroup) -> list[str]:
    """The user's lines that the group comes from."""
    return [f"# {line}" for line in list(dict.fromkeys(str(s) for s in group.sources if s.file))[:12]]


def _listed(texts: list[str]) -> str:
    return f"[{', '.join(texts)}]"
