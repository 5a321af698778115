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
    "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
}


class Threads:
    """`run(text, operands)`: the registers $0, $1, ... afterwards, each an array of u32 with one element a thread."""

    def __init__(self, warps: int) -> None:
        self.count, self.warps = WARP * warps, warps
        thread = np.arange(self.count, dtype=np.uint32)
        self.known = {"%tid.x": thread, "%lanemask_lt": (np.uint32(1) << (thread % WARP)) - np.uint32(1)}
        self.memory = np.full(1 << 17, 0xAA, np.uint8)  # garbage
        self.taken = 64
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
            active = self.registers[predicate].astype(bool)
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
        self.registers[first] = np.where(active, self._result(operation, forms, others), self.registers.get(first, 0))

    def _result(self, operation: str, forms: list[str], operands: list[str]) -> np.ndarray:
        if operation == "ld":
            return self._load(operands[0], int(forms[1][1:]) // 8)
        values = [self._value(o) for o in operands]
        if operation == "setp":
            return {"eq": np.equal, "ge": np.greater_equal, "gt": np.greater}[forms[0]](*values).astype(np.uint32)
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

    def _load(self, address: str, width: int) -> np.ndarray:
        places = self._places(address, width)
        mine = self._warp_of()[:, None]
        others = self.writers[places]
        assert ((others == -1) | (others == mine)).all(), f"{address} is read before other warps have arrived"
        for warp in range(self.warps):
            own = places[mine[:, 0] == warp]
            self.readers[own] = np.where((self.readers[own] == -1) | (self.readers[own] == warp), warp, -2)
        return (
            (self.memory[places].astype(np.uint32) << (8 * np.arange(width, dtype=np.uint32))).sum(1).astype(np.uint32)
        )

    def _store(self, address: str, value: np.ndarray, width: int, active: np.ndarray) -> None:
        places = self._places(address, width)[active]
        bytes_ = ((value[active, None] >> (8 * np.arange(width, dtype=np.uint32))) & 255).astype(np.uint8)
        mine = self._warp_of()[active, None]
        for who in (self.readers, self.writers):
            assert ((who[places] == -1) | (who[places] == mine)).all(), f"{address} is overwritten too early"
        self.memory[places] = bytes_
        assert (self.memory[places] == bytes_).all(), f"{address} is written with several values"
        self.writers[places] = np.broadcast_to(mine, places.shape)
