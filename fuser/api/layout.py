"""How an array lies in memory: fuser's arrays are row-major and dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fuser.errors import UnsupportedError
from fuser.trace import tree

__all__ = ["Format", "Layout", "with_layout_constraint"]


@dataclass(frozen=True)
class Layout:
    """The order of the dimensions in memory, the outermost first; UnsupportedError for any but row-major."""

    AUTO: ClassVar[Layout]  # one that the compiler chooses: row-major
    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        order = tuple(self.major_to_minor)
        if order != tuple(range(len(order))) or self.tiling:
            raise UnsupportedError(
                f"arrays are row-major in memory, and this layout is {order}{' with tiles' if self.tiling else ''}; "
                f"use {tuple(range(len(order)))}, and transpose where another order is wanted"
            )


Layout.AUTO = Layout(())


def row_major(rank: int) -> Layout:
    """The layout of an array of that rank."""
    return Layout(tuple(range(rank)))


@dataclass(frozen=True)
class Format:
    """A layout and a sharding, each None where it is left open."""

    layout: Layout | None = None
    sharding: Any = None

    @property
    def device_local_layout(self) -> Layout | None:
        """The layout on each device."""
        return self.layout


def shardings_of(tree_of: Any) -> Any:
    """A tree whose Formats are their shardings, None where one says nothing of that."""
    return tree.map(
        lambda leaf: leaf.sharding if isinstance(leaf, Format) else leaf,
        tree_of,
        is_leaf=lambda leaf: leaf is None or isinstance(leaf, Format),
    )


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """`x`, whose leaves lie in memory as the layouts say, one or a tree of them: row-major, as all arrays do.

    ValueError where a layout has not a leaf's rank.
    """
    leaves, structure = tree.flatten(x)
    wanted = (
        [layouts] * len(leaves)
        if isinstance(layouts, Layout)
        else tree.leaves(layouts, lambda v: isinstance(v, Layout))
    )
    for leaf, layout in zip(leaves, wanted, strict=True):
        if len(layout.major_to_minor) != np.ndim(leaf):
            raise ValueError(
                f"Length of major_to_minor and the rank of the value should match. Got major_to_minor={layout.major_to_minor} and shape={np.shape(leaf)}"
            )
    return tree.unflatten(structure, leaves)
