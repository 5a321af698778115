"""Places in a device program's memory: an entry of its table of addresses, and bytes after it.

Both are settled late: the number of an entry when all are known, the place of a temporary when the block that holds them
is packed. Operations keep the objects and read the numbers when they are handed to the native core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fuser.partition.buffers import Block, pack

ALIGNMENT = 16  # bytes: what kernels with wide accesses, and cuBLASLt's, want of addresses
APART = 256  # bytes: where temporaries begin, of which some are workspaces of cuBLASLt's


class Entry:
    """One entry of the table."""

    number = -1


@dataclass
class Place:
    """Where an array lies: so many bytes after an entry's address, or after another place. Aligned ones are at multiples of
    ALIGNMENT bytes."""

    entry: Entry
    offset: int = 0
    base: Place | None = None
    aligned: bool = True

    def settled(self) -> tuple[int, int]:
        """As the native core takes it."""
        return self.entry.number, self.offset + (self.base.settled()[1] if self.base is not None else 0)

    def after(self, nbytes: int) -> Place:
        """The place so many bytes further."""
        return Place(self.entry, nbytes, self, self.aligned and nbytes % ALIGNMENT == 0) if nbytes else self


@dataclass
class Scratch:
    """The block of temporaries of one scope: each is needed from a step to a step."""

    entry: Entry = field(default_factory=Entry)
    blocks: list[tuple[Place, Block]] = field(default_factory=list)

    def take(self, nbytes: int, first: int, last: int) -> Place:
        """The place of a temporary, a multiple of APART bytes."""
        place = Place(self.entry)
        self.blocks.append((place, Block(first, last, -(-nbytes // APART) * APART)))
        return place

    def packed(self) -> int:
        """The bytes of the block, with each temporary at its place."""
        if not self.blocks:
            return 0
        offsets, size = pack([block for _, block in self.blocks])
        for (place, _), offset in zip(self.blocks, offsets, strict=True):
            place.offset = offset
        return size


def numbered(entries: Sequence[Entry]) -> int:
    """Number the entries; gives how many there are."""
    for number, entry in enumerate(entries):
        entry.number = number
    return len(entries)
