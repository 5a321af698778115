"""Updates combined at targets by atomics of whole numbers, which come to one result in whatever order they are applied.

Whole numbers are added and compared as they are. Sums of float32 and shorter are exact: a number's 24 bits are added to one of 16
words of 64 bits, each for the 16 exponents that it is named after, and are rounded once, when all words of an element are put together
(the superaccumulator of Kulisch, "Computer Arithmetic and Validity", 2008). Where elements are too many for 16 words each, the
largest exponent of an element's updates is found first, and they are added as multiples of a small part of it. Extremes of
floats are those of words in the order of the numbers; of several updates that replace an element, the last one has the largest
position. Where elements are few, they have several copies, so that programs do not wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fuser.backends.triton import radix_sort, spell, target_words
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.target import TARGET
from fuser.ir.graph import Eqn
from fuser.ir.types import is_inexact

TILE = 2048  # updates of a program
WIDEST = 64  # columns of them
CLEARED = 2048  # words that a program clears
FINISHED = 512  # elements that a program finishes where there is one copy of them
SPREAD = 1 << 14  # elements from which on one copy is enough
MOST_COPIES = 128
PLANES, WINDOW = 16, 16  # words of an exact sum, and the exponents that one of them is for
MOST_EXACT = 1 << 24  # updates whose 24 bits, 15 places up, a word of 64 bits holds
EXACT_ELEMENTS = 1 << 20  # of an operand that has 16 words each
MOST_UPDATES = 1 << 30
SECTOR = 32  # bytes that memory hands out at once
CACHED, UNCACHED = 12e-12, 56e-12  # seconds of an atomic on words in the cache, and on those in memory: an H200
IN_CACHE = 48e6  # bytes of words that atomics find in its second cache

CLEAR_TEXT = """
@triton.jit(do_not_specialize=["count"])
def clear_words(words, count, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(words + place, tl.full((BLOCK,), VALUE, words.dtype.element_ty), mask=place < count)
"""

PARTS_TEXT = '''
@triton.jit
def parts_of(x):
    """The exponent of a number, its 24 bits with its sign, and which of infinity (1), -infinity (2) and nan (4) it is."""
    bits = x.to(tl.float32).to(tl.int32, bitcast=True)
    exponent, fraction = (bits >> 23) & 255, bits & 0x7FFFFF
    whole = tl.where(exponent == 0, fraction, fraction | 0x800000)
    whole = tl.where(exponent == 255, 0, tl.where(bits < 0, -whole, whole))
    which = tl.where(fraction != 0, 4, tl.where(bits < 0, 2, 1))
    return tl.maximum(exponent, 1), whole.to(tl.int64), tl.where(exponent == 255, which, 0).to(tl.int64)


@triton.jit
def value_of(which):
    """What infinities and nans of these kinds come to."""
    nan = ((which & 4) != 0) | ((which & 3) == 3)
    bits = tl.where(nan, 0x7FC00000, tl.where(which == 1, 0x7F800000, -0x800000)).to(tl.int32)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def either(a, b):
    return a | b
'''

ORDER_TEXT = '''
@triton.jit
def order_of(x):
    """Words of BITS bits in the order of numbers; nans are the last, and none is 0."""
    bits = x.to(tl.intBITS, bitcast=True)
    word = tl.where(bits < 0, ~bits, bits ^ LOWEST)
    return tl.where(x == x, word, -1).to(tl.uintBITS, bitcast=True)


@triton.jit
def number_of(word):
    bits = word.to(tl.intBITS, bitcast=True)
    return tl.where(bits < 0, bits ^ LOWEST, ~bits).to(tl.floatBITS, bitcast=True)
'''

UPDATES_TEXT = '''
@triton.jit(do_not_specialize=["length", "width", "rows", "tiles"])
def NAME(targets, updates, WORDS, length, width, rows, tiles, NEGATIVE: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, COPIES: tl.constexpr):
    """DOES"""
    row = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)
    size = rows.to(tl.int64) * width
    copy = (tl.program_id(0) // tiles % COPIES).to(tl.int64) * size
    target = target_of(tl.load(targets + row, mask=row < length, other=0), rows, NEGATIVE).to(tl.int64)
PLACES'''

# Where updates are single numbers, and where they are rows of them.
PLACES = {
    True: """    inside = (row < length) & (target < rows)
    update = tl.load(updates + row, mask=inside, other=0)
    place = copy + target
""",
    False: """    column = (tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = ((row < length) & (target < rows))[:, None] & (column < width)
    update = tl.load(updates + row.to(tl.int64)[:, None] * width + column, mask=inside, other=0)
    place = copy + target[:, None] * width + column
""",
}

FINISH_TEXT = '''
@triton.jit(do_not_specialize=["rows", "width"])
def finish(operand, WORDS, out, rows, width, BLOCK: tl.constexpr, COPIES: tl.constexpr):
    """Each element with what its words have come to."""
    size = rows.to(tl.int64) * width
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    old = tl.load(operand + place, mask=inside, other=0)
    copies = tl.arange(0, COPIES).to(tl.int64)[:, None] * size + place[None, :]
    live = (tl.arange(0, COPIES) >= 0)[:, None] & inside[None, :]
'''

LAST_TEXT = '''
@triton.jit(do_not_specialize=["length", "rows"])
def find_last(targets, words, length, rows, NEGATIVE: tl.constexpr, BLOCK: tl.constexpr):
    """The largest number of an update of each row, counted from 1."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    target = target_of(tl.load(targets + row, mask=row < length, other=0), rows, NEGATIVE).to(tl.int64)
    tl.atomic_max(words + target, row + 1, mask=(row < length) & (target < rows), sem="relaxed")


@triton.jit(do_not_specialize=["width", "rows", "tiles"])
def take_last(operand, updates, words, out, width, rows, tiles, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)
    column = (tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    number = tl.load(words + row, mask=row < rows, other=0)[:, None]
    inside = (row < rows)[:, None] & (column < width)
    place = row.to(tl.int64)[:, None] * width + column
    old = tl.load(operand + place, mask=inside & (number == 0), other=0)
    new = tl.load(updates + (number - 1).to(tl.int64) * width + column, mask=inside & (number > 0), other=0)
    tl.store(out + place, tl.where(number > 0, new, old), mask=inside)
'''

_STORED = "    tl.store(out + place, result.to(STORED), mask=inside)\n"


def _line(*lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines)


@dataclass(frozen=True)
class Form:
    """How updates are combined: `texts` of the kernels; the dtype of `words`, of which an element has `planes`, and their first
    value; `passes` over the updates."""

    name: str
    texts: tuple[str, ...]
    words: np.dtype
    planes: int = 1
    first: int = 0
    passes: tuple[str, ...] = ("accumulate",)
    exponents: bool = False  # whether an element has a word of 32 bits besides

    @property
    def bytes(self) -> int:
        """Those of an element's words."""
        return self.planes * self.words.itemsize + 4 * self.exponents


def form_of(eqn: Eqn) -> Form | None:
    """The form of a combination whose targets may repeat; None where updates are better put in order, or have no such form."""
    (rows, width), dtype, count = eqn.invars[0].aval.shape, eqn.invars[0].aval.dtype, eqn.invars[1].aval.size
    reduction = eqn.params["reduction"]
    if reduction == "prod" or count >= MOST_UPDATES or not count * width * rows:
        return None
    if reduction == "replace":
        form = Form(reduction, (LAST_TEXT,), np.dtype("int32"), passes=("find_last",))
    elif not is_inexact(dtype):
        form = _whole(dtype, reduction)
    elif reduction != "sum":
        form = _extreme(dtype, reduction)
    elif dtype.itemsize > 4:
        return None
    elif count <= MOST_EXACT and rows * width <= EXACT_ELEMENTS:
        form = _exact()
    else:
        form = _scaled(count)
    return form if _seconds(form, rows, width, count) < ordered_seconds(eqn) else None


def least_seconds(eqn: Eqn) -> float:
    """Of a combination of rows by atomics on memory, or in the order of their targets where that takes less."""
    (rows, width), count = eqn.invars[0].aval.shape, eqn.invars[1].aval.size
    form = form_of(eqn)
    return ordered_seconds(eqn) if form is None else _seconds(form, rows, width, count)


def _seconds(form: Form, rows: int, width: int, count: int) -> float:
    """Of a combination by atomics: of each update, or of each row of them; and of the words, which are cleared and read."""
    size, updates = (rows, count) if form.name == "replace" else (rows * width, count * width)
    words = form.bytes * size
    atomic = CACHED if form.words.itemsize * size <= IN_CACHE else UNCACHED
    memory = TARGET.levels[-1].bandwidth
    moved = (2 * words + 8 * rows * width + 8 * count * width) / memory
    return (2 + len(form.passes)) * TARGET.launch + len(form.passes) * updates * atomic + moved


def ordered_seconds(eqn: Eqn) -> float:
    """Of a combination of updates in the order of their targets, which copies the operand unless it changes that."""
    (rows, width), count = eqn.invars[0].aval.shape, eqn.invars[1].aval.size
    sectors = (
        max(4 * width, SECTOR) if width > 1 else 4
    )  # of a row that is read at its position; numbers are carried along
    in_place = eqn.params.get("in_place", False)
    moved = ((0 if in_place else 8 * rows * width) + (sectors + 8 * width) * count) / TARGET.levels[-1].bandwidth
    if in_place and count <= radix_sort.SHORT:  # which one launch orders, and another one combines
        return TARGET.launch + radix_sort.row_seconds(count, count) + moved
    return 4 * TARGET.launch + radix_sort.seconds(count, radix_sort.target_bits(rows)) + moved


def _whole(dtype: np.dtype, reduction: str) -> Form:
    """Whole numbers, those of fewer than 32 bits in 32."""
    words = dtype if dtype.itemsize >= 4 else np.dtype("int32")
    first = {"sum": 0, "max": int(np.iinfo(words).min), "min": int(np.iinfo(words).max)}[reduction]
    atomic = {"sum": "add"}.get(reduction, reduction)
    kind = spell.storage(words)
    add = _line(f'tl.atomic_{atomic}(words + place, update.to({kind}), mask=inside, sem="relaxed")')
    total = f"tl.{reduction}(tl.load(words + copies, mask=live, other={first}), 0).to({kind})"
    combined = {"sum": "old + total", "max": "tl.maximum(old, total)", "min": "tl.minimum(old, total)"}[reduction]
    finish = _line(f"old, total = old.to({kind}), {total}", f"result = {combined}")
    return Form(f"whole {reduction}", (_accumulate(add), _finish(finish)), words, first=first)


def _extreme(dtype: np.dtype, reduction: str) -> Form:
    """Floats as words in their order; the least is the largest of those with the other sign."""
    bits, sign = max(32, 8 * dtype.itemsize), "-" if reduction == "min" else ""
    order = _spelt(ORDER_TEXT, {"BITS": str(bits), "LOWEST": str(-1 << (bits - 1))})
    add = _line(f'tl.atomic_max(words + place, order_of({sign}update.to(tl.float{bits})), mask=inside, sem="relaxed")')
    finish = _line(
        f"own = order_of({sign}old.to(tl.float{bits}))",
        f"result = {sign}number_of(tl.maximum(tl.max(tl.load(words + copies, mask=live, other=0), 0), own))",
    )
    return Form(f"extreme {reduction}", (order, _accumulate(add), _finish(finish)), np.dtype(f"uint{bits}"))


def _exact() -> Form:
    """Sums of floats, rounded once. The words of an element are carried upwards twice: to find the sign, then the digits of
    what has it taken away."""
    add = _line(
        "exponent, whole, which = parts_of(update)",
        "plane = COPIES * size",
        f"tl.atomic_add(words + (exponent // {WINDOW}) * plane + place, whole << (exponent % {WINDOW}).to(tl.int64), "
        'mask=inside & (whole != 0), sem="relaxed")',
        f'tl.atomic_or(words + {PLANES} * plane + place, which, mask=inside & (which != 0), sem="relaxed")',
    )
    lines = ["exponent, whole, which = parts_of(old)", "plane = COPIES * size", "old = old.to(tl.float32)"]
    lines += [f"whole = whole << (exponent % {WINDOW}).to(tl.int64)", "carry = whole * 0"]
    for n in range(PLANES):
        lines.append(f"w{n} = tl.sum(tl.load(words + {n} * plane + copies, mask=live, other=0), 0)")
        lines.append(f"w{n} += tl.where(exponent // {WINDOW} == {n}, whole, 0)")
        lines.append(f"carry = (w{n} + carry) >> {WINDOW}")
    lines += ["negative = carry < 0", "carry = whole * 0"]
    for n in range(PLANES):
        lines.append(f"d{n} = tl.where(negative, -w{n}, w{n}) + carry")
        lines.append(f"carry = d{n} >> {WINDOW}")
    lines.append("value = carry.to(tl.float64)")
    lines += [
        f"value = value * {1 << WINDOW}.0 + (d{n} & {(1 << WINDOW) - 1}).to(tl.float64)"
        for n in reversed(range(PLANES))
    ]
    lines += [
        f"value = tl.where(negative, -value, value) * {2.0**-150!r}",
        "result = tl.where((value == 0) & (old == 0), old, value.to(tl.float32))",  # what nothing is added to keeps its sign
        f"which |= tl.reduce(tl.load(words + {PLANES} * plane + copies, mask=live, other=0), 0, either)",
        "result = tl.where(which != 0, value_of(which), result)",
    ]
    texts = PARTS_TEXT, _accumulate(add), _finish(_line(*lines))
    return Form("exact sum", texts, np.dtype("int64"), PLANES + 1)


def _scaled(count: int) -> Form:
    """Sums of floats as multiples of a part of the largest number that is added to an element: of 2^-H of its last place, for which
    64 bits hold as many as there are updates."""
    headroom = 62 - 24 - count.bit_length()
    find = _line(
        "exponent, whole, which = parts_of(update)",
        "exponent = tl.where(which != 0, 255, tl.where(whole == 0, 0, exponent))",
        "known = tl.load(exponents + place, mask=inside, other=255)",
        'tl.atomic_max(exponents + place, exponent, mask=inside & (exponent > known), sem="relaxed")',
    )
    add = _line(
        "exponent, whole, which = parts_of(update)",
        "largest = tl.load(exponents + place, mask=inside, other=1)",
        "down = tl.minimum(tl.maximum(largest - exponent, 0), 62).to(tl.int64)",
        f"part = ((whole << {headroom}) + ((whole * 0 + 1 << down) >> 1)) >> down",
        'tl.atomic_add(words + place, part, mask=inside & (largest < 255) & (part != 0), sem="relaxed")',
        'tl.atomic_or(words + place, which, mask=inside & (which != 0), sem="relaxed")',
    )
    finish = _line(
        "old, word, largest = old.to(tl.float32), tl.load(words + place, mask=inside, other=0), "
        "tl.load(exponents + place, mask=inside, other=0)",
        f"unit = ((largest + {1023 - 150 - headroom}).to(tl.int64) << 52).to(tl.float64, bitcast=True)",
        "result = (old.to(tl.float64) + word.to(tl.float64) * unit).to(tl.float32)",
        "result = tl.where(largest == 255, old + value_of(word), tl.where(largest == 0, old, result))",
    )
    words = "words, exponents"
    texts = (
        PARTS_TEXT,
        _accumulate(
            find,
            "find_largest",
            words,
            "The largest exponent of what is added to each element; 255 of infinities and nans.",
        ),
        _accumulate(add, "accumulate", words),
        _finish(finish, words),
    )
    return Form("scaled sum", texts, np.dtype("int64"), passes=("find_largest", "accumulate"), exponents=True)


def _accumulate(body: str, name: str = "accumulate", words: str = "words", does: str = "Updates by atomics.") -> str:
    return UPDATES_TEXT.replace("NAME", name).replace("WORDS", words).replace("DOES", does) + body


def _finish(body: str, words: str = "words") -> str:
    return FINISH_TEXT.replace("WORDS", words) + body + _STORED


def launches(
    eqn: Eqn, form: Form, operand: int, targets: int, updates: int, out: int, buffers: radix_sort.Buffers
) -> tuple[list[str], list[Launch]]:
    """The texts, and the launches that combine the buffers' rows by a form."""
    (rows, width), dtype, length = eqn.invars[0].aval.shape, eqn.invars[0].aval.dtype, eqn.invars[1].aval.size
    spelt = {"STORED": spell.storage(dtype), "PLACES": PLACES[width == 1]}
    texts = [CLEAR_TEXT, target_words.TEXT, *(_spelt(text, spelt) for text in form.texts)]
    columns, negative = min(WIDEST, 1 << (width - 1).bit_length()), target_words.negative(eqn)
    block, tiles = TILE // columns, -(-width // columns)
    if form.name == "replace":
        last = buffers.take(rows, form.words)
        tile = {"BLOCK": block, "COLUMNS": columns}
        return texts, [
            cleared(last, rows, 0),
            Launch(
                "find_last",
                (targets, last),
                (length, rows),
                {"NEGATIVE": negative, "BLOCK": TILE},
                -(-length // TILE),
                8,
            ),
            Launch(
                "take_last", (operand, updates, last, out), (width, rows, tiles), tile, -(-rows // block) * tiles, 8
            ),
        ]
    copies = 1 if form.exponents else copies_of(rows * width, -(-length // block))
    count = form.planes * copies * rows * width
    words = [buffers.take(count, form.words)]
    made = [cleared(words[0], count, form.first)]
    if form.exponents:
        words.append(buffers.take(rows * width, np.dtype("int32")))
        made.append(cleared(words[1], rows * width, 0))
    constants = {"NEGATIVE": negative, "BLOCK": block, "COLUMNS": columns, "COPIES": copies}
    grid, sizes = -(-length // block) * tiles, (length, width, rows, tiles)
    made += [Launch(name, (targets, updates, *words), sizes, constants, grid, 8) for name in form.passes]
    finished = max(32, FINISHED // copies)
    constants = {"BLOCK": finished, "COPIES": copies}
    made.append(Launch("finish", (operand, *words, out), (rows, width), constants, -(-rows * width // finished), 4))
    return texts, made


def _spelt(text: str, words: dict[str, str]) -> str:
    for word, written in words.items():
        text = text.replace(word, written)
    return text


def cleared(words: int, count: int, value: int) -> Launch:
    """What sets so many words of a buffer to a value."""
    return Launch("clear_words", (words,), (count,), {"VALUE": value, "BLOCK": CLEARED}, -(-count // CLEARED), 4)


def copies_of(size: int, programs: int) -> int:
    """How many copies of so many elements there are: as many as spread the atomics, and no more than programs."""
    wanted = min(MOST_COPIES, max(1, SPREAD // size), max(1, programs))
    return 1 << (wanted.bit_length() - 1)
