"""Results of dtype float0, the gradients of integers, which have a shape and no elements: no leaves of a compiled program."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes
from fuser.trace import tree


class _NoElements:
    """Stands in a tree of results for an array of float0, the gradient of integers: it has a shape and no leaf."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


tree.register_pytree_node(_NoElements, lambda x: ((), x.shape), lambda shape, _: np.zeros(shape, dtypes.float0))


def without_elements(leaf: Any) -> Any:
    """The leaf, or what stands for one of float0."""
    return _NoElements(leaf.shape) if getattr(leaf, "dtype", None) == dtypes.float0 else leaf
