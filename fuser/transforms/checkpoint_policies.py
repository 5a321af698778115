"""What `checkpoint` saves: policies, functions of a primitive, the types of its operands, and its params; and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from fuser.ir.source import current_source
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.dot import dot_general_p
from fuser.ops.remat import name_p


class _Answer:
    """What a policy says of an operation, beside True and False."""

    def __init__(self, name: str, saved: bool) -> None:
        self.name, self.saved = name, saved

    def __bool__(self) -> bool:
        return self.saved

    def __repr__(self) -> str:
        return self.name


Recompute = _Answer("Recompute", False)
Saveable = _Answer("Saveable", True)


class Offloadable(NamedTuple):
    """A policy's answer: saved, in another memory of the device. fuser's devices have one memory, where it stays."""

    src: Any
    dst: Any


def everything_saveable(*args: Any, **params: Any) -> bool:
    """Save all, as without checkpoint."""
    return True


def nothing_saveable(*args: Any, **params: Any) -> bool:
    """Save nothing but the inputs, as without a policy."""
    return False


@dataclass(frozen=True)
class _Dots:
    """Save the results of matrix products."""

    without_batch: bool

    def __call__(self, primitive: Any, *args: Any, **params: Any) -> bool:
        if primitive is not dot_general_p:
            return primitive is conv_general_dilated_p and not self.without_batch
        _, (batch, _) = params["dimension_numbers"]
        return not (self.without_batch and len(batch))


dots_saveable = checkpoint_dots = _Dots(False)
dots_with_no_batch_dims_saveable = _Dots(True)


def save_anything_except_these_names(*names_not_to_save: str) -> Callable[..., bool]:
    """Save all but what these names mark; the value before it was marked may still be saved, as in JAX."""
    names = frozenset(names_not_to_save)
    return lambda primitive, *args, **params: primitive is not name_p or params["name"] not in names


@dataclass(frozen=True)
class _Names:
    """Save named values by their names."""

    names: frozenset[str]
    wanted: bool

    def __call__(self, primitive: Any, *args: Any, **params: Any) -> bool:
        return primitive is name_p and (params["name"] in self.names) is self.wanted


def save_only_these_names(*names_which_can_be_saved: str) -> Callable[..., bool]:
    """Save values that checkpoint_name gave one of these names."""
    return _Names(frozenset(names_which_can_be_saved), True)


def save_any_names_but_these(*names_not_to_save: str) -> Callable[..., bool]:
    """Save named values, except those of these names."""
    return _Names(frozenset(names_not_to_save), False)


def save_from_both_policies(policy_1: Callable[..., bool], policy_2: Callable[..., bool]) -> Callable[..., bool]:
    """Save what either policy saves."""

    def policy(*args: Any, **params: Any) -> bool:
        answers = policy_1(*args, **params), policy_2(*args, **params)
        if not all(isinstance(a, bool) for a in answers):
            raise ValueError(f"save_from_both_policies needs policies that return bools, got {answers}")
        return answers[0] or answers[1]

    return policy


@dataclass(frozen=True)
class _Offloaded:
    """Save values of some names, and those of others in another memory."""

    saved: frozenset[str]
    offloaded: frozenset[str]
    answer: Offloadable

    def __call__(self, primitive: Any, *args: Any, **params: Any) -> _Answer | Offloadable:
        name = params["name"] if primitive is name_p else None
        return Saveable if name in self.saved else self.answer if name in self.offloaded else Recompute


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Collection[str],
    names_which_can_be_offloaded: Collection[str],
    offload_src: str,
    offload_dst: str,
) -> Callable[..., Any]:
    """Save values that checkpoint_name gave one of the first names, and move those of the others from memory `offload_src` to
    `offload_dst`. ValueError for a name among both."""
    saved, offloaded = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)
    if saved & offloaded:
        raise ValueError(
            "The names should be exclusive and should not intersect in `names_which_can_be_saved` and `names_which_can_be_offloaded`. "
            f"Got names_which_can_be_saved={names_which_can_be_saved}, names_which_can_be_offloaded={names_which_can_be_offloaded} "
            f"and the intersection={saved & offloaded} ({current_source().short})"
        )
    return _Offloaded(saved, offloaded, Offloadable(offload_src, offload_dst))


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Callable[..., Any]:
    """Move the results of matrix products without batch dimensions from memory `offload_src` to `offload_dst`."""
    answer = Offloadable(offload_src, offload_dst)
    return lambda *args, **params: answer if dots_with_no_batch_dims_saveable(*args, **params) else Recompute


checkpoint_policies = SimpleNamespace(
    everything_saveable=everything_saveable,
    nothing_saveable=nothing_saveable,
    dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable,
    dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable,
    save_anything_except_these_names=save_anything_except_these_names,
    save_any_names_but_these=save_any_names_but_these,
    save_only_these_names=save_only_these_names,
    save_from_both_policies=save_from_both_policies,
    save_and_offload_only_these_names=save_and_offload_only_these_names,
    offload_dot_with_no_batch_dims=offload_dot_with_no_batch_dims,
)
