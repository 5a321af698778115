"""Row buffers of 16-bit numbers in registers stay 16 bits, two elements a register, so that twice as many rows fit.

Computed in float32, such numbers would stay in a register each between two reductions: assemblers keep what has been widened rather than widen again.
So numbers are rounded before what waits for all threads, and each sweep widens by another instruction than the one before.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.triton.half_precision import by_pairs
from fuser.ir.scalar import Scalar
from fuser.ir.types import bfloat16
from fuser.kernel.kernel import Sweep
from fuser.kernel.operands import operands

_FORMS = (
    ("0x1044", "0x3244", "$2, 0"),
    ("0x5400", "0x7600", "0, $2"),
)  # bytes of a word and of zeros, as PRMT selects them


def _again(number: int) -> str:
    low, high, words = _FORMS[number]
    assembly = f"prmt.b32 $0, {words}, {low}; prmt.b32 $1, {words}, {high};"
    about = "A kept bfloat16 as a float32, by an instruction of its own."
    return by_pairs(f"widened_again_{number}", about, assembly, "=r,=r,r", "x.to(tl.float32)", pure=False)


HELPERS: dict[str, str] = {
    "kept_bfloat16": by_pairs(
        "kept_bfloat16",
        "The nearest bfloat16, made where it is written.",
        "cvt.rn.bf16x2.f32 $0, $2, $1;",
        "=r,r,r",
        "x.to(tl.bfloat16)",
        "bfloat16",
        pure=False,
    ),
    **{f"widened_again_{number}": _again(number) for number in range(len(_FORMS))},
}


def widened(kept: str, stage: int) -> str:
    """The text of a kept number in float32, in a later stage."""
    return f"widened_again_{stage % len(_FORMS)}({kept}, PTX)"


Stage = tuple[Sequence[Scalar], Sequence[Scalar]]  # nodes in order, and what else it reads: for stores and reductions


class HalfRowBuffers:
    """Of each stage of a row's program the bfloat16 numbers of elements that it reads of earlier ones; of none where a stage reads others, or there
    are no stages. `names` are those of what is kept so far."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = _kept(stages)
        self.nodes = frozenset[Scalar]().union(*self.stages)
        self.names: set[str] = set()

    def of(self, stage: int) -> Sequence[Scalar]:
        return self.stages[stage] if stage < len(self.stages) else ()


def sweep_stage(sweep: Sweep) -> Stage:
    """A whole sweep as one stage."""
    return sweep.body, (*(f.args[0] for f in sweep.reductions), *(s.value for s in sweep.stores))


def _kept(stages: Sequence[Stage]) -> tuple[tuple[Scalar, ...], ...]:
    defined: dict[Scalar, None] = {}
    found = []
    for nodes, roots in stages:
        read = {operand for node in nodes if node not in defined for operand in operands(node)} | set(roots)
        read = {uncast(node) for node in read & defined.keys()}
        if any(node.dtype != bfloat16 for node in read):
            return ()
        found.append(tuple(node for node in dict.fromkeys(map(uncast, defined)) if node in read))
        defined |= dict.fromkeys(node for node in nodes if node.op not in ("const", "index"))
    return tuple(found) if any(found) else ()


def uncast(node: Scalar) -> Scalar:
    """The number before conversions that change nothing of it: of bfloat16 to wider floats."""
    while node.op == "cast" and node.dtype.kind == "f" and node.args[0].dtype == bfloat16 and node.dtype.itemsize > 2:
        (node,) = node.args
    return node
