"""Sums that run beside the reduction that they are relative to: of exponentials (`online.py`) and of squares (`centred.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuser.ir.scalar import Scalar
from fuser.kernel.centred import Centred, centred
from fuser.kernel.kernel import Kernel
from fuser.kernel.online import Online, online


@dataclass(frozen=True)
class RelativeSums:
    """Of sums of exponentials and of squares how each is relative to a reduction of its own sweep."""

    online: Mapping[Scalar, Online] = field(default_factory=dict)
    squares: Mapping[Scalar, Centred] = field(default_factory=dict)

    def of(self, reduction: Scalar) -> Online | Centred | None:
        return self.online.get(reduction) or self.squares.get(reduction)

    def elements(self, reduction: Scalar) -> tuple[Scalar, ...]:
        """The body's nodes that need what a reduction is relative to."""
        relative = self.of(reduction)
        return () if relative is None else relative.elements


def with_relative_sums(kernel: Kernel) -> tuple[Kernel, RelativeSums]:
    """The kernel with each such sum in the sweep of what it is relative to."""
    kernel, exponentials = online(kernel)
    kernel, squares = centred(kernel)
    return kernel, RelativeSums(exponentials, squares)
