"""How the loops of a kernel run, as data: what an emitter made, what `explain` prints, and what a user may ask for.

Each field is one transform. In what an emitter made, None stands for a transform that was not. In what a user asks for,
`fuser.jit(f, schedule=Schedule(...))`, None leaves the choice to the compiler, False or 0 forbids the transform, True asks for it wherever it
is legal, and a number asks for exactly that: what no kernel has is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

PAIRS = ("tiling", "tile")  # fields of two numbers
REDUCTIONS = ("inner", "outer", "split inner", "split outer", "rows side by side", "tree")


@dataclass(frozen=True)
class Schedule:
    """The transforms of a kernel's loops. Sizes are numbers of elements, of rows, or of what the field's line says.

    Wolf and Lam, "A loop transformation theory and an algorithm to maximize parallelism" (1991), and Allen and Kennedy,
    "Optimizing Compilers for Modern Architectures" (2001), have the transforms by these names.
    """

    vector: str | None = None  # the axis along which vector lanes run, by its name in the kernel's text
    reduction: str | None = (
        None  # one of REDUCTIONS: along the vector, across it, and either cut into chunks for threads
    )
    index_set_splitting: int | None = None  # pieces, between which tests of position have one answer each
    tiling: tuple[int, int] | None = None  # height and width of tiles, transposed in registers
    coalescing: int | None = None  # short rows that run as one loop
    staging: int | None = None  # rows that go through tiles in the core's own cache
    fission: int | None = None  # loops over each block, one for each depth of functions of maths
    strip_mining: int | None = None  # elements between two multiples of a divisor of the position
    unroll_and_jam: int | None = None  # vectors whose operations take turns
    register_tiling: int | None = None  # neighbours around the vector that share what they read
    sliding_window: int | None = None  # values that neighbours share, which run ahead of them in rows that are kept
    lane_accumulators: int | None = None  # reductions over several short rows that have an accumulator for each lane
    masking: int | None = None  # lanes of the vectors whose last one is under a mask
    superword: int | None = None  # elements of short rows, each of which is a vector
    streaming: int | None = None  # results that go to memory past the caches
    guarding: int | None = None  # reductions that rows leave out which do not read them
    blocking: int | None = None  # elements of a block that is done with before the next
    warps: int | None = None  # of a GPU program
    stages: int | None = None  # of a GPU program's pipeline
    tile: tuple[int, int] | None = None  # rows and columns of a GPU's or a TPU's program
    split_k: int | None = None  # parts of a product's contracted axis, which programs share out
    stream_k: int | None = None  # programs that share out the steps of a product's last blocks
    grid: tuple[int, ...] | None = None  # programs of one launch; a result alone
    pieces: tuple[Schedule, ...] = ()  # where pieces differ from each other; a result alone

    def __post_init__(self) -> None:
        if self.reduction not in (None, *REDUCTIONS):
            raise ValueError(
                f"a Schedule's reduction is one of {', '.join(map(repr, REDUCTIONS))}, got {self.reduction!r}"
            )

    def items(self) -> Mapping[str, Any]:
        """The fields that say something."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "pieces"}
        return {name: value for name, value in found.items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self.items() or self.pieces)

    def __str__(self) -> str:
        """`lanes along j; 3 pieces by index-set splitting; fission into 2 loops`."""
        found = [_words(name, value) for name, value in self.items().items()]
        return "; ".join([*found, *(f"[{piece}]" for piece in dict.fromkeys(self.pieces) if piece)]) or "one loop"

    def has(self, name: str, value: Any) -> bool:
        """Whether the transform was made; with this very value, unless it is True."""
        found = getattr(self, name)
        made = found is not None and (value is True or found == value)
        return made or any(piece.has(name, value) for piece in self.pieces)

    def forbids(self, name: str) -> bool:
        """Whether the transform was asked not to be made."""
        asked = getattr(self, name)
        return asked is not None and not asked


def require_values(asked: Schedule) -> None:
    """Raise ValueError where a field of what a user asks for is no value that it can have: None leaves the choice, False or 0 forbids."""
    for name, value in asked.items().items():
        if isinstance(value, bool) or value == 0 or name == "reduction":
            continue
        if name == "vector":
            kind, valid = "the name of an axis", isinstance(value, str)
        elif name in PAIRS:
            kind, valid = "two numbers", isinstance(value, tuple) and len(value) == 2 and all(map(_count, value))
        else:
            kind, valid = "a number", _count(value)
        if not valid and name != "grid":
            raise ValueError(f"a Schedule's {name} is None, False, True or {kind}, got {value!r}")


def _count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _words(name: str, value: Any) -> str:
    """A field in words; what is asked for without a number, or forbidden, by its name."""
    if isinstance(value, bool) or value == 0:
        return f"{'some' if value else 'no'} {name.replace('_', ' ')}"
    return _WORDS[name](value)


NOTHING_ASKED = Schedule()
_WORDS: Mapping[str, Callable[[Any], str]] = {
    "vector": "lanes along {}".format,
    "reduction": "reduction {}".format,
    "index_set_splitting": "{} pieces by index-set splitting".format,
    "tiling": lambda sides: f"tiles of {sides[0]} × {sides[1]}, transposed",
    "coalescing": "{} rows coalesced into one loop".format,
    "staging": "{} rows staged in tiles".format,
    "fission": "fission into {} loops".format,
    "strip_mining": "strips of {}".format,
    "unroll_and_jam": "unroll-and-jam of {} vectors".format,
    "register_tiling": "register tiles of {} neighbours".format,
    "sliding_window": "{} values kept in sliding windows".format,
    "lane_accumulators": "{} reductions with an accumulator a lane".format,
    "masking": "vectors of {} under a mask".format,
    "superword": "rows of {} as a vector each".format,
    "streaming": "streaming stores of {} results".format,
    "guarding": "{} reductions behind guards".format,
    "blocking": "blocks of {}".format,
    "warps": "{} warps".format,
    "stages": "{} pipeline stages".format,
    "split_k": "the contracted axis in {} parts".format,
    "stream_k": "the last blocks' steps shared out to {} programs".format,
    "grid": lambda sides: f"a grid of {' × '.join(map(str, sides))}",
    "tile": lambda sides: f"programs of {sides[0]} × {sides[1]}",
}
