"""Optimisers of trees of parameters, with jax.example_libraries.optimizers' names.

Each function gives an Optimizer (init_fn, update_fn, params_fn): `init_fn(params) -> state`, `update_fn(step, gradients, state)
-> state`, `params_fn(state) -> params`. A step size is a number or a schedule, a function of the step.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fuser import numpy as fnp
from fuser import tree
from fuser.trace import tree as T
from fuser.trace.core import type_of
from fuser.tree_util import register_pytree_node

__all__ = [
    "JoinPoint", "Optimizer", "OptimizerState", "adagrad", "adam", "adamax", "clip_grads", "constant", "exponential_decay",
    "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov", "optimizer", "pack_optimizer_state",
    "piecewise_constant", "polynomial_decay", "rmsprop", "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state",
]  # fmt: skip

Step = int
Schedule = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class OptimizerState:
    """The state of every parameter, flat, with the trees of the parameters and of each one's state."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.packed_state, self.tree_def, self.subtree_defs))


register_pytree_node(
    OptimizerState,
    lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
    lambda aux, children: OptimizerState(children[0], *aux),
)


class Optimizer(NamedTuple):
    """The three functions that make an optimiser."""

    init_fn: Callable[..., Any]
    update_fn: Callable[..., Any]
    params_fn: Callable[..., Any]


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """A decorator: functions (init, update, get_params) for one array become an Optimizer of trees.

    TypeError where gradients have another structure than the parameters, or an update changes the structure of a state.
    """

    @functools.wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(params: Any) -> OptimizerState:
            leaves, structure = tree.flatten(params)
            states, defs = _flattened([init(x) for x in leaves])
            return OptimizerState(states, structure, defs)

        def tree_update(i: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, structure = tree.flatten(grads)
            if structure != state.tree_def:
                raise TypeError(
                    f"optimizer update function was passed a gradient tree that did not match the parameter tree structure with "
                    f"which it was initialized: parameter tree {state.tree_def} and grad tree {structure}."
                )
            before = [tree.unflatten(d, s) for d, s in zip(state.subtree_defs, state.packed_state)]
            states, defs = _flattened([update(i, g, s) for g, s in zip(leaves, before)])
            for found, wanted in zip(defs, state.subtree_defs):
                if found != wanted:
                    raise TypeError(
                        f"optimizer update function produced an output structure that did not match its input structure: input {wanted} and output {found}."
                    )
            return OptimizerState(states, state.tree_def, state.subtree_defs)

        def tree_params(state: OptimizerState) -> Any:
            states = [tree.unflatten(d, s) for d, s in zip(state.subtree_defs, state.packed_state)]
            return tree.unflatten(state.tree_def, [get_params(s) for s in states])

        return Optimizer(tree_init, tree_update, tree_params)

    return tree_opt_maker


def _flattened(states: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    flat = [tree.flatten(s) for s in states]
    return tuple(tuple(leaves) for leaves, _ in flat), tuple(d for _, d in flat)


# Optimisers of one array.


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent: x - α·g."""
    rate = make_schedule(step_size)
    return (lambda x0: x0), (lambda i, g, x: x - rate(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent with velocity v = mass·v + g. Polyak, "Some methods of speeding up convergence" (1964)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return (lambda x0: (x0, fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Momentum that looks ahead. Nesterov (1983), in the form of Sutskever et al. (2013)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return (lambda x0: (x0, fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """Steps divided by the root of summed squared gradients, with momentum. Duchi et al. (2011)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares + fnp.square(g)
        scaled = fnp.where(squares > 0, 1 / fnp.sqrt(fnp.where(squares > 0, squares, 1)), 0.0)
        velocity = (1.0 - momentum) * (g * scaled) + momentum * velocity
        return x - rate(i) * velocity, squares, velocity

    return (lambda x0: (x0, fnp.zeros_like(x0), fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """Steps divided by the root of averaged squared gradients. Tieleman and Hinton, lecture 6.5 (2012)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, average = state
        average = average * gamma + fnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / fnp.sqrt(average + eps), average

    return (lambda x0: (x0, fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def rmsprop_momentum(step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """`rmsprop` with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, average, velocity = state
        average = average * gamma + fnp.square(g) * (1.0 - gamma)
        velocity = momentum * velocity + rate(i) * g / fnp.sqrt(average + eps)
        return x - velocity, average, velocity

    return (lambda x0: (x0, fnp.zeros_like(x0), fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Steps by estimates of first and second moments. Kingma and Ba, "Adam" (2015), algorithm 1."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, first, second = state
        first = (1 - b1) * g + b1 * first
        second = (1 - b2) * fnp.square(g) + b2 * second
        step = fnp.asarray(i + 1, first.dtype)
        unbiased = first / (1 - fnp.asarray(b1, first.dtype) ** step)
        spread = second / (1 - fnp.asarray(b2, first.dtype) ** step)
        return x - rate(i) * unbiased / (fnp.sqrt(spread) + eps), first, second

    return (lambda x0: (x0, fnp.zeros_like(x0), fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam with the greatest gradient in place of the second moment. Kingma and Ba, "Adam" (2015), algorithm 2."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, first, greatest = state
        first = (1 - b1) * g + b1 * first
        greatest = fnp.maximum(b2 * greatest, fnp.abs(g))
        step = fnp.asarray(i + 1, first.dtype)
        return x - (rate(i) / (1 - fnp.asarray(b1, first.dtype) ** step)) * first / (greatest + eps), first, greatest

    return (lambda x0: (x0, fnp.zeros_like(x0), fnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """Adagrad whose sums are kept by rows and columns. Anil et al., "Memory-efficient adaptive optimization" (2019), SM3-II."""
    rate = make_schedule(step_size)

    def spread(vectors: Any, ndim: int) -> Any:
        columns = [fnp.reshape(v, [-1 if d == n else 1 for d in range(ndim)]) for n, v in enumerate(vectors)]
        return functools.reduce(fnp.minimum, columns)

    def init(x0: Any) -> Any:
        zeros = [fnp.zeros(n, dtype=type_of(x0).dtype) for n in fnp.shape(x0)] if fnp.ndim(x0) else []
        return x0, fnp.zeros_like(x0), zeros if fnp.ndim(x0) else [fnp.zeros_like(x0)]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity, vectors = state
        bound = spread(vectors, x.ndim) if x.ndim else vectors[0]
        squares = bound + fnp.square(g)
        scaled = fnp.where(squares > 0, 1 / fnp.sqrt(fnp.where(squares > 0, squares, 1)), 0.0)
        velocity = (1.0 - momentum) * (g * scaled) + momentum * velocity
        kept = [squares.max([d for d in range(x.ndim) if d != n]) for n in range(x.ndim)] if x.ndim else [squares]
        return x - rate(i) * velocity, velocity, kept

    return init, update, (lambda state: state[0])


# Schedules.


def constant(step_size: Any) -> Schedule:
    """The same step size always."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """step_size·decay_rate^(i / decay_steps)."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """step_size / (1 + decay_rate·i / decay_steps), in whole steps with `staircase`."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * fnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0) -> Schedule:
    """From step_size down to final_step_size in `decay_steps`, as (1 - i / decay_steps)^power."""

    def schedule(i: Any) -> Any:
        step = fnp.minimum(i, decay_steps)
        return (1 - step / decay_steps) ** power * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """values[k] between boundaries[k - 1] and boundaries[k]. ValueError unless there is one value more than boundaries."""
    edges, levels = fnp.array(boundaries), fnp.array(values)
    if not edges.ndim == levels.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if edges.shape[0] != levels.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: levels[fnp.sum(i > edges)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule from a number or a schedule. TypeError for anything else."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if fnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


# Gradients and states.


def l2_norm(tree: Any) -> Any:
    """The root of the sum of squares of all leaves."""
    return fnp.sqrt(sum(fnp.vdot(x, x) for x in T.leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """The gradients, scaled down so that their norm is at most `max_norm`."""
    norm = l2_norm(grad_tree)
    return tree.map(lambda g: fnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Marks where the tree of parameters ends and the state of one begins."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The state as a tree of parameters with a JoinPoint for each, to be stored."""
    points = [JoinPoint(tree.unflatten(d, s)) for d, s in zip(opt_state.subtree_defs, opt_state.packed_state)]
    return tree.unflatten(opt_state.tree_def, points)


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state from what `unpack_optimizer_state` gave."""
    points, structure = tree.flatten(marked_pytree)
    states, defs = _flattened([p.subtree for p in points])
    return OptimizerState(states, structure, defs)
