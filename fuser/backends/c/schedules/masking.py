"""Masking: the remainder of a short row is part of its last vector, under a mask, and no loop of its own.

A row of 30 numbers is two vectors of 16, of which the second is not full. The compiler's own remainder would compute 14 numbers
in ever shorter vectors and alone, which for functions of maths takes longer than all the rest. Where the processor has
no masks for elements of all sizes, `padded` and `within` leave the loop as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Part, Symbol, Variable, code
from fuser.backends.c.index_arithmetic import FLOOR, TRUNCATED
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, FLOATS, is_complex
from fuser.kernel.kernel import Store
from fuser.kernel.operands import computed, index_axes

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter

GATHERED = (4, 8)  # bytes of elements that a processor gathers
LONGEST = 4  # vectors of a row, beyond which the whole ones among them need no mask
REMAINDER = (
    8  # additions an element of longer rows, from which what is left over is worth a loop of its own under a mask
)
MOST_COLUMNS = 32  # vectors of columns, beyond which what is left over no longer counts
DEAR = 8  # additions an element, beyond which one number alone costs more than a mask
REDUCING = 4  # additions that taking an element into a reduction is worth
WIDE = 4  # bytes of the narrowest numbers that vectors of 512 bits have 16 of, as functions of maths have
HALVES = 2  # the compiler's own remainder has vectors of half the length, and then numbers alone

# The test is by the sign bit, since gcc would make two loops of a comparison with the loop's own counter.
HELPERS = """
#if defined __AVX512BW__ && defined __AVX512VL__
#define padded(count, lanes) (((count) + (lanes) - 1) & -(int64_t)(lanes))
#define within(i, count) (((uint32_t)(i) - (uint32_t)(count)) >> 31)
#define precedes(i, count) (((uint32_t)(i) - (uint32_t)(count)) >> 31)
#else
#define padded(count, lanes) (count)
#define within(i, count) 1
#define precedes(i, count) ((i) < (count))
#endif
static inline __attribute__((always_inline)) void *apart(void *array) { __asm__("" : "+r"(array)); return array; }
""".strip()
WITHIN = Symbol("within")
PRECEDES = Symbol("precedes")
APART = Symbol("apart")


def aliases(writer: Emitter, lanes: int) -> dict[Store, Variable]:
    """Pointers for stores that write into one array at places less than a vector apart: rows of 9 numbers that one iteration
    writes all of. The mask keeps each to its row, but a compiler sees whole vectors that overlap, and makes none."""
    vector = writer.loops.vector
    found: dict[Store, Variable] = {}
    rows: dict[tuple[object, ...], list[list[int]]] = {}  # of an array: by pointer, where it writes
    for store in writer.kernel.stores:
        place, step = store.offset.offset, 0 if vector is None else dict(store.offset.terms).get(vector, 0)
        if not step:
            continue
        pointers = rows.setdefault((store.param, store.offset.terms), [])
        near = (any(abs(place - at) < abs(step) * lanes for at in places) for places in pointers)
        number = next((n for n, overlaps in enumerate(near) if not overlaps), len(pointers))
        if number == len(pointers):
            pointers.append([])
        pointers[number].append(place)
        if number:
            param = writer.params[store.param]
            found[store] = Variable(f"{param.name}_apart{number}", param.type, True)
    return found


def padded(total: Code, lanes: int) -> Code:
    """The count of numbers in whole vectors."""
    return code(f"{{}}({{}}, {lanes})", Symbol("padded"), total)


def tested(counter: Variable, total: Part) -> tuple[Code, Code]:
    """Whether an element is there, and the number to compute with where it is not: no constant, since gcc 12 lets go of a choice of
    a load or a constant. Its masked load then leaves in a lane what a register held before, maybe a subnormal number, of which a quotient
    takes a hundred cycles."""
    return code("{}({}, {})", WITHIN, counter, total), code("(float)(int32_t){}", counter)


@contextmanager
def standing_quotients(writer: Emitter, nodes: Iterable[Scalar], stores: Iterable[Store]) -> Iterator[None]:
    """A block before which quotients of places are computed that are the same all along the vector: behind a mask they stay in the
    loop, since compilers move no division that may not happen."""
    offsets = _offsets(nodes, stores)
    if not any(isinstance(atom, Div) for offset in offsets for atom, _ in offset.terms):
        yield
        return
    writer.open()
    writer.index.standing = quotients(writer, nodes, stores)
    yield
    writer.index.standing = {}
    writer.close()


def quotients(
    writer: Emitter, nodes: Iterable[Scalar], stores: Iterable[Store], moving: Collection[Axis] = (), name: str = ""
) -> dict[Div, Code]:
    """Compute the quotients of places that neither the vector nor axes which are `moving` change."""
    inner = {writer.loops.vector, *writer.loops.absorbed, *moving}
    still = {
        atom: FLOOR if offset.divides_negative else TRUNCATED
        for offset in _offsets(nodes, stores)
        for atom, _ in offset.terms
        if isinstance(atom, Div) and not computed(atom.base) and not index_axes(atom.base) & inner
    }
    return {
        atom: code(
            writer.let("int64_t", f"quotient{name}{number}", writer.index(Affine(((atom, 1),)), "quotients", division))
        )
        for number, (atom, division) in enumerate(still.items())
    }


def _offsets(nodes: Iterable[Scalar], stores: Iterable[Store]) -> list[Affine]:
    return [*(node.attr.offset for node in nodes if node.op == "load"), *(store.offset for store in stores)]


def truths(nodes: Sequence[Scalar]) -> set[Scalar]:
    """Truth values in memory that choose, are converted or meet computed ones: there gcc vectorises bytes that are compared
    with 0, not _Bool; where they only meet each other, the reverse holds."""
    pure: set[Scalar] = set()  # made of loads alone
    for node in nodes:
        joined = node.op in ("and", "or", "xor") and all(operand in pure for operand in node.args)
        if node.dtype == BOOL and (joined or (node.op == "load" and not node.args)):
            pure.add(node)
    used: set[Scalar] = set()
    for node in reversed(nodes):
        if node.op != "reduction" and (node not in pure or node in used):
            used.update(operand for operand in node.args if operand in pure)
    return {node for node in used if node.op == "load"}


def lanes(
    writer: Emitter,
    nodes: Iterable[Scalar],
    stores: Sequence[Store],
    extent: int,
    reductions: int = 0,
    wide: bool = False,
    long: bool = False,
) -> int:
    """Numbers of a vector, where rows of `extent` elements along it take less time under masks than without; else 0.
    `wide`: the `narrow_loads` are read into 32 bits first. `long`: an element takes so many operations that compilers make no
    vectors of half the length for what is left."""
    nodes = list(nodes)
    width, narrow = _width(writer, nodes, stores)
    if not width or not 1 < extent < LONGEST * width or extent % width == 0:
        return 0
    if narrow and not (wide and narrow_loads(writer, nodes, stores)):
        return 0  # vectors are as long as the narrowest number asks, and gcc has no masked stores of tests
    if extent > width and not dense(writer, nodes):
        return 0  # compilers take strided numbers apart in registers, but not under a mask
    alone = extent % width % (width if long else width // HALVES)
    return width if alone * (_cost(nodes) + REDUCING * reductions) >= DEAR else 0


def counted(nodes: Iterable[Scalar], extent: int, lanes: int) -> bool:
    """Whether the text of a short row says how many elements it has: the compiler writes out what fits half a vector, where a
    mask costs each load (25 loads an element in rows of 4: 281 µs under a mask, 29 µs counted)."""
    return 0 < extent <= lanes // HALVES and not any(node.op in spell.LIBM for node in nodes)


def halved(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store], extent: int) -> str:
    """What the loop over a short row with bytes in it is told, so that its vectors are half as long: what is left over of a vector
    of bytes is long, and gcc makes vectors half as long once, and then takes numbers one by one."""
    sizes = _sizes(writer, nodes, stores)
    short = 1 < extent < LONGEST * TARGET.vector and extent % TARGET.vector != 0
    return f" simdlen({TARGET.vector // HALVES})" if short and min(sizes, default=4) == 1 else ""


def narrowed(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store], lanes: int) -> str:
    """What a loop over whole vectors of `lanes` numbers is told, so that those of bytes among them are no longer."""
    return f" simdlen({lanes})" if lanes and min(_sizes(writer, nodes, stores), default=WIDE) == 1 else ""


def undivided(
    writer: Emitter, nodes: Sequence[Scalar], stores: Sequence[Store], pieces: Sequence[tuple[int, Sequence[Scalar]]]
) -> bool:
    """Whether rows with functions of maths take less time whole, asking each element where it is, than in `pieces`, (elements,
    nodes), each of which is a vector at least."""
    extent = sum(count for count, _ in pieces)
    width = lanes(writer, nodes, stores, extent, wide=True)
    if not width or not dear(nodes):
        return False
    return _cost(nodes) * -(-extent // width) < sum(_cost(part) * -(-count // width) for count, part in pieces)


def narrow_loads(
    writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store], cheap: bool = False
) -> list[Scalar]:
    """The loads of less than 32 bits of a row with functions of maths, or of a `cheap` one, which are all that is so narrow in it: read
    into 32 bits first, they leave vectors as long as the other numbers ask. Else none."""
    nodes = list(nodes)
    if not (cheap or dear(nodes)) or any(writer.kernel.params[store.param].dtype.itemsize < WIDE for store in stores):
        return []
    narrow = [node for node in nodes if node.op == "load" and node.dtype.itemsize < WIDE]
    return [] if any(node.args or computed(node.attr.offset) for node in narrow) else narrow


def remainder(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store], extent: int) -> int:
    """Numbers of a vector, where what longer rows leave after their whole vectors is worth a loop under a mask; else 0.

    It does not ask how many there are, so that the text serves rows of all lengths."""
    nodes = list(nodes)
    width, narrow = _width(writer, nodes, stores)
    long = extent >= LONGEST * width
    return width if width and not narrow and long and dear(nodes) else 0


def vector(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store]) -> int:
    """Numbers of a vector, where what whole vectors leave of a row may run under a mask; else 0."""
    width, narrow = _width(writer, list(nodes), stores)
    return 0 if narrow else width


def tiled(
    writer: Emitter, nodes: Sequence[Scalar], stores: Sequence[Store], extent: int, held: Collection[Scalar | Store]
) -> int:
    """Numbers of a vector, where rows of tiles of `extent` elements run in whole vectors; else 0. What is `held` in tiles needs no mask,
    as there is room for whole vectors, and nobody reads what is computed there."""
    beside = [node for node in nodes if node not in held]
    free = [store for store in stores if store not in held]
    sizes = _sizes(writer, nodes, stores)
    width = TARGET.vector // max(min(sizes, default=WIDE), HALVES)  # bytes: halves of their vectors
    whole = TARGET.vector // WIDE  # what gcc's own remainder has vectors for
    if (
        extent % width == 0
        or (extent % width == width // HALVES == whole)
        or extent >= 2 * LONGEST * whole
        or writer.asked.forbids("masking")
    ):
        return 0
    narrow = min(_sizes(writer, beside, free), default=WIDE) < WIDE
    return width if not narrow and hides(writer, nodes) and _plain(writer, beside, free) else 0


def across(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store], extent: int) -> int:
    """Numbers of a vector, where columns that are reduced side by side run in whole vectors under a mask, which all rows
    that are taken together share; else 0. Where each row is written anew, this is worth its functions of maths alone."""
    nodes = list(nodes)
    if any(sweep.stores for sweep in writer.kernel.sweeps) and not dear(nodes):
        return 0
    width, narrow = _width(writer, nodes, stores)
    if not width or narrow or extent % (width // HALVES) == 0 or not dense(writer, writer.kernel.nodes):
        return 0  # or compilers take what is left in one vector of half the length
    return width if LONGEST * width <= extent < MOST_COLUMNS * width else 0


def _sizes(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store]) -> list[int]:
    """Bytes of the elements that are read and written."""
    params = writer.kernel.params
    read = [WIDE if n in writer.widened else n.dtype.itemsize for n in nodes if n.op == "load"]
    return read + [WIDE if s in writer.narrowed else params[s.param].dtype.itemsize for s in stores]


def _width(writer: Emitter, nodes: Sequence[Scalar], stores: Sequence[Store]) -> tuple[int, bool]:
    """Numbers of a vector, 0 where there may be no mask; and whether there are some of less than 32 bits."""
    axis, sizes = writer.loops.vector, _sizes(writer, nodes, stores)
    if axis is None or not sizes or writer.asked.forbids("masking") or not hides(writer, nodes):
        return 0, False
    if not _plain(writer, nodes, stores):
        return 0, False  # the compiler has no vectors of masked elements that lie apart, or backwards
    return TARGET.vector // max(min(sizes), WIDE), min(sizes) < WIDE


def _plain(writer: Emitter, nodes: Sequence[Scalar], stores: Sequence[Store]) -> bool:
    """Whether all that is read and written along the vector lies side by side."""
    axis = writer.loops.vector
    written = all(axis and s.offset.coefficient(axis) in (0, 1) and not computed(s.offset) for s in stores)
    return written and dense(writer, nodes)


def dear(nodes: Iterable[Scalar]) -> bool:
    """Whether functions of maths are among the nodes."""
    return any(TARGET.costs.get(node.op, 1) >= REMAINDER for node in nodes)


def laborious(nodes: Sequence[Scalar]) -> bool:
    """Whether functions of maths take so much of each element's time that compilers, which have no vectors of half the length for so
    many, lose more with what is left than a mask costs the loads."""
    functions = sum(cost for node in nodes if (cost := TARGET.costs.get(node.op, 1)) >= REMAINDER)
    return functions >= REMAINDER * max(sum(node.op == "load" for node in nodes), 1)


def _cost(nodes: Iterable[Scalar]) -> float:
    """Additions an element."""
    return sum(TARGET.costs.get(node.op, 1) for node in nodes if node.op not in ("load", "const", "index"))


def dense(writer: Emitter, nodes: Iterable[Scalar]) -> bool:
    """Whether all that is read along the vector lies side by side."""
    axis = writer.loops.vector
    return all(axis is not None and n.attr.offset.coefficient(axis) in (0, 1) for n in nodes if n.op == "load")


def hides(writer: Emitter, nodes: Iterable[Scalar]) -> bool:
    """Whether a mask may hide elements along the vector: none of them is read in a way that has no masked form, or goes wrong."""
    return all(_maskable(writer, node) for node in nodes)


def apart(writer: Emitter, nodes: Iterable[Scalar], stores: Sequence[Store]) -> bool:
    """Whether what is left of a row after its whole vectors may run under a mask: gcc has no masked stores of tests, and vectors of
    the narrowest numbers."""
    nodes = list(nodes)
    return min(_sizes(writer, nodes, stores), default=WIDE) >= WIDE and hides(writer, nodes) and dense(writer, nodes)


def _maskable(writer: Emitter, node: Scalar) -> bool:
    """Whether an operation has a form in vectors, and may be computed of what a mask hides."""
    dtype = node.args[-1].dtype if node.args else node.dtype
    if is_complex(dtype) or is_complex(node.dtype) or FLOATS[0] in (node.dtype, dtype):
        return False
    if node.op in ("div", "rem", "pow") and dtype.kind in "iu":
        return False
    vector = writer.loops.vector
    assert vector is not None
    if node.op == "load":
        if any(writer.follows(value, vector) for value in computed(node.attr.offset)):
            return not node.args and node.dtype.itemsize in GATHERED
        return not node.args or node.attr.offset.coefficient(vector) == 1
    if node.op == "scan":
        return vector in writer.loops.parallel  # across rows, each column for itself
    return node.op != "rem" and (node.op not in spell.LIBM or dtype.kind == "f")
