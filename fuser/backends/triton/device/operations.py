"""The operations of a device program, and the tuples that the native core takes for them.

Kernels are compiled when the tuples are made, for which arguments are then known to be numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton.device import code
from fuser.backends.triton.device.compilation import compile_together
from fuser.backends.triton.device.places import Entry, Place
from fuser.ops.transfers import Transfer

Tuple = tuple[Any, ...]


@dataclass(frozen=True)
class Kernel:
    """The launches of one generated source, on its parameters and then its scratch arrays."""

    source: KernelSource
    places: tuple[Place, ...]

    def passing(self, numbers: Collection[Entry]) -> code.Passing:
        """How the kernel gets its buffers where entries in `numbers` are numbers."""
        values = frozenset(n for n, place in enumerate(self.places) if place.entry in numbers)
        return code.Passing(values, frozenset(n for n, place in enumerate(self.places) if not place.aligned))

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        passing = self.passing(numbers)
        made = code.compiled(self.source, passing)
        keep.append(made)
        return [self._launch(launch, passing.values) for launch in made.launches]

    def _launch(self, launch: code.CompiledLaunch, values: Collection[int]) -> Tuple:
        params: list[Tuple] = []
        for tensor_map in launch.maps:
            entry, offset = self.places[tensor_map.buffer].settled()
            params.append(("map", entry, offset + tensor_map.first, tensor_map.encoding))
            params += [(kind, 0, size) for kind, size in tensor_map.sizes]
        for number in launch.buffers:
            entry, offset = self.places[number].settled()
            params.append(("value", entry, 0) if number in values else ("address", entry, offset))
        params += [(kind, 0, size) for kind, size in launch.sizes]
        return "launch", launch.function, launch.grid, launch.threads, launch.shared, tuple(params)


@dataclass(frozen=True)
class Multiply:
    """A product by cuBLASLt."""

    product: Any
    a: Place
    b: Place
    out: Place
    workspace: Place

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        keep.append(self.product)
        return [("multiply", self.product, *(p.settled() for p in (self.a, self.b, self.out, self.workspace)))]


@dataclass(frozen=True)
class Call:
    """A call of a library's on its arrays and then its workspace."""

    call: Any
    places: tuple[Place, ...]

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        keep.append(self.call)
        return [("call", self.call, tuple(place.settled() for place in self.places))]


@dataclass(frozen=True)
class Copy:
    """So many bytes from one place to another."""

    to: Place
    source: Place
    nbytes: int

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        return [("copy", self.to.settled(), self.source.settled(), self.nbytes)] if self.nbytes else []


@dataclass(frozen=True)
class Sent:
    """One transfer: between which places, how many bytes go to one device, from which device and to which (-1: none)."""

    kind: str
    source_place: Place
    to: Place
    nbytes: int
    source: int = -1
    peer: int = -1

    @classmethod
    def of(cls, transfer: Transfer, source_place: Place, to: Place, own: int) -> Sent:
        """What the device `own` of a group does for it."""
        source, peer = transfer.source, -1
        if transfer.kind == "permute":
            source = next((a for a, b in transfer.perm if b == own), -1)
            peer = next((b for a, b in transfer.perm if a == own), -1)
        return cls(transfer.kind, source_place, to, transfer.nbytes, source, peer)


@dataclass(frozen=True)
class Exchange:
    """Transfers between GPUs, by NCCL as one group of its own; `communicator()` connects them, when the program first runs."""

    communicator: Callable[[], Any]
    sent: tuple[Sent, ...]

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        found = self.communicator()
        keep.append(found)
        each = ((s.kind, s.source_place.settled(), s.to.settled(), s.nbytes, s.source, s.peer) for s in self.sent)
        return [("exchange", found, tuple(each))]


@dataclass(frozen=True)
class Beside:
    """Operations on a second stream, in their order, while the main one goes on; the event says when they are through."""

    event: int
    body: tuple[Any, ...]

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        return [("beside", self.event, tuples(self.body, numbers, keep))]


@dataclass(frozen=True)
class Join:
    """The main stream goes on once the event's operations are through."""

    event: int

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        return [("join", self.event)]


@dataclass(frozen=True)
class Point:
    """An entry that stands for a place from now on."""

    entry: Entry
    place: Place

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        return [("point", self.entry.number, self.place.settled())]


@dataclass(frozen=True)
class Repeat:
    """A counted loop. After each iteration, of each rotation (in, out, spare) what was written is read next, and entries
    move on by their stride in bytes."""

    trips: int
    body: tuple[Any, ...]
    rotations: tuple[tuple[Entry, Entry, Entry], ...]
    strides: tuple[tuple[Entry, int], ...]

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        rotations = tuple(tuple(entry.number for entry in rotation) for rotation in self.rotations)
        strides = tuple((entry.number, nbytes) for entry, nbytes in self.strides)
        return [("repeat", self.trips, tuples(self.body, numbers, keep), rotations, strides)]


@dataclass(frozen=True)
class While:
    """The body for as long as the byte at the predicate's place is not 0; the device reads it."""

    predicate: Place
    body: tuple[Any, ...]

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        return [("while", self.predicate.settled(), tuples(self.body, numbers, keep))]


@dataclass(frozen=True)
class Switch:
    """The branch that the int32 at the index's place names, clamped; the device reads it."""

    index: Place
    branches: tuple[tuple[Any, ...], ...]

    def tuples(self, numbers: Collection[Entry], keep: list[Any]) -> list[Tuple]:
        return [("switch", self.index.settled(), tuple(tuples(branch, numbers, keep) for branch in self.branches))]


Operation = Kernel | Multiply | Call | Copy | Exchange | Beside | Join | Point | Repeat | While | Switch


def walk(operations: Any) -> Iterator[Operation]:
    """The operations and those inside them."""
    for operation in operations:
        yield operation
        for inner in (*getattr(operation, "branches", ()), getattr(operation, "body", ())):
            yield from walk(inner)


def by_value(operations: Any, entry: Entry) -> bool:
    """Whether nothing but kernels that take a number reads the entry."""
    for operation in walk(operations):
        if isinstance(operation, Kernel):
            scalars = operation.source.launch["scalars"]
            if any(place.entry is entry and n not in scalars for n, place in enumerate(operation.places)):
                return False
        elif any(place.entry is entry for place in _places(operation)):
            return False
    return True


def _places(operation: Operation) -> Iterator[Place]:
    """The places that an operation names, but for those of the operations inside it."""
    for part in (operation, *getattr(operation, "sent", ())):
        for value in vars(part).values():
            yield from (p for p in (value if isinstance(value, tuple) else (value,)) if isinstance(p, Place))


def compile_kernels(operations: Any, numbers: Collection[Entry]) -> None:
    """Compile the kernels of operations, by several processes where there are some to compile."""
    kernels = [operation for operation in walk(operations) if isinstance(operation, Kernel)]
    compile_together(job for kernel in kernels for job in code.jobs(kernel.source, kernel.passing(numbers)))


def load_kernels(operations: Any, numbers: Collection[Entry]) -> None:
    """Compile and load the kernels of operations, which are then there when the operations first run."""
    compile_kernels(operations, numbers)
    for operation in walk(operations):
        if isinstance(operation, Kernel):
            code.compiled(operation.source, operation.passing(numbers))


def tuples(operations: Any, numbers: Collection[Entry], keep: list[Any]) -> Tuple:
    """The operations as the native core takes them; `keep` gets what must live as long."""
    return tuple(made for operation in operations for made in operation.tuples(numbers, keep))
