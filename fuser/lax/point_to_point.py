"""`psend` and `precv`, under jax.lax's names: a permutation in two steps, of which the second may stand later.

A token carries what was sent to the `precv` that takes it, so that a pair is one `ppermute`, and nothing can wait in vain: what would
hang is an error where the program is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.errors import DeviceError
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.parallel import lanes_of, ppermute
from fuser.lax.tokens import Token
from fuser.lax.values import as_value
from fuser.trace import tree
from fuser.trace.core import type_of

Pairs = tuple[tuple[int, int], ...]


class SendToken(Token):
    """What was sent along which axis, and from which device to which."""

    def __init__(self, value: Any, axis: Any, perm: Pairs) -> None:
        self.value, self.axis, self.perm = value, axis, perm

    def __repr__(self) -> str:
        return f"SendToken(axis={self.axis!r}, perm={self.perm})"


tree.register_pytree_node(
    SendToken,
    lambda token: ((token.value,), (token.axis, token.perm)),
    lambda aux, children: SendToken(*children, *aux),
)


def psend(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send `x` from the source to the destination of each pair; gives the token (a tree of them for a tree) that `precv` takes.

    What no precv takes is not sent. ValueError for a device that is twice a source or a destination, DeviceError for pairs that lead
    back to where they began, which is a deadlock where devices send before they receive.
    """
    axis, pairs = _pairs(axis_name, perm, "psend")
    return tree.map(lambda leaf: SendToken(as_value(leaf, "psend"), axis, pairs), x)


def precv(token: Any, out_shape: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """What the psend that gave `token` sent to this device; zeros on a device that is no destination.

    `out_shape` has its shape and dtype. DeviceError for a token that no psend gave, or one along other pairs; ValueError for another
    shape or dtype than what was sent.
    """
    axis, pairs = _pairs(axis_name, perm, "precv")
    if not isinstance(token, SendToken):
        raise DeviceError(
            f"Expected send to match recv: precv over {axis!r} got {token!r} ({current_source().short}); give it the token of the psend whose "
            "value it receives"
        )
    if (token.axis, token.perm) != (axis, pairs):
        raise DeviceError(
            f"Deadlock detected: psend over {token.axis!r} from and to {token.perm}, precv over {axis!r} from and to {pairs} "
            f"({current_source().short}); give both the same axis and pairs"
        )
    sent, wanted = type_of(token.value), ArrayType(tuple(out_shape.shape), out_shape.dtype)
    if (sent.shape, sent.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(
            f"precv is to receive {wanted}, and {ArrayType(sent.shape, sent.dtype)} was sent ({current_source().short}); give it the type of what "
            "psend got as out_shape"
        )
    return ppermute(token.value, axis, pairs)


def _pairs(axis_name: Any, perm: Sequence[tuple[int, int]], function: str) -> tuple[Any, Pairs]:
    """The axis, and the pairs of source and destination."""
    axis, size = lanes_of(axis_name, function)
    pairs = tuple((int(source), int(destination)) for source, destination in perm)
    if any(len(set(positions)) != len(positions) for positions in zip(*pairs)):
        raise ValueError(
            f"{function} sources and destinations must be unique, got {pairs} ({current_source().short}); send in several steps"
        )
    if any(not 0 <= position < size for pair in pairs for position in pair):
        raise ValueError(
            f"{function} over {axis!r} of size {size} has sources and destinations below it, got {pairs} ({current_source().short})"
        )
    if _leads_back(dict(pairs)):
        raise DeviceError(
            f"Expected send and recv instructions to have non-cyclical source-target pairs, got {pairs} of {function} "
            f"({current_source().short}); use ppermute, or send in two steps"
        )
    return axis, pairs


def _leads_back(following: dict[int, int]) -> bool:
    """Whether some pairs form a cycle: those that no walk from a first source comes by."""
    walked = 0
    for position in set(following) - set(following.values()):
        while position in following:
            position = following[position]
            walked += 1
    return walked < len(following)
