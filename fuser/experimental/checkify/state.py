"""The error while a program runs: a code and the arrays that messages name, updated by each check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.experimental.checkify.errors import Entry, Error, Kind, Table
from fuser.ir.types import ArrayType

CODE = ArrayType((), np.dtype("int32"))


class Codes:
    """The entries that codes have been given to in one program; the kinds of all that may come are known from the start."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = tuple(kinds)
        self.entries: list[Entry] = []

    def new(self, entry: Entry) -> int:
        """The code of an entry."""
        self.entries.append(entry)
        return len(self.entries)

    def table(self) -> Table:
        return Table(tuple(self.entries), self.kinds)

    def avals(self) -> list[ArrayType]:
        """The types of the state's arrays."""
        return [CODE, *(aval for kind in self.kinds for aval in kind)]


@dataclass(frozen=True)
class State:
    """The arrays of an error, in the order of `Codes.avals`."""

    codes: Codes
    arrays: tuple[Any, ...]

    @staticmethod
    def clear(codes: Codes) -> State:
        """Nothing has gone wrong."""
        return State(codes, tuple(fnp.zeros(a.shape, a.dtype) for a in codes.avals()))

    def error(self) -> Error:
        return Error(self.arrays[0], self.arrays[1:], self.codes.table())

    def asserted(self, failed: Any, entry: Entry, payload: Sequence[Any] = ()) -> State:
        """The state once a check has been made that `failed`, a scalar, says the outcome of."""
        return self.failing(fnp.where(failed, np.int32(self.codes.new(entry)), np.int32(0)), entry.kind, payload)

    def failing(self, code: Any, kind: Kind, payload: Sequence[Any]) -> State:
        """The state once something may have gone wrong with this code, 0 if not; what went wrong before stays."""
        arrays = list(self.arrays)
        first = (arrays[0] == 0) & (code != 0)
        arrays[0] = fnp.where(first, code, arrays[0])
        if kind:
            place = self.codes.table().place(kind)
            for n, value in zip(range(1 + place.start, 1 + place.stop), payload):
                arrays[n] = lax.select(
                    fnp.broadcast_to(first, arrays[n].shape), fnp.asarray(value, arrays[n].dtype), arrays[n]
                )
        return State(self.codes, tuple(arrays))

    def spread(self, lanes: tuple[int, ...]) -> list[Any]:
        """The arrays, for each of the lanes of a loop."""
        return [fnp.broadcast_to(a, (*lanes, *a.shape)) for a in self.arrays]

    def gathered(self, arrays: Sequence[Any], rank: int) -> State:
        """The state of arrays of as many lanes: that of the first lane in which something went wrong."""
        if not rank:
            return State(self.codes, tuple(arrays))
        flat = [a.reshape((-1, *a.shape[rank:])) for a in arrays]
        lane = fnp.argmax(flat[0] != 0)
        return State(self.codes, tuple(lax.dynamic_index_in_dim(a, lane, keepdims=False) for a in flat))
