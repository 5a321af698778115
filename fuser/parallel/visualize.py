"""Pictures of how arrays lie: which devices hold which part, as a table of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.parallel.arrays import sharding_of
from fuser.parallel.sharding import Sharding
from fuser.runtime.array import Array
from fuser.trace.core import Tracer


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Print which devices hold which part of an array of one or two dimensions; see `visualize_sharding`."""
    if isinstance(arr, Tracer):
        raise ValueError(f"visualize_array_sharding shows arrays, got a traced {arr.aval}; call it outside of jit")
    visualize_sharding(arr.shape, sharding_of(arr) if isinstance(arr, Array) else arr.sharding, **options)


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
) -> None:
    """Print which devices hold which part of an array of this shape, of one or two dimensions: a cell for each part.

    `use_color` is JAX's, and changes nothing; cells are `min_width` characters wide at least, times `scale`, and the table
    `max_width` at most. ValueError for other ranks.
    """
    if len(shape) not in (1, 2):
        raise ValueError(f"`visualize_sharding` only works for shapes with 1 and 2 dimensions, got {tuple(shape)}")
    print(picture(shape, sharding, int(min_width * scale), max_width))


def picture(shape: Sequence[int], sharding: Sharding, min_width: int = 9, max_width: int = 80) -> str:
    """The table that `visualize_sharding` prints."""
    holders: dict[tuple[int, int], list[str]] = {}
    for device, index in sharding.devices_indices_map(tuple(shape)).items():
        starts = [s.start or 0 for s in index]
        holders.setdefault((0, *starts) if len(starts) == 1 else (starts[0], starts[1]), []).append(str(device.id))  # type: ignore[arg-type]
    platform = sharding.devices[0].platform.upper()
    rows, columns = (sorted({place[d] for place in holders}) for d in (0, 1))
    cells = [[f"{platform} {','.join(holders[r, c])}" for c in columns] for r in rows]
    widest = max(len(cell) for row in cells for cell in row)
    width = max(min(max(widest + 2, min_width), (max_width - 1) // len(columns) - 1), 1)
    bar = lambda left, middle, right: left + middle.join(["─" * width] * len(columns)) + right
    lines = ["│" + "│".join(cell[:width].center(width) for cell in row) + "│" for row in cells]
    return "\n".join([bar("┌", "┬", "┐"), f"\n{bar('├', '┼', '┤')}\n".join(lines), bar("└", "┴", "┘")])
