"""The windows of a kernel: for each array the blocks that its program sees, with their index maps and the bytes they move.

An access along an axis that is cut needs the block of the tile; one that is shifted along it needs a few rows of the
blocks beside too (a halo), which come as windows of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fuser.backends.tpu.tiling import AxisIndex, Tiling, Window
from fuser.ir.index import Axis
from fuser.ir.types import BOOL

GRID = "ijklmn"


@dataclass(frozen=True)
class Grid:
    """The dimensions of a kernel's grid: names, extents, and the axis of each (None: the phases of a reduction)."""

    names: tuple[str, ...]
    extents: tuple[int, ...]
    axes: tuple[Axis | None, ...]

    def name(self, axis: Axis) -> str:
        return self.names[self.axes.index(axis)]


def grid_of(tiling: Tiling, phases: int, reverse: bool) -> Grid:
    """Rows first, then the phases, then the reduced axes, whose tiles follow each other."""
    columns = tiling.cut_columns
    rows = [a for a in tiling.cut if a not in columns]
    axes: list[Axis | None] = [*rows, *([None] if phases > 1 else []), *columns]
    if not axes:
        return Grid(("i",), (1,), (Axis(1),))  # blocks need a grid, of one program at least
    letters = iter(GRID if len(axes) <= len(GRID) else [f"i{n}" for n in range(len(axes))])
    names = tuple("phase" if axis is None else next(letters) for axis in axes)
    return Grid(names, tuple(phases if axis is None else tiling.blocks(axis) for axis in axes), tuple(axes))


@dataclass
class Windows:
    """All windows of one kernel, inputs and outputs, in the order in which they were asked for."""

    tiling: Tiling
    grid: Grid
    reverse: bool = False
    phase: int | None = None  # the run over the reduced axes that is being written

    def __post_init__(self) -> None:
        self.inputs: list[Window] = []
        self.outputs: list[Window] = []

    def main(self, param: int, where: tuple[AxisIndex, ...]) -> Window:
        """The window with the block that an access reads."""
        return self._entered(self.inputs, self._window(param, where))

    def beside(self, param: int, where: tuple[AxisIndex, ...], side: str, dimension: int) -> Window:
        """The window with the rows before or after the block, along a dimension that is cut."""
        window = self._window(param, where)
        axis = where[dimension].axis
        assert axis is not None
        rows, extent = self.tiling.granule(axis), self.tiling.kernel.params[param].shape[dimension]
        steps = self.tiling.extents[axis] // rows
        position = window.maps[dimension]
        factor = f" * {steps}" if steps > 1 else ""
        text = f"jnp.maximum({position}{factor} - 1, 0)"
        if side == "after":
            text = f"jnp.minimum(({position} + 1){factor}, {-(-extent // rows) - 1})"
        block = (*window.block[:dimension], rows, *window.block[dimension + 1 :])
        maps = (*window.maps[:dimension], text, *window.maps[dimension + 1 :])
        name = f"{window.name}_{side}{'' if dimension == 0 else dimension}"
        return self._entered(self.inputs, Window(param, name, block, maps, window.axes, (side, dimension)))

    def output(self, param: int, where: tuple[AxisIndex, ...]) -> Window:
        """The window that a store fills."""
        return self._entered(self.outputs, self._window(param, where))

    def position(self, axis: Axis) -> str:
        """Which tile along an axis it is, as text."""
        if axis not in self.tiling.cut:
            return "0"
        name = self.grid.name(axis)
        return (
            f"({self.tiling.blocks(axis) - 1} - {name})"
            if self.reverse and axis in self.tiling.kernel.reduced
            else name
        )

    def _first(self, axis: Axis | None) -> str:
        assert axis is not None
        return str(self.tiling.blocks(axis) - 1) if self.reverse else "0"

    def _window(self, param: int, where: tuple[AxisIndex, ...]) -> Window:
        tiling = self.tiling
        block = tiling.block(param, where)
        axes = tuple(p.axis if p.axis in tiling.cut else None for p in where)
        maps = tuple(
            self.position(axis) if axis is not None else str(p.shift) if p.axis is None and size == 1 < extent else "0"
            for axis, p, size, extent in zip(axes, where, block, tiling.kernel.params[param].shape)
        )
        return Window(param, tiling.kernel.params[param].name, block, maps, axes)

    def _entered(self, windows: list[Window], window: Window) -> Window:
        for known in windows:
            same = (known.param, known.block, known.maps) == (window.param, window.block, window.maps)
            if same and known.halo == window.halo:
                return self._used(known)
        taken = sum(known.name.split("__")[0] == window.name for known in windows)
        window.name += f"__{taken}" if taken else ""
        windows.append(window)
        return self._used(window)

    def _used(self, window: Window) -> Window:
        """Note the phase that needs the window; what is outside of all phases needs it always."""
        window.phases |= set(range(self._phases)) if self.phase is None else {self.phase}
        return window

    @property
    def _phases(self) -> int:
        return dict(zip(self.grid.names, self.grid.extents)).get("phase", 1)

    def _maps(self, window: Window) -> tuple[str, ...]:
        """The index map; along reduced axes it stays at the first block in phases that do not need the window."""
        if len(window.phases) == self._phases:
            return window.maps
        now = " | ".join(f"(phase == {n})" for n in sorted(window.phases))
        return tuple(
            f"jnp.where({now}, {text}, {self._first(axis)})" if axis in self.tiling.cut_columns else text
            for text, axis in zip(window.maps, window.axes)
        )

    def spec(self, window: Window) -> str:
        """The BlockSpec of a window as text."""
        block = window.block or (1, 1)
        maps = self._maps(window) or ("0", "0")
        one = "," if len(block) == 1 else ""
        names = ", ".join(self.grid.names)
        return f"pl.BlockSpec({block}, lambda {names}: ({', '.join(maps)}{one}))".replace("lambda :", "lambda:")

    def moved(self, window: Window) -> int:
        """Bytes that the window's blocks move: a block is fetched anew whenever its index changes."""
        param = self.tiling.kernel.params[window.param]
        shape = [
            min(extent, size * self.tiling.blocks(axis)) if axis is not None else size
            for extent, size, axis in zip(param.shape, window.block, window.axes)
        ]
        if window.halo is not None:
            shape[window.halo[1]] = window.block[window.halo[1]] * self.tiling.blocks(window.axes[window.halo[1]])  # type: ignore[arg-type]
        inner = max(
            (n for n, axis in enumerate(self.grid.axes) if axis is not None and axis in window.axes), default=-1
        )
        again = 1
        for axis, extent in zip(self.grid.axes[: inner + 1], self.grid.extents):
            again *= len(window.phases) if axis is None else 1 if axis in window.axes else extent
        return math.prod(shape) * again * (1 if param.dtype == BOOL else param.dtype.itemsize)
