"""What a KernelSource tells of loops that are not vectorised: `launch["scalar"]`, the reason and for how many elements."""

from __future__ import annotations

from typing import Any

Scalarised = tuple[str, int]


def told(scalar: Scalarised | None) -> dict[str, Any]:
    """The entry of `launch`, if there is something to tell."""
    return {"scalar": scalar} if scalar else {}


def worst(a: Scalarised | None, b: Scalarised | None) -> Scalarised | None:
    """The one with more elements."""
    return max((one for one in (a, b) if one), key=lambda one: one[1], default=None)
