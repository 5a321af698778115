"""A machine as data: what the cost model counts with, one worker's share of it (a core, or a device that works as one).

Figures are of the kind of machine, not probed: one program has one plan on all machines of a kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fuser.ir.scalar import COSTS


@dataclass(frozen=True)
class Level:
    """A level of memory: the bytes that it holds, and the bytes a second that come from it."""

    capacity: float
    bandwidth: float


@dataclass(frozen=True, eq=False)
class Target:
    """A worker of a machine.

    `levels`: memory from the nearest outwards, the last without end; `operations`: additions of 32-bit numbers a second, in
    vectors; `costs`: what a scalar operation takes, in such additions (1 where it is not named); `vector`: bytes of a
    vector; `registers`: vectors of values that registers hold at once; `line`: bytes that come from memory together; `allocate`: times that bytes pass which are written far away (2 where their lines are read before); `scalar`: how much longer a number alone takes than its share of a vector; `latency`: seconds from an addition
    to what needs its result; `strided`: seconds of reading or writing an element alone, apart from its neighbours;
    `gathered`: seconds an element that is read at a computed index; `prefix`: seconds an element of a prefix scan along
    memory, `scanned`: elements of a row from which it runs in vectors; `launch`: seconds of starting a kernel; `step`: of one that a loop starts, where that is less; `loop`: of starting a loop
    inside one; `combine`: of reducing a
    vector to a number; `fork`: of starting the other workers and waiting for them; `alone`: of work that one worker does by itself sooner than start the others; `tiled`: seconds an element that is read
    or written in tiles beside what lies in another order; `shuffled`: of one of 32 bits that is taken from a short row, or into one,
    in registers; `jump`: of beginning anew to read far from where the last run of
    memory ended; `products`: multiplications and additions of 32-bit numbers a second in
    products of matrices, 0 where it is not known, and `short_products` the same by dtypes that it multiplies faster; `exposed`: the share of moving or computing, whichever is shorter, that the other
    does not hide; `across`: how much longer bytes take that do not lie along the vector, even in
    tiles; `chains`: vectors that wait for their own iterations side by side; `waiting`: how much longer operations take in
    iterations that wait for each other, as vectors, `in_turn` as single numbers; `unrolled`: elements of a row that is reduced in registers, read as they lie;
    `interleaved`: strides in elements that shuffles in registers take apart; `sets`: bytes
    between addresses that share a set of the nearest cache; `scratch`: bytes of a row that a kernel keeps from one
    run over it to the next; `kept`: additions that a number takes into the rows that a kernel keeps for neighbours which share it, or out of
    them, `windowed`: elements of a row from which it has such rows; `streamed`: bytes that a kernel touches from which on caches keep little of its results, which then go past them;
    `margin`: times what a change costs by estimates
    that it has to save, as these are no better, and `least` the launches that it has to save beside; `apart`: how much longer a kernel takes by an estimate than several, from which
    it is taken apart.
    """

    levels: tuple[Level, ...]
    operations: float
    strided: float
    launch: float
    jump: float = 0
    costs: Mapping[str, float] = field(default_factory=lambda: COSTS)
    vector: int = 64
    registers: int = 28
    line: int = 64
    allocate: float = 2
    scalar: float = 1
    latency: float = 0
    gathered: float = 0
    prefix: float = 0
    scanned: int = 0
    step: float = 0
    loop: float = 0
    combine: float = 0
    fork: float = 0
    alone: float = 0
    tiled: float = 0
    shuffled: float = 0
    products: float = 0
    short_products: Mapping[str, float] = field(default_factory=dict)
    exposed: float = 0
    across: float = 2
    chains: float = 4
    waiting: float = 4
    in_turn: float = 2
    unrolled: int = 0
    interleaved: tuple[int, ...] = (2, 3, 4, 8)
    sets: int = 4096
    scratch: float = 0
    kept: float = math.inf
    windowed: int = 64
    streamed: float = math.inf
    margin: float = 1.5
    least: float = 0.5
    apart: float = 1.05

    @property
    def lanes(self) -> int:
        """Numbers of 32 bits in a vector."""
        return self.vector // 4

    def move(self, size: float) -> float:
        """Seconds in which so many bytes pass between a kernel and the nearest level that holds them."""
        return self.stream(size, size)

    def stream(self, size: float, held: float) -> float:
        """Seconds in which so many bytes pass between a kernel and the nearest level that can hold `held` bytes."""
        level = next((level for level in self.levels if held <= level.capacity), self.levels[-1])
        return size / level.bandwidth

    def compute(self, op: str, itemsize: int) -> float:
        """Seconds of a scalar operation on numbers of so many bytes, as one of a vector."""
        return self.costs.get(op, 1) * max(itemsize, 4) / 4 / self.operations


def duration(seconds: float) -> str:
    """Seconds for a person."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds / 1e-9)} ns"


def _short(number: float) -> str:
    """Two digits, and no exponent."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


# A core of a server: vectors of 64 bytes at 3 GHz, less than half of what it could add; caches of 48 kB, 1 MB and a share of 32.
CORE = Target(
    (Level(48e3, 200e9), Level(1e6, 60e9), Level(8e6, 20e9), Level(math.inf, 10e9)),
    operations=30e9,
    strided=0.5e-9,
    launch=0.3e-6,
    jump=40e-9,
)
