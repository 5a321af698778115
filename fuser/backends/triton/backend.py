"""The Triton backend: what its kernels take, their text, and how they are started."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from typing import Any

from fuser.backends.base import KernelSource, Loaded, Memory, unsupported
from fuser.backends.link import Parts, in_steps
from fuser.backends.triton import (
    attention,
    by_hand,
    eager,
    grouped_products,
    interpreter,
    radix_sort,
    scatter_kernels,
    selection,
    transfers,
    tuning,
)
from fuser.backends.triton.block_sizes import LONGEST_SUMMED_ROW
from fuser.backends.triton.device import code, products
from fuser.backends.triton.device.assembler import blocker
from fuser.backends.triton.device.library_calls import ROUTINES
from fuser.backends.triton.device.link import Linker
from fuser.backends.triton.emit import emit_kernel, emit_product
from fuser.backends.triton.horizontal import (
    FORMER_PARAMETER_BYTES,
    PARAMETER_BYTES,
    dtypes,
    horizontal,
    parts_of,
    scalars,
)
from fuser.backends.triton.launch import Launcher, module_of
from fuser.backends.triton.library import library
from fuser.backends.triton.matmul import refusal, slower_alone
from fuser.backends.triton.memory import device_name, memory, on_device
from fuser.backends.triton.product_cost import PRODUCT_TILE
from fuser.backends.triton.target import TARGET
from fuser.errors import UnsupportedError
from fuser.ir.cost import lowered, nodes
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.types import SMALL, is_complex, short_dtype
from fuser.kernel.complex_parts import split_complex, without_rule
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower
from fuser.kernel.lower_loop import lower_loop
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.ops.attention import attention_p
from fuser.ops.block_kernel import block_kernel_p
from fuser.ops.collective import axis_index_p, collective_group_p
from fuser.ops.float8 import FORMATS
from fuser.ops.grouped import grouped_matmul_p, grouped_sums_p
from fuser.ops.order import order_p
from fuser.ops.scatter_rows import scatter_rows_p
from fuser.ops.selection import select_largest_p
from fuser.partition.changed_operands import begun
from fuser.partition.group import FusionGroup, FusionLimits, Kind, Plan, Refusal, kernel_groups
from fuser.runtime.core import native
from fuser.runtime.executable import Executable

# What is a source of launches of its own, and who writes it.
CALLS: dict[Primitive, Any] = {
    block_kernel_p: by_hand,
    order_p: radix_sort,
    scatter_rows_p: scatter_kernels,
    select_largest_p: selection,
    grouped_matmul_p: grouped_products,
    grouped_sums_p: grouped_products,
    collective_group_p: transfers,
    axis_index_p: transfers,
}
HORIZONTAL_PARTS = 256  # kernels of one launch
HORIZONTAL_FORMS = 16  # kernels of one launch that are alike in nothing, each a branch in its text
HORIZONTAL_PARAMS = (
    2048  # arrays of one launch, whose addresses and sizes are parameters, of which there are 32,764 bytes
)
HORIZONTAL_BYTES = 1 << 28  # that take a hundred times as long as a launch; a kernel of more is launched alone


class Triton:
    """Triton on the GPU."""

    name = "triton"
    asked = NOTHING_ASKED
    member: transfers.Member | None = None  # the GPU of a mesh that programs are linked for
    tuning = False
    # No arena: torch's allocator reuses freed memory in the order of the stream, and lets other programs have it between steps.
    limits = FusionLimits(
        control=True,
        gemv_as_sums=True,
        dots=True,
        product_tile=PRODUCT_TILE,
        attention=True,
        column_sums=LONGEST_SUMMED_ROW,
        driven=True,
        target=TARGET,
        calls=frozenset(CALLS),
        library_calls=frozenset(ROUTINES),
        column_solves=True,
        optional_results=frozenset({order_p}),
        calls_in_place=frozenset({scatter_rows_p}),
        window_writes=True,
        horizontal_parts=HORIZONTAL_PARTS,
        horizontal_bytes=HORIZONTAL_BYTES,
        horizontal_params=HORIZONTAL_PARAMS,
        horizontal_forms=HORIZONTAL_FORMS,
        horizontal_kinds=(Kind.ELEMENTWISE,),
        concurrent_meetings=True,
    )

    @property
    def memory(self) -> Memory:
        """The device's memory by the native core; torch's tensors where the core has no driver, and in the interpreter."""
        return memory()

    def supports(self, eqn: Eqn) -> str | None:
        if eqn.primitive in CALLS:
            return CALLS[eqn.primitive].refusal(eqn)
        if eqn.primitive.fusion is Fusion.DOT:
            return attention.refusal(eqn) if eqn.primitive is attention_p else refusal(eqn)
        if (reason := unsupported(eqn, "runs in a library")) is not None:
            return reason
        for var in (*eqn.invars, *eqn.outvars):
            dtype = var.aval.dtype
            if dtype in SMALL and not (dtype in FORMATS and _of_bits(eqn)):
                return f"{short_dtype(dtype)} is converted by torch"
        if any(is_complex(v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)):
            return _complex_reason(eqn)
        return None

    def driven(self, group: FusionGroup) -> str:
        if interpreter.active() or native is None:
            return "kernels are launched from there"
        return blocker(group, self.limits, planned=True) or ""

    def emit(self, group: FusionGroup) -> KernelSource | Refusal:
        if group.kind is Kind.LIBRARY:
            return CALLS[group.graph.eqns[-1].primitive].emit(group)
        if group.kind is Kind.HORIZONTAL:
            return _horizontal(group)
        if group.kind is Kind.CONTRACTION:
            if (reason := _for_a_library(group)) is not None:
                return Refusal(reason)
            kernel, emitted = emit_product(group, self.asked)
        else:
            kernel = split_complex(lower_loop(group) if group.kind is Kind.LOOP else lower(group), whole=False)
            emitted = emit_kernel(kernel, self.asked)
        dtypes = tuple(param.dtype for param in kernel.params)
        launch = {
            "launches": emitted.launches,
            "scratch": emitted.scratch,
            "dtypes": dtypes,
            "scalars": _scalars(kernel),
            "begins_as": begun(group),
        }
        names, schedules = tuple(p.name for p in kernel.params), {group.name: emitted.schedule}
        return KernelSource(group.name, emitted.text, "triton", names, launch, schedules=schedules)

    def tuned(self, plan: Plan, sources: Sequence[KernelSource]) -> tuple[KernelSource, ...]:
        """The sources with the schedules that the device runs fastest."""
        _require_gpu()
        groups = kernel_groups(plan, self.limits)
        return tuple(tuning.tuned(self, group, source) for group, source in zip(groups, sources, strict=True))

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        start = time.perf_counter()
        _require_gpu()
        eager.install(self)
        new = sum(not module_of(source)[1] for source in sources if source.language != transfers.LANGUAGE)
        if on_device():
            return Loaded((), time.perf_counter() - start, new == 0, new)
        if any(source.language == transfers.LANGUAGE for source in sources):
            raise UnsupportedError(
                "a mesh of GPUs needs the native core, which has not opened the CUDA driver's library"
            )
        functions = tuple(Launcher(source, device_name()) for source in sources)
        return Loaded(functions, time.perf_counter() - start, new == 0, new)

    def link(self, plan: Plan, sources: Sequence[KernelSource], loaded: Loaded) -> Executable:
        if on_device():
            groups = dict(zip(kernel_groups(plan, self.limits), sources, strict=True))
            return Linker(self.memory, self.limits, library, self.member).link(plan, groups)
        return in_steps(plan, zip(sources, loaded.functions, strict=True), Parts(self.memory, self.limits, library))


def _for_a_library(group: FusionGroup) -> str | None:
    """Why a product that nothing has joined runs in a library, which reads its operands where they lie; None where it is generated."""
    eqn = group.graph.eqns[-1]
    return slower_alone(eqn) if eqn.primitive is not attention_p and products.product(group) is not None else None


def _horizontal(group: FusionGroup) -> KernelSource:
    """The kernel of several that share a launch."""
    parts = parts_of(group)
    text, made = horizontal(group, parts, _scalars, parameter_bytes())
    launch = {
        "launches": made,
        "scratch": (),
        "dtypes": dtypes(parts),
        "scalars": scalars(parts, _scalars),
        "begins_as": begun(group),
    }
    names = tuple(f"p{n}" for n in range(len(launch["dtypes"])))  # type: ignore[arg-type]
    pieces = tuple(Schedule(warps=m.warps, stages=m.stages, grid=(m.grid,)) for m in made)
    schedules = {group.name: pieces[0] if len(pieces) == 1 else Schedule(pieces=pieces)}
    return KernelSource(group.name, text, "triton", names, launch, schedules=schedules)


def parameter_bytes() -> int:
    """What the parameters of a launch may take, by the driver that is open."""
    former = native is not None and native.cuda_name() is not None and not native.cuda_conditional()
    return FORMER_PARAMETER_BYTES if former else PARAMETER_BYTES


def _scalars(kernel: Kernel) -> tuple[int, ...]:
    """Parameters that may be numbers: nothing but whole loads of rank 0 reads them."""
    guarded = {node.attr.param for node in kernel.nodes if node.op == "load" and node.args}
    others = guarded | {store.param for store in kernel.stores}
    return tuple(n for n, p in enumerate(kernel.params) if not p.shape and code.by_value(p.dtype) and n not in others)


def _complex_reason(eqn: Eqn) -> str | None:
    """Why an equation of complex numbers is not generated: its real and imaginary parts have no rule."""
    primitive = eqn.primitive
    if primitive.fusion in (Fusion.REDUCE, Fusion.SCAN):
        combined = primitive.rule("lower")(**eqn.params)[0]
        return None if combined == "sum" else f"{combined} of complex numbers is computed by torch"
    missing = without_rule(nodes(lowered(eqn))) if primitive.fusion is Fusion.ELEMENTWISE else None
    return None if missing is None else f"{missing} of complex numbers is computed by torch"


def _of_bits(eqn: Eqn) -> bool:
    """Whether an equation moves and chooses floats of 8 bits, and computes with their bits alone."""
    if eqn.primitive.fusion is Fusion.MOVEMENT:
        return True
    if eqn.primitive.fusion is not Fusion.ELEMENTWISE:
        return False
    computed = [node for node in nodes(lowered(eqn)) if node.op not in ("bitcast", "select", "input", "const")]
    return all(dtype not in SMALL for node in computed for dtype in (node.dtype, *(a.dtype for a in node.args)))


def _require_gpu() -> None:
    """UnsupportedError, with what to do, where Triton's kernels cannot run."""
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(
                f"the triton backend needs {name}, which is not installed; install fuser[gpu], or set FUSER_BACKEND=c"
            )
    import torch

    if not interpreter.active() and not on_device() and not torch.cuda.is_available():
        raise UnsupportedError(
            "the triton backend needs a GPU, and torch sees none; set FUSER_BACKEND=c, "
            "or TRITON_INTERPRET=1 to run kernels slowly in Triton's interpreter"
        )


BACKEND = Triton()
