"""Runs straight PTX of one block of threads in NumPy, all threads in step: for text in PTX that Triton's interpreter cannot run.

Waits are no-ops but for one thing: `bar.sync` ends a phase, and within one no thread may read shared bytes that a thread of another warp has written, or
write those that one has read or written, but for the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

WARP = 32
_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "shr": lambda a, b: a >> b,
    "mad": lambda a, b, c: a * b + c,
    "mov": lambda a: a,
    "not": lambda a: ~a,
    "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
}


class Threads:
    """`run(text, operands)`: the registers $0, $1, ... afterwards, each an array of u32 with one element a thread."""

    def __init__(self, warps: int) -> None:
        self.count, self.warps = WARP * warps, warps
        thread = np.arange(self.count, dtype=np.uint32)
        self.known = {"%tid.x": thread, "%lanemask_lt": (np.uint32(1) << (thread % WARP)) - np.uint32(1)}
        self.memory = np.full(1 << 17, 0xAA, np.uint8)  # garbage
        self.taken, self.order = 64, np.random.default_rng(0)
        self._phase()

    def _phase(self) -> None:
        self.writers, self.readers = (np.full(len(self.memory), -1) for _ in range(2))  # warps; -2: several

    def run(self, text: str, operands: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.registers = {name: array.astype(np.uint32) for name, array in operands.items()}
        for statement in (line.strip() for line in text.strip().strip("{}").split(";")):
            if statement:
                self._step(statement)
        return self.registers

    def _step(self, statement: str) -> None:
        active = np.ones(self.count, bool)
        if statement.startswith("@"):
            predicate, statement = statement[1:].split(" ", 1)
            active = self.registers[predicate.lstrip("!")].astype(bool) != predicate.startswith("!")
        name, _, rest = statement.partition(" ")
        operation, *forms = name.lstrip(".").split(".")
        if name.startswith(".reg"):
            return
        if name == ".shared":
            (found,) = re.findall(r"\.align 16 \.b8 (\w+)\[(\d+)\]", rest)
            self.known[found[0]] = np.full(self.count, self.taken, np.uint32)
            self.taken += int(found[1]) + -int(found[1]) % 16
            return
        if name == "bar.sync":
            self._phase()
        if operation == "bar":
            return
        first, *others = re.split(r", (?![^\[]*\])", rest)
        if operation == "st":
            self._store(first, self._value(others[0]), int(forms[1][1:]) // 8, active)
            return
        if operation == "red":
            self._add(first, self._value(others[0]))
            return
        if operation == "atom":
            self.registers[first] = self._atomic(forms[1], others[0], self._value(others[1]), active)
            return
        self.registers[first] = np.where(
            active, self._result(operation, forms, others, active), self.registers.get(first, 0)
        )

    def _result(self, operation: str, forms: list[str], operands: list[str], active: np.ndarray) -> np.ndarray:
        if operation == "ld":
            return self._load(operands[0], int(forms[1][1:]) // 8, active)
        values = [self._value(o) for o in operands]
        if operation == "setp":
            compare = {"eq": np.equal, "ne": np.not_equal, "ge": np.greater_equal, "gt": np.greater, "lt": np.less}
            return compare[forms[0]](*values).astype(np.uint32)
        if operation == "vote":
            rows = values[0].reshape(-1, WARP).astype(np.uint64)
            return np.repeat((rows << np.arange(WARP, dtype=np.uint64)).sum(1).astype(np.uint32), WARP)
        if operation == "match":
            rows = values[0].reshape(-1, WARP)
            alike = rows[:, :, None] == rows[:, None, :]
            return (alike * (np.uint64(1) << np.arange(WARP, dtype=np.uint64))).sum(2).astype(np.uint32).reshape(-1)
        if operation == "shfl":
            rows, by = values[0].reshape(-1, WARP), int(operands[1])
            return np.concatenate([rows[:, :by], rows[:, : WARP - by]], 1).reshape(-1)
        return _BINARY[operation](*values)

    def _value(self, operand: str) -> np.ndarray:
        if operand in self.known:
            return self.known[operand]
        if operand in self.registers:
            return self.registers[operand]
        return np.full(self.count, int(operand, 0), np.uint32)

    def _places(self, address: str, width: int) -> np.ndarray:
        base, _, offset = address.strip("[]").partition(" + ")
        places = self._value(base) + np.uint32(int(offset or 0))
        assert (places % width == 0).all()
        return places[:, None] + np.arange(width, dtype=np.uint32)

    def _warp_of(self) -> np.ndarray:
        return np.arange(self.count) // WARP

    def _load(self, address: str, width: int, active: np.ndarray) -> np.ndarray:
        places, mine = self._places(address, width), self._warp_of()[:, None]
        places = np.where(active[:, None], places, 0)  # where nothing is
        others = self.writers[places]
        assert ((others == -1) | (others == mine)).all(), f"{address} is read before other warps have arrived"
        for warp in range(self.warps):
            own = places[(mine[:, 0] == warp) & active]
            self.readers[own] = np.where((self.readers[own] == -1) | (self.readers[own] == warp), warp, -2)
        return (
            (self.memory[places].astype(np.uint32) << (8 * np.arange(width, dtype=np.uint32))).sum(1).astype(np.uint32)
        )

    def _add(self, address: str, value: np.ndarray) -> None:
        """Atomically, by warps in whatever order: nobody may read it, or have written it, in this phase."""
        places = self._places(address, 4)
        assert (self.readers[places] == -1).all() and np.isin(self.writers[places], (-1, -3)).all(), address
        numbers = self.memory.view(np.uint32)
        np.add.at(numbers, places[:, 0] // 4, value)
        self.writers[places] = -3

    def _atomic(self, name: str, address: str, value: np.ndarray, active: np.ndarray) -> np.ndarray:
        """What words were before, of threads in whatever order; what may be done to them besides is as for `red`."""
        places = self._places(address, 4)
        touched = places[active]
        assert (self.readers[touched] == -1).all() and np.isin(self.writers[touched], (-1, -3)).all(), address
        self.writers[touched] = -3
        numbers, old = self.memory.view(np.int32), self.registers["$0"].copy()
        combine = {"add": np.add, "max": np.maximum, "or": np.bitwise_or}[name]
        for thread in self.order.permutation(np.flatnonzero(active)):
            word = places[thread, :1] // 4
            old[thread] = numbers[word].view(np.uint32)[0]
            numbers[word] = combine(numbers[word], value[thread : thread + 1].view(np.int32))
        return old

    def _store(self, address: str, value: np.ndarray, width: int, active: np.ndarray) -> None:
        places = self._places(address, width)[active]
        bytes_ = ((value[active, None] >> (8 * np.arange(width, dtype=np.uint32))) & 255).astype(np.uint8)
        mine = self._warp_of()[active, None]
        for who in (self.readers, self.writers):
            assert ((who[places] == -1) | (who[places] == mine)).all(), f"{address} is overwritten too early"
        self.memory[places] = bytes_
        assert (self.memory[places] == bytes_).all(), f"{address} is written with several values"
        self.writers[places] = np.broadcast_to(mine, places.shape)
