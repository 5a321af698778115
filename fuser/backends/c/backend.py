"""The C backend's six names: limits, supports, emit, load, library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.backends.base import Host, KernelSource, Loaded, Stepwise
from fuser.backends.c import calls, interrupt, judge, product, spell, tiles, units
from fuser.backends.c.bundle import emit_bundle
from fuser.backends.c.control import INCLUDES, emit_control
from fuser.backends.c.emit import emit_kernel
from fuser.backends.c.library import library
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import FLOAT8, is_complex, short_dtype
from fuser.kernel.lower import lower
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FusionGroup, FusionLimits, Kind
from fuser.runtime import toolchain


class C(Host, Stepwise):
    """C on the CPU."""

    name = "c"
    platform = "cpu"
    limits = FusionLimits(
        control=True,
        dots=True,
        strided_dots=True,
        names_in_text=True,
        patch_bytes=product.NEAR,
        teams=True,
        arena=True,
        calls=calls.CALLS,
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
            return "the product runs in NumPy" if group.reason else None
        if group.kind is Kind.LIBRARY:
            return calls.call_blocker(group)
        return group.reason or None

    def emit(self, group: FusionGroup, threads: bool = True) -> KernelSource:
        """The group's function; without `threads` it runs on the thread that calls it and never starts a team."""
        if group.kind is Kind.BUNDLE:
            return emit_bundle(group, self.emit)
        if group.kind is Kind.CONTROL:
            return emit_control(group, lambda inner, several: self.emit(inner, threads and several))
        if group.kind is Kind.CONTRACTION:
            return product.emit_product(group)
        if group.kind is Kind.LIBRARY:
            return calls.emit_call(group)
        kernel = lower_loop(group) if group.kind is Kind.LOOP else lower(group)
        text, launch = emit_kernel(kernel, threads)
        return KernelSource(group.name, text, "c", tuple(p.name for p in kernel.params), launch)

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        return units.load(sources, translation_unit)

    def library(self, group: FusionGroup) -> Callable[..., Any]:
        return library(group)


def translation_unit(text: str) -> str:
    """A C file of these kernels and loops: with what they include, declare and call."""
    if "team_size()" in text:
        text = f"{judge.HELPERS}\n\n{text}"
    if "fuser_threads" in text:
        text = f"{toolchain.THREADS}\n\n{text}"
    if "floor_div(" in text:
        text = "static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }\n\n" + text
    if "block_at" in text or "(function)" in text:
        text = f"{INCLUDES}\n\n{text}"
    if interrupt.interruptible(text):
        text = f"{interrupt.HELPERS}\n\n{text}"
    if transposing := tiles.helpers(text):
        text = f"{transposing}\n\n{text}"
    return f"{spell.header(text)}\n\n{text}\n"


def _complex_reason(eqn: Eqn) -> str | None:
    name = eqn.primitive.name
    if eqn.primitive.fusion is Fusion.SCAN or name in ("reduce_prod", "cumsum", "expm1", "log1p"):
        return f"complex {name} runs in NumPy"
    return None


BACKEND = C()
