"""Block sizes: how many rows and columns one program takes, how many warps share it, and what to tell Triton of sizes.

Whole rows have blocks of powers of two, several side by side, so that a hundred neighbouring sizes of one kernel need at most ten
compilations, and four where rows are long: two for each form, because loads and stores are only as wide as sizes allow that are
multiples of 16 bytes. All of it depends on sizes alone, so results do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuser.backends.triton.product_cost import LATENCY, START
from fuser.backends.triton.target import TARGET
from fuser.kernel.schedule import Schedule

FLAT = 1024  # elements of 4 bytes of a program that runs along one axis
FEW = 264  # programs that are too few to fill a large GPU (two on each of 132 multiprocessors)
ONE_WAVE = (
    528  # programs of 8 warps and 64 registers a thread that such a GPU runs at once: four on each multiprocessor
)
LONGEST_ROW = 16384  # reduced elements that one program holds at once
LONGEST_SUMMED_ROW = 8192  # the same, where a program keeps sums of its columns too
HELD_PIECE = 16 << 10  # bytes of a longer row that each of several programs holds: 8 to 64 KB were slower on an H100
MOST_PIECES = (
    64  # programs that hold a row together, which read each other's results; even the smallest GPU runs as many at once
)
LONGEST_COLUMN = 128  # the same, where the reduced axis is not the one along memory
SECTOR_PAIR = 64  # bytes side by side that memory hands out at once, which blocks of long columns are at least wide


@dataclass(frozen=True)
class Tile:
    """What one program takes: `rows` × `columns` elements on `warps` warps; `hints`: a variant for aligned sizes pays; `blocks`: so many
    blocks of those columns side by side; `rest`: columns of one more behind them, which holds the end of rows that are longer."""

    rows: int
    columns: int
    warps: int
    hints: bool = False
    rest: int = 0
    blocks: int = 1

    def asked(self, schedule: Schedule, least: int = 1) -> Tile:
        """The tile that a user asks for, where it has `least` columns; both sides are powers of two, as Triton's blocks are."""
        rows, columns = schedule.tile or (0, 0)
        fits = columns >= least and all(side > 0 and side & (side - 1) == 0 for side in (rows, columns))
        shaped = replace(self, rows=rows, columns=columns, rest=0, blocks=1) if fits else self
        return replace(shaped, warps=schedule.warps or self.warps)

    @property
    def size(self) -> int:
        return self.rows * self.columns


# Elements that a thread holds of whole rows. What a row costs once (steps of its reductions, barriers) is shared by as many.
_HELD = 32
_LEAST_OF_FEW = 4  # the same at least of rows too few to give each multiprocessor one
_WARPS_OF_FEW = 8  # of these: two of each scheduler took least on an H100 for rows of 1,024 and of 4,096; 4 and 16 take 1 to 20 % longer
_ROW_WARPS = (
    8  # of rows that such threads hold; longer ones take all that there are, with so few registers that two rows fit
)
MOST_WARPS = 32  # of 32 threads; 16 where warps have 64
_LONGEST_WHOLE = 64  # elements up to which a row is one block, whatever its length
_LONGEST_SHARED = 512  # elements up to which several rows share a warp


LONG_ROW = Tile(1, 4096, 8, True)  # the piece of a longer row that one step of a loop takes
LONE_ROW = Tile(1, 16384, 32, True)  # the same of rows that have a multiprocessor each
_COLUMNS = (
    (4, Tile(256, 4, 4)),
    (16, Tile(128, 16, 4)),
    (32, Tile(64, 32, 4)),
    (64, Tile(64, 64, 8)),
    (LONGEST_COLUMN, Tile(32, LONGEST_COLUMN, 8)),
)
_LONG_COLUMNS = ((32, Tile(32, 128, 8, True)),)
_LONG_COLUMN = Tile(128, 32, 8, True)
_PLANES = (  # (extent of the axis along memory up to, tile of it with the next axis)
    (4, Tile(256, 4, 4)),
    (16, Tile(64, 16, 4)),
    (1023, Tile(8, 128, 4, True)),
)
TRANSPOSED = Tile(64, 64, 8, True)


def line_tile(itemsize: int) -> Tile:
    """The tile of an elementwise kernel along one axis, its largest elements of so many bytes: 32 bytes a thread."""
    return Tile(1, FLAT * 4 // min(itemsize, 4), 4, True)


LANES = Tile(
    1, 64, 1
)  # lanes that each run a loop of their own: two a thread, and one warp, so that none waits for another


def row_tile(columns: int, rows: int = 0, held: int = 2, whole: bool = False, together: int = 4) -> Tile | None:
    """The tile that holds whole rows which lie along memory; None where they are too long.

    Rows between two powers of two have the smaller one as their block, and a second block for the rest: an eighth of the first, a quarter,
    half or all of it; in one block if they are very short, or must be `whole`. Rows of up to 1024 elements are one warp's,
    several where they are short, so that no reduction waits at a barrier. Those of up to 512 are in blocks of few threads, which read
    `together` elements each: there are five to eight blocks, so that few lanes are idle, and what they hold is reduced across few threads.
    Where a thread holds one word an element only, and there are `rows` enough to fill half a large GPU, rows may be twice as long.
    """
    if columns > (2 * LONGEST_ROW if held <= 1 and rows >= FEW // 2 else LONGEST_ROW):
        return None
    width = max(4, 1 << (columns - 1).bit_length())
    block, blocks, rest = width, 1, 0
    if columns < width and width > _LONGEST_WHOLE and not whole:
        if width <= _LONGEST_SHARED:
            block = width // 8 * max(1, together // 4)  # as many rows as a warp's threads hold, side by side
            blocks = -(-columns // block)
        else:
            block = width // 2
            rests = (block // 8, block // 4, block // 2, block)
            rest = next(part for part in rests if columns - block <= part)
            blocks, rest = (2, 0) if rest == block else (1, rest)
    filled = block if 0 < rest <= block // 4 else width
    few = 0 < rows <= FEW // 2 and width > _LONGEST_SHARED
    warps = max(1, filled // (32 * _HELD))
    if few:
        warps = max(warps, min(_WARPS_OF_FEW, filled // (32 * _LEAST_OF_FEW)))
    warps = warps if warps <= _ROW_WARPS else MOST_WARPS
    return Tile(max(1, 32 * _HELD // width), block, warps, width > 16, rest, blocks)


def column_tile(rows: int) -> Tile | None:
    """The tile that holds whole columns, with neighbours in memory side by side; None where they are too long."""
    return next((tile for limit, tile in _COLUMNS if rows <= limit), None)


def held_column_tile(rows: int, width: int, itemsize: int, held: int) -> Tile | None:
    """The tile that holds whole longer columns which are read again, `width` of them side by side in memory, of numbers of so many bytes and
    with `held` words an element kept; None where they are too long. Walked along, all columns together are more than a cache keeps from one
    sweep to the next."""
    columns = 1 << (rows - 1).bit_length()
    beside = max(SECTOR_PAIR // itemsize, min(32, LONGEST_ROW // 2 // columns))
    words = beside * columns * max(1, held)
    if rows <= LONGEST_COLUMN or width < beside or beside * columns > LONGEST_ROW or words > 2 * LONGEST_ROW:
        return None
    return Tile(beside, columns, words // (32 * _HELD), True)


def piece_tile(columns: int, itemsize: int) -> Tile | None:
    """The tile of each program that holds a piece of a long row, its largest elements of so many bytes; None where there are too many pieces."""
    held = HELD_PIECE // max(2, min(itemsize, 4))
    return None if columns > MOST_PIECES * held else Tile(1, held, max(1, held // (32 * _HELD)), True)


def long_row_tile(itemsize: int) -> Tile:
    """The piece of a longer row that one step of a loop takes, its largest elements of so many bytes: twice as many where they are of 16 bits or
    fewer, so that as many bytes are on their way as memory needs to be busy."""
    return replace(LONG_ROW, columns=LONG_ROW.columns * (2 if itemsize <= 2 else 1))


def lone(programs: int, reduced: int) -> bool:
    """Whether rows longer than a program holds are walked along by a program each, in one launch: where their steps, which wait for memory one
    after another, take no longer than those of chunks and the launch that combines these, and memory takes less than a launch."""
    shared_out = chunks(programs, reduced, LONG_ROW)
    if programs > FEW // 2 or 4 * programs * reduced > START * TARGET.levels[-1].bandwidth:
        return False
    steps = -(-reduced // LONE_ROW.columns)
    return shared_out is None or steps <= START / LATENCY + shared_out.length // LONG_ROW.columns + 1


def long_column_tile(width: int) -> Tile:
    """The piece of longer columns that one step of a loop takes, for `width` columns side by side."""
    return next((tile for limit, tile in _LONG_COLUMNS if width <= limit), _LONG_COLUMN)


def plane_tile(extent: int, itemsize: int) -> Tile:
    """The tile of an elementwise kernel over two or more axes, the innermost of this extent."""
    return next((tile for limit, tile in _PLANES if extent <= limit), line_tile(itemsize))


@dataclass(frozen=True)
class Chunks:
    """How a long reduction is shared out: `count` chunks of `length` elements, combined in one block of `block`."""

    count: int
    length: int
    block: int


def chunks(programs: int, reduced: int, tile: Tile) -> Chunks | None:
    """Chunks of the reduced axis for a kernel with that many programs; None where there are programs enough."""
    if programs >= FEW or reduced < 4 * tile.columns:
        return None
    wanted = max(2, ONE_WAVE // programs)
    length = max(-(-reduced // wanted), 2 * tile.columns)
    length = -(-length // tile.columns) * tile.columns
    count = -(-reduced // length)
    return Chunks(count, length, 32 if count <= 32 else 1024) if count > 1 else None


@dataclass(frozen=True)
class AttentionTile:
    """What a program of attention takes: `m` rows, `n` walked positions a step; of each score so many contracted features at
    once, of each sum all features."""

    m: int
    n: int
    depths: tuple[int, ...]
    features: tuple[int, ...]
    warps: int
    stages: int


# Bytes of shared memory of a program of which two run at once on a multiprocessor of an H100 or H200 (227 KB).
_HALF_OF_SHARED = 113 << 10


def attention_tile(
    rows: int, features: Sequence[int], depths: Sequence[int], itemsize: int, positions: bool = False
) -> AttentionTile:
    """The tile of attention over so many rows a head; `positions`: those of extremes of scores are kept. A warp group's product takes 64 rows at least; float32 has no such
    products, and its threads hold what they multiply.

    Measured on an H200: two programs of one warp group, whose products and exponentials overlap, are faster than one of two; but where
    one sum of one score has more than 64 features, what is walked along is read half as often by the larger program.
    """
    power = lambda extent: max(16, 1 << (extent - 1).bit_length())
    held, sums = tuple(map(power, depths)), tuple(map(power, features))
    largest = max((*held, *sums))
    if (
        not sums and itemsize <= 2 and rows > 64 and largest <= 128 and not positions
    ):  # what rows have takes few registers
        return AttentionTile(128, 128, held, (), 8, 3 if largest <= 64 else 2)
    if itemsize > 2:
        keys = 16 if rows <= 16 or len(sums) > 1 else 64 if largest <= 64 else 32
        return AttentionTile(16 if rows <= 16 else 64, keys, (16,) * len(held), sums, 4 if rows <= 16 else 8, 2)
    keys = 64 if largest <= 128 and sum(sums) < 256 else 32
    if rows <= 16:
        return AttentionTile(16, keys, held, sums, 4, 2)
    if rows > 64 and largest > 128:
        return AttentionTile(128, keys, held, sums, 8, 2)
    if rows > 64 and largest > 64 and len(held) == len(sums) == 1:
        return AttentionTile(128, keys, held, sums, 8, 3)
    walked = (
        keys * (sum(held) + (sum(sums) if len(held) == 1 else 0)) * itemsize
    )  # what gradients weigh, their scores read
    stages = 3 if 64 * sum(held) * itemsize + 3 * walked <= _HALF_OF_SHARED else 2
    return AttentionTile(64, keys, held, sums, 4, stages)


def tile_behind(rows: int, features: Sequence[int], depths: Sequence[int]) -> AttentionTile | None:
    """The tile of attention in 16 bits whose products with weights are a step behind its scores; None where that is not known to gain.

    Measured on an H200, 16,384 positions: 519 TFLOP/s of 454 with 128 features, 439 of 406 with 64, by two programs of a warp group on a
    multiprocessor; one of two reaches 496 with blocks of 128 × 128. What gradients weigh, their scores read too: two copies of it take longer.
    """
    if rows <= 64 or len(depths) != 1 or len(features) != 1 or max(*depths, *features) > 128:
        return None
    held, sums = (1 << max(4, (extent - 1).bit_length()) for extent in (*depths, *features))
    return AttentionTile(64, 64 if max(held, sums) > 64 else 128, (held,), (sums,), 4, 2)


def smaller_attention_tiles(tile: AttentionTile) -> list[AttentionTile]:
    """Tiles that need fewer registers or less shared memory, in the order in which their programs read more: first without copies
    ahead, then with fewer walked positions a step, then with fewer rows, which each read all that is walked along again."""
    found = []
    for m, warps in ((tile.m, tile.warps), (64, 8), (64, 4), (32, 4), (16, 4)):
        if m > tile.m or (m < tile.m and m >= 64 and warps > tile.warps):
            continue
        for n in (tile.n, tile.n // 2, tile.n // 4):
            found += [replace(tile, m=m, n=n, warps=warps, stages=stages) for stages in (2, 1) if n >= 16]
    return [t for t in dict.fromkeys(found) if t != tile]
