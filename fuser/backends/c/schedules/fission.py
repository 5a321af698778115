"""Fission of an elementwise loop: one for each depth of functions over a block that stays in the core's own cache.

A chain of several functions of maths in one loop is longer than what a processor looks ahead, so that it waits for each
result. Loops of their own let it work on many elements at once. Values go from one to the next in arrays of a block.
So do elements that are read backwards beside numbers of another size, or in steps: gcc has vectors of one size alone for those.
Elements at computed indices are read one by one in a loop without vectors: the processors' instruction for vectors of them takes
up to four times as long where its microcode guards against speculation, and no less time elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Element, Part, code
from fuser.backends.c.schedules import masking
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, FLOATS, is_complex
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_of, operands, own_axes

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise
    from fuser.backends.c.schedules.piece import Piece

BLOCK = 1024  # elements of a block
BLOCK_BYTES = 1 << 14  # of the arrays between the loops
SHORT = 128  # elements along the vector for which several loops do not pay
TILED = 16  # in tiles, whose rows lie in the cache
GROUP, GROUPED_OPS = 8, 8  # elements of a group that are read one by one, and the operations up to which groups pay
ALONE = '__asm__ volatile ("");'  # which no vector loop has


def runs(kernel: Kernel, loops: Loops, least: int = SHORT) -> list[list[Scalar]]:
    """The nodes by the loop that computes them: several where a function's result goes into another function, or elements are
    read backwards or at computed indices, along a vector of at least so many elements; else none."""
    row = kernel.sweeps[0].row
    if loops.vector is None or loops.extents[loops.vector] < least or any(is_complex(n.dtype) for n in row):
        return []
    found = stages(row, backwards(kernel, loops.vector), gathers(row, loops.vector))
    return found if len(found) > 1 else []


def write(
    writer: Elementwise,
    piece: Piece,
    room: int,
    total: Part,
    element: Callable[[Part], object],
    nodes: Sequence[Scalar] | None = None,
    lanes: int = 0,
) -> None:
    """The loops over a block of `total` elements, at most `room`, in whole vectors of `lanes` numbers if there are any. `element` defines the axes where the counter stands. A result
    is stored by the loop that computes it, unless a later one may read that memory, and read from there. `nodes`: those that
    are not there yet."""
    nodes = [node for node in (piece.nodes if nodes is None else nodes) if node not in writer.env]
    loops = _loops(piece, nodes)
    longest = writer.loops.extents[writer.vector] if piece.tiling else room
    if piece.tiling and piece.strip_mining:
        longest = min(longest, piece.strip_mining.length)
    cheap = dict.fromkeys(node for node in nodes if _again(piece, node))
    stored = _stored(writer, piece, loops, cheap)
    between = _between(piece, loops, cheap, stored)
    early = [store for store in stored if stored[store] < len(loops) - 1]
    kept = {store.value: store for store in early if _dense(writer, store)}
    held = [node for node in between if node not in kept]
    for node in held:
        kind = spell.storage(node.dtype) if _as_stored(piece, node) else spell.held(node.dtype)
        writer.buffer(kind, f"{writer.name(node)}_block", room)
    with writer.scope():
        for number, run in enumerate(loops):
            leaving = [store for store in piece.stores if stored[store] == number]
            if not leaving and not any(node in held for node in run):
                continue
            single = bool(run) and run[0] in piece.single
            wanted = {v for store in leaving for v in (store.value, *computed(store.offset))}

            def compute(x: Part, run: Sequence[Scalar] = run, wanted: Collection[Scalar] = wanted) -> None:
                element(x)
                _run(writer, piece, run, held, cheap, wanted)

            def leave(leaving: Sequence[Store] = leaving) -> None:
                for store in leaving:
                    writer.leave(store)
                    if kept.get(store.value) is store:
                        writer.env[store.value] = writer.target(store)

            if single:
                grouped = len(run) <= GROUPED_OPS and not any(computed(store.offset) for store in leaving)
                _one_by_one(writer, total, element, leaving if grouped else None, compute, leave)
                continue
            row = min(room, longest)
            told = masking.narrowed(writer, run, leaving, lanes) or masking.halved(writer, run, leaving, row)
            writer.pragma("omp simd" + told)
            compute(writer.count_masked("x", total, lanes) if lanes else writer.count("x", "0", total))
            leave()
            writer.close_masked()


def _one_by_one(
    writer: Elementwise,
    total: Part,
    element: Callable[[Part], object],
    grouped: Sequence[Store] | None,
    compute: Callable[[Part], None],
    leave: Callable[[], None],
) -> None:
    """A loop whose elements are read one by one. In groups, which what the stores `grouped` leave waits for, compilers write the
    loads out and store what they read as a vector: a jump and a store for each load take as long as the load."""
    begin: Part = "0"
    writer.open()
    if grouped is not None:
        begin = writer.let("int64_t", "whole", f"{{}} / {GROUP} * {GROUP}", total)
        saved = dict(writer.env)
        values = dict.fromkeys(store.value for store in grouped)
        group = writer.count("group", "0", begin, f"{{}} += {GROUP}")
        writer.do(ALONE)
        end = code(f"{{}} + {GROUP}", group)
        taken = {v: writer.buffer(spell.held(v.dtype), f"{writer.name(v)}_taken", GROUP) for v in values}
        x = writer.count("x", group, end)
        compute(x)
        places = {v: writer.at(taken[v], code("{} - {}", x, group)) for v in values}
        for value, place in places.items():
            writer.set(place, spell.put(value.dtype, writer.operand(value)))
        writer.close()
        if grouped:
            element(writer.count("x", group, end))
            for value, place in places.items():
                writer.env[value] = code("({} != 0)", place) if value.dtype == BOOL else place
            leave()
            writer.close()
        writer.close()
        writer.env = saved
    x = writer.count("x", begin, total)
    writer.do(ALONE)
    compute(x)
    leave()
    writer.close_masked()
    writer.close()


def block_of(piece: Piece) -> int:
    """Elements of a block, so that the arrays between the loops stay in the core's own cache."""
    held = _between(piece, piece.fission, [node for node in piece.nodes if _again(piece, node)], {})
    size = sum(4 if n.dtype == BOOL else max(n.dtype.itemsize, 4) for n in held)
    return next((b for b in (BLOCK, BLOCK // 2, BLOCK // 4) if b * size <= BLOCK_BYTES), BLOCK // 8)


def _loops(piece: Piece, nodes: Sequence[Scalar]) -> list[list[Scalar]]:
    """What each loop computes of these nodes; one loop at least, which stores."""
    among = set(nodes)
    if not piece.fission:
        return [list(nodes)]
    return [run for stage in piece.fission if (run := [node for node in stage if node in among])] or [[]]


def _again(piece: Piece, node: Scalar) -> bool:
    """Whether a node is computed again rather than held, wherever it is read."""
    return _cheap(node) and node not in piece.alone


def _between(
    piece: Piece, loops: Sequence[Sequence[Scalar]], cheap: Collection[Scalar], stored: Mapping[Store, int]
) -> list[Scalar]:
    """What later loops read, but for what costs no more to compute again. `stored`: the loops of stores that are not of the last."""
    number = _numbers(loops)
    read: set[Scalar] = set()
    for node, at in _reads(piece, loops, cheap, stored):
        if node not in cheap and number.get(node, at) < at:
            read.add(node)
    return [node for node in number if node in read and node.op != "const"]


def _numbers(loops: Sequence[Sequence[Scalar]]) -> dict[Scalar, int]:
    """The loop that computes each node."""
    return {node: number for number, run in enumerate(loops) for node in run}


def _reads(
    piece: Piece, loops: Sequence[Sequence[Scalar]], cheap: Collection[Scalar], stored: Mapping[Store, int]
) -> set[tuple[Scalar, int]]:
    """The nodes that are read, each with the loops that read it; what is cheap is computed there, and reads what it needs."""
    last = len(loops) - 1
    needed = [(o, at) for node, at in _numbers(loops).items() if node not in cheap for o in operands(node)]
    needed += [(v, stored.get(s, last)) for s in piece.stores for v in (s.value, *computed(s.offset))]
    found: set[tuple[Scalar, int]] = set()
    while needed:
        read = needed.pop()
        if read not in found:
            found.add(read)
            node, at = read
            needed += [(o, at) for o in operands(node)] if node in cheap else []
    return found


def _stored(
    writer: Elementwise, piece: Piece, loops: Sequence[Sequence[Scalar]], cheap: Collection[Scalar]
) -> dict[Store, int]:
    """The loop of each store: the one that computes its value where no later one reads an array that may be the same memory
    at the same element; else the last."""
    number, last = _numbers(loops), len(loops) - 1
    loads: dict[int, int] = {}  # by array, the last loop that reads it
    for node, at in {*_reads(piece, loops, cheap, {}), *number.items()}:
        if node.op == "load" and (node in cheap or number.get(node) == at):
            loads[node.attr.param] = max(loads.get(node.attr.param, 0), at)
    found = {}
    for store in piece.stores:
        at = last if store.value in cheap or computed(store.offset) else number.get(store.value, last)
        safe = all(loads.get(param, 0) <= at for param in writer.overwritten(store.param))
        found[store] = at if safe else last
    return found


def _dense(writer: Elementwise, store: Store) -> bool:
    """Whether later loops may read a stored value where it lies: one after the other, and as a block would hold it."""
    vector, offset, node = writer.loops.vector, store.offset, store.value
    param = writer.kernel.params[store.param]
    plain = store not in writer.targets and not any(isinstance(atom, Div) for atom in offset.atoms)
    same = param.dtype == node.dtype and spell.storage(param.dtype) == spell.held(node.dtype)
    return same and plain and vector is not None and offset.coefficient(vector) == 1


def _run(
    writer: Elementwise,
    piece: Piece,
    run: Sequence[Scalar],
    held: Collection[Scalar],
    cheap: Collection[Scalar],
    leaving: Collection[Scalar],
) -> None:
    """One loop's nodes, of which the values `leaving` are stored; what is cheap is computed in each loop that reads it, and in
    no other."""
    wanted = {o for node in run if node not in cheap for o in operands(node)} | {*leaving}
    for node in reversed(list(cheap)):
        wanted |= set(operands(node)) if node in wanted else set()
    for node in cheap:
        writer.env.pop(node, None)
        if node in wanted and node not in run:
            writer.define(node)
    for node in run:
        raw = node in held and node not in leaving and _as_stored(piece, node)
        if (node in wanted or node not in cheap) and not raw:
            writer.define(node)
    elements = {node: writer.at(f"{writer.name(node)}_block", writer.named("x")) for node in run if node in held}
    for node, place in elements.items():
        writer.set(
            place, _in_memory(writer, node) if _as_stored(piece, node) else spell.put(node.dtype, writer.env[node])
        )
    for node, place in elements.items():
        value = spell.load(node.dtype, place) if _as_stored(piece, node) else place
        writer.env[node] = writer.code("({} != 0)", place) if node.dtype == BOOL else value


def _in_memory(writer: Elementwise, node: Scalar) -> Element:
    """The element of a load as it lies in memory."""
    return Element(writer.params[node.attr.param], writer._offset(node.attr.param, node.attr.offset))


def _as_stored(piece: Piece, node: Scalar) -> bool:
    """Whether an element that is read one by one waits as it lies in memory: 16 bits become a number in the next loop's vectors."""
    return node in piece.single and node.op == "load" and node.dtype in FLOATS and node.dtype.itemsize < 4


def stages(
    nodes: Sequence[Scalar], alone: Collection[Scalar] = (), single: Collection[Scalar] = ()
) -> list[list[Scalar]]:
    """The nodes by the loop that computes them: one for each depth of functions of maths in functions, and one for the
    elements that are read one by one (`single`) before what needs them. Those that are to be `alone` come first."""
    stage: dict[Scalar, int] = {}  # even ones have vectors
    dear: set[Scalar] = set()  # nodes with a function in their own stage
    for node in nodes:
        before = [o for o in operands(node) if o in stage]
        at = max((stage[o] + (o in single) for o in before), default=0)
        if node in single:
            at += 1 - at % 2
        elif node.op in spell.LIBM:
            at += 2 * any(stage[o] == at and o in dear for o in before)
        if node.op in spell.LIBM or any(stage[o] == at and o in dear for o in before):
            dear.add(node)
        stage[node] = -1 if node in alone else at
    return [run for n in sorted(set(stage.values())) if (run := [node for node in nodes if stage[node] == n])]


def gathers(nodes: Sequence[Scalar], vector: Axis) -> set[Scalar]:
    """Loads whose place along the vector is computed."""
    along: set[Scalar] = set()
    for node in nodes:
        if vector in own_axes(node) or any(o in along for o in operands(node)):
            along.add(node)
    loads = [node for node in nodes if node.op == "load" and not node.args]
    return {node for node in loads if any(value in along for value in computed(node.attr.offset))}


def backwards(kernel: Kernel, vector: Axis) -> set[Scalar]:
    """Loads that run backwards along the vector in a kernel whose other arrays have elements of another size, or backwards in
    steps beside functions of maths: gcc takes neither into vectors."""
    row = kernel.sweeps[0].row
    loads = [n for n in row if n.op == "load" and vector in {atom for atom, _ in n.attr.offset.terms}]
    stored = {kernel.params[store.param].dtype.itemsize for store in kernel.sweeps[0].row_stores}
    mixed = len({n.dtype.itemsize for n in loads} | stored) > 1
    dear = any(n.op in spell.LIBM for n in row)
    steps = {n: n.attr.offset.coefficient(vector) for n in loads if _cheap(n)}
    return {n for n, step in steps.items() if (step == -1 and mixed) or (step < -1 and dear)}


def _cheap(node: Scalar) -> bool:
    """A load or an index whose place is told by the axes alone, or a wider integer of the same value."""
    if node.op == "cast" and node.dtype.kind in "iu" and node.args[0].dtype.kind in "iu":
        return node.dtype.itemsize > node.args[0].dtype.itemsize
    if node.op not in ("load", "index") or node.args:
        return False
    index = index_of(node)
    return not computed(index) and not any(isinstance(atom, Div) for atom in index.atoms)
