"""The C backend's six names: limits, supports, emit, load, library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.backends.base import Host, KernelFunction, KernelSource, Loaded
from fuser.backends.c import product, spell
from fuser.backends.c.bundle import emit_bundle
from fuser.backends.c.control import INCLUDES, emit_control, product_blocker, with_addresses
from fuser.backends.c.emit import emit_kernel
from fuser.backends.c.library import library
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import FLOAT8, is_complex, short_dtype
from fuser.kernel.lower import lower
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FusionGroup, FusionLimits, Kind
from fuser.runtime import toolchain
from fuser.runtime.executable import CFunction


class C(Host):
    """C on the CPU."""

    name = "c"
    platform = "cpu"
    limits = FusionLimits(
        control=True,
        dots=True,
        strided_dots=True,
        teams=True,
        bundle_parts=256,
        bundle_bytes=1 << 17,
        bundle_chains=True,
    )

    def supports(self, eqn: Eqn) -> str | None:
        if eqn.primitive.fusion is Fusion.DOT:
            return product.refusal(eqn)
        if eqn.primitive.lower is None:
            return f"{eqn.primitive.name} runs in a library"
        for var in (*eqn.invars, *eqn.outvars):
            if var.aval.dtype in FLOAT8:
                return f"{short_dtype(var.aval.dtype)} is converted by ml_dtypes"
        if eqn.outvars[0].aval.size == 0:
            return "it has no elements"
        if (
            eqn.primitive.name == "bitcast_convert_type"
            and eqn.invars[0].aval.dtype.itemsize != eqn.outvars[0].aval.dtype.itemsize
        ):
            return "the bitcast changes the number of elements"
        if is_complex(eqn.invars[0].aval.dtype if eqn.invars else eqn.outvars[0].aval.dtype):
            return _complex_reason(eqn)
        return None

    def native(self, group: FusionGroup) -> str | None:
        if group.kind is Kind.CONTRACTION:
            return product_blocker(group) if group.reason else None
        if group.kind is Kind.LIBRARY:
            return f"{group.ops[-1]} runs in NumPy"
        return group.reason or None

    def emit(self, group: FusionGroup) -> KernelSource:
        if group.kind is Kind.BUNDLE:
            return emit_bundle(group, self.emit)
        if group.kind is Kind.CONTROL:
            return emit_control(group, self.emit)
        if group.kind is Kind.CONTRACTION:
            return product.emit_product(group)
        kernel = lower_loop(group) if group.kind is Kind.LOOP else lower(group)
        text, sizes = emit_kernel(kernel)
        return KernelSource(group.name, text, "c", tuple(p.name for p in kernel.params), {"sizes": sizes})

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        if not sources:
            return Loaded(())
        text = translation_unit(sources)
        library = toolchain.compile_shared(toolchain.overridden(sources[0].name, text))
        handle = toolchain.load_shared(library.path)
        functions: tuple[KernelFunction, ...] = tuple(
            CFunction(getattr(handle, source.name), with_addresses(source.launch)) for source in sources
        )
        return Loaded(functions, library.seconds, library.cached, 0 if library.cached else len(sources))

    def library(self, group: FusionGroup) -> Callable[..., Any]:
        return library(group)


def translation_unit(sources: Sequence[KernelSource]) -> str:
    """The whole C file of a plan."""
    kernels = "\n\n".join(source.text for source in sources)
    if "floor_div(" in kernels:
        kernels = "static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }\n\n" + kernels
    if "block(local" in kernels or "(function)" in kernels:
        kernels = f"{INCLUDES}\n\n{kernels}"
    return f"{spell.header(kernels, toolchain.has_libmvec())}\n\n{kernels}\n"


def _complex_reason(eqn: Eqn) -> str | None:
    name = eqn.primitive.name
    if eqn.primitive.fusion is Fusion.SCAN or name in ("reduce_prod", "cumsum", "expm1", "log1p"):
        return f"complex {name} runs in NumPy"
    return None


BACKEND = C()
