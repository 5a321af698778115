"""How an array lies in memory: fuser's arrays are row-major and dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuser.errors import UnsupportedError

__all__ = ["Format", "Layout"]


@dataclass(frozen=True)
class Layout:
    """The order of the dimensions in memory, the outermost first; UnsupportedError for any but row-major."""

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        order = tuple(self.major_to_minor)
        if order != tuple(range(len(order))) or self.tiling:
            raise UnsupportedError(
                f"arrays are row-major in memory, and this layout is {order}{' with tiles' if self.tiling else ''}; "
                f"use {tuple(range(len(order)))}, and transpose where another order is wanted"
            )


@dataclass(frozen=True)
class Format:
    """A layout and a sharding, each None where it is left open."""

    layout: Layout | None = None
    sharding: Any = None

    @property
    def device_local_layout(self) -> Layout | None:
        """The layout on each device."""
        return self.layout
