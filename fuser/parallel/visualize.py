"""How arrays lie, for a person: which devices hold which part, as a table of text; layouts within compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.lax.values import as_value
from fuser.ops.sharding import Inspection, inspect_sharding_p
from fuser.parallel.arrays import sharding_of
from fuser.parallel.sharding import Sharding, SingleDeviceSharding
from fuser.runtime.array import Array
from fuser.runtime.device import devices
from fuser.trace import tree
from fuser.trace.core import Tracer

LINE = 2.5  # how much higher than wide a character is


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Call `callback` with the Sharding of each array of a tree: at once where that is known, else once for each program.

    A program for several devices calls it when it is compiled; one for a single device when it first gets there.
    """
    for leaf in tree.leaves(value):
        if isinstance(leaf, Tracer):
            inspect_sharding_p.bind(leaf, inspection=Inspection(callback), lone=_lone)
        else:
            callback(sharding_of(as_value(leaf, "inspect_array_sharding")))


def _lone() -> Sharding:
    return SingleDeviceSharding(devices()[0])


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print which devices hold which part of an array of one or two dimensions; see `visualize_sharding`."""
    if isinstance(arr, Tracer):
        raise ValueError(f"visualize_array_sharding shows arrays, got a traced {arr.aval}; call it outside of jit")
    visualize_sharding(arr.shape, sharding_of(arr) if isinstance(arr, Array) else arr.sharding, **kwargs)


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Any = None,
) -> None:
    """Print which devices hold which part of an array of this shape, of one or two dimensions: a cell for each part.

    `use_color` and `color_map` are JAX's, and change nothing; a cell has its part of a table that is 10 lines times `scale` high, is `min_width`
    characters wide at least with its borders, and the table `max_width` at most. ValueError for other ranks.
    """
    if len(shape) not in (1, 2):
        raise ValueError(f"`visualize_sharding` only works for shapes with 1 and 2 dimensions, got {tuple(shape)}")
    print(picture(shape, sharding, scale, min_width, max_width))


def picture(
    shape: Sequence[int], sharding: Sharding, scale: float = 1.0, min_width: int = 9, max_width: int = 80
) -> str:
    """The table that `visualize_sharding` prints: a cell's part of a height of 10 lines and of a width in proportion, as in JAX."""
    holders: dict[tuple[int, int], list[str]] = {}
    parts: dict[tuple[int, int], tuple[int, int]] = {}
    whole = (1, *shape) if len(shape) == 1 else tuple(shape)
    for device, index in sharding.devices_indices_map(tuple(shape)).items():
        ranges = [s.indices(extent) for s, extent in zip((slice(None), *index)[-2:], whole)]
        place = (ranges[0][0], ranges[1][0])
        parts[place] = (ranges[0][1] - ranges[0][0], ranges[1][1] - ranges[1][0])
        holders.setdefault(place, []).append(str(device.id))
    platform = sharding.devices[0].platform.upper()
    rows, columns = (sorted({place[d] for place in holders}) for d in (0, 1))
    texts = {place: f"{platform} {','.join(ids)}" for place, ids in holders.items()}
    height = int(10 * scale)
    width = int(height * (shape[1] if len(shape) == 2 else 1) / shape[0]) * LINE
    wide = {p: min(max(int(width * parts[p][1] / whole[1]), min_width), max_width) - 2 for p in holders}
    high = {p: max(int(height * parts[p][0] / whole[0]) - 1, 1) if len(shape) == 2 else 1 for p in holders}
    most = max((max_width - 1) // len(columns) - 1, 1)
    widths = [min(max(max(wide[r, c], len(texts[r, c])) for r in rows), most) for c in columns]
    heights = [max(high[r, c] for c in columns) for r in rows]
    cells = {
        (r, c): _cell(texts[r, c], widths[n], heights[m]) for m, r in enumerate(rows) for n, c in enumerate(columns)
    }
    bar = lambda left, middle, right: left + middle.join("─" * w for w in widths) + right
    lines = [
        "\n".join("│" + "│".join(cells[r, c][line] for c in columns) + "│" for line in range(heights[m]))
        for m, r in enumerate(rows)
    ]
    return "\n".join([bar("┌", "┬", "┐"), f"\n{bar('├', '┼', '┤')}\n".join(lines), bar("└", "┴", "┘")])


def _cell(text: str, width: int, height: int) -> list[str]:
    """The lines of a cell, its text in the middle; what is left over of its width goes to the right."""
    left = max(width - len(text), 0) // 2
    lines = [" " * width] * height
    lines[(height - 1) // 2] = (" " * left + text)[:width].ljust(width)
    return lines
