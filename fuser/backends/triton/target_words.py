"""Text that reads the targets of rows as words: what a negative index is, kernels know by the constant NEGATIVE."""

from __future__ import annotations

from fuser.backends.triton.emitter import Launch
from fuser.ir.graph import Eqn

NEGATIVE = {"beyond": 0, "from the end": 1, "first": 2}
BLOCK = 1024  # targets that a program converts

TEXT = '''
@triton.jit
def target_of(target, rows, NEGATIVE: tl.constexpr):
    """The row that an index means, as a word; one that is no row is not below their number."""
    target = target.to(tl.int32, bitcast=True)
    if NEGATIVE == 1:
        target = tl.where(target < 0, target + rows.to(tl.int32), target)
    if NEGATIVE == 2:
        target = tl.maximum(target, 0)
    return target.to(tl.uint32, bitcast=True)
'''

CONVERT_TEXT = """
@triton.jit(do_not_specialize=["length", "rows"])
def convert_targets(targets, words, length, rows, BLOCK: tl.constexpr, NEGATIVE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(targets + place, mask=place < length, other=0)
    tl.store(words + place, target_of(target, rows, NEGATIVE), mask=place < length)
"""


def negative(eqn: Eqn) -> int:
    """The constant for what negative indices of a combination of rows are."""
    return NEGATIVE[eqn.params.get("negative", "beyond")]


def converted(eqn: Eqn, targets: int, words: int) -> Launch:
    """What makes words of a combination's targets."""
    length, rows = eqn.invars[1].aval.size, eqn.invars[0].aval.shape[0]
    constants = {"BLOCK": BLOCK, "NEGATIVE": negative(eqn)}
    return Launch("convert_targets", (targets, words), (length, rows), constants, -(-length // BLOCK), 4)
