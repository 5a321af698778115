"""Calls of jax.lax, and of fuser.lax, whose rules are compared: for each primitive many shapes and params, edges included.

A case is `(call, operands)`: `call(lax, *operands)`, with float operands to differentiate by and integers beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]

_rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape).astype(np.float32)


def tied(*shape: int) -> np.ndarray:
    """Small whole numbers, zeros among them: ties for max and min, zeros for products."""
    return _rng.integers(-2, 3, shape).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.asarray(values[0] if len(values) == 1 else values, np.int32)


CASES: dict[str, list[Case]] = {
    "broadcast_in_dim": [
        (lambda lax, x: lax.broadcast_in_dim(x, (3, 4), ()), (floats(),)),
        (lambda lax, x: lax.broadcast_in_dim(x, (3, 4), (1,)), (floats(4),)),
        (lambda lax, x: lax.broadcast_in_dim(x, (3, 4), (0,)), (floats(3),)),
        (lambda lax, x: lax.broadcast_in_dim(x, (3, 4, 1), (0, 1)), (floats(3, 1),)),
        (lambda lax, x: lax.broadcast_in_dim(x, (0, 4), (0, 1)), (floats(1, 4),)),
        (lambda lax, x: lax.broadcast_in_dim(x, (3, 4, 3), (0, 2)), (floats(3, 1),)),
    ],
    "reshape": [
        (lambda lax, x: lax.reshape(x, (12,)), (floats(3, 4),)),
        (lambda lax, x: lax.reshape(x, (2, 3, 2)), (floats(4, 3),)),
        (lambda lax, x: lax.reshape(x, ()), (floats(1, 1),)),
        (lambda lax, x: lax.reshape(x, (3, 0)), (floats(0, 5),)),
    ],
    "transpose": [
        (lambda lax, x: lax.transpose(x, (2, 0, 1)), (floats(2, 3, 4),)),
        (lambda lax, x: lax.transpose(x, (1, 0)), (floats(3, 3),)),
        (lambda lax, x: lax.transpose(x, (1, 0)), (floats(0, 3),)),
    ],
    "squeeze": [
        (lambda lax, x: lax.squeeze(x, (0, 2)), (floats(1, 3, 1),)),
        (lambda lax, x: lax.squeeze(x, (1,)), (floats(3, 1, 2),)),
    ],
    "rev": [
        (lambda lax, x: lax.rev(x, (0, 2)), (floats(2, 3, 4),)),
        (lambda lax, x: lax.rev(x, (1,)), (floats(3, 3),)),
        (lambda lax, x: lax.rev(x, (0,)), (floats(0, 3),)),
    ],
    "slice": [
        (lambda lax, x: lax.slice(x, (2,), (7,)), (floats(9),)),
        (lambda lax, x: lax.slice(x, (1, 0), (9, 3), (3, 2)), (floats(10, 4),)),
        (lambda lax, x: lax.slice(x, (2, 1), (2, 3)), (floats(5, 4),)),
        (lambda lax, x: lax.slice(x, (0,), (0,)), (floats(0),)),
    ],
    "pad": [
        (lambda lax, x, v: lax.pad(x, v, ((1, 2, 0),)), (floats(4), floats())),
        (lambda lax, x, v: lax.pad(x, v, ((-1, 2, 0), (1, -2, 0))), (floats(4, 3), floats())),
        (lambda lax, x, v: lax.pad(x, v, ((1, 0, 2), (0, 2, 1))), (floats(4, 3), floats())),
        (lambda lax, x, v: lax.pad(x, v, ((-2, 1, 1), (3, -1, 2))), (floats(4, 3), floats())),
        (lambda lax, x, v: lax.pad(x, v, ((1, 2, 0),)), (floats(0), floats())),
        (lambda lax, x, v: lax.pad(x, v, ()), (floats(), floats())),
        (lambda lax, x: lax.pad(x, np.float32(1), ((2, 0, 1),)), (floats(4),)),
    ],
    "concatenate": [
        (lambda lax, x, y: lax.concatenate([x, y], 0), (floats(3), floats(4))),
        (lambda lax, x, y, z: lax.concatenate([x, y, z, x], 1), (floats(2, 3), floats(2, 1), floats(2, 2))),
        (lambda lax, x: lax.concatenate([x, np.ones((2, 3), np.float32), x], 0), (floats(1, 3),)),
        (lambda lax, x, y: lax.concatenate([x, y], 0), (floats(0, 2), floats(3, 2))),
    ],
    "split": [
        (lambda lax, x: lax.split(x, (2, 5)), (floats(7),)),
        (lambda lax, x: lax.split(x, (1, 2, 3), 1), (floats(3, 6),)),
        (lambda lax, x: lax.split(x, (0, 4), 1)[1], (floats(3, 4),)),
    ],
    "iota": [(lambda lax, x: x * lax.broadcasted_iota(np.float32, (3, 4), 1), (floats(3, 4),))],
    "reduce_sum": [
        (lambda lax, x: lax.reduce_sum(x, axes=(1,)), (floats(3, 4),)),
        (lambda lax, x: lax.reduce_sum(x, axes=(0, 2)), (floats(3, 3, 3),)),
        (lambda lax, x: lax.reduce_sum(x, axes=()), (floats(3),)),
        (lambda lax, x: lax.reduce_sum(x, axes=(0,)), (floats(0, 3),)),
    ],
    "reduce_prod": [
        (lambda lax, x: lax.reduce_prod(x, axes=(1,)), (floats(3, 4),)),
        (lambda lax, x: lax.reduce_prod(x, axes=(0, 2)), (tied(3, 2, 4),)),
        (lambda lax, x: lax.reduce_prod(x, axes=(0,)), (np.array([0, 2, 3, 0, 1], np.float32),)),
        (lambda lax, x: lax.reduce_prod(x, axes=(0,)), (np.array([5, 2, 0, 1], np.float32),)),
        (lambda lax, x: lax.reduce_prod(x, axes=(0,)), (floats(0, 3),)),
        (lambda lax, x: lax.reduce_prod(x, axes=(0,)), (floats(1, 3),)),
    ],
    **{
        name: [
            (lambda lax, x, name=name: getattr(lax, name)(x, axes=(1,)), (floats(3, 4),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axes=(0, 2)), (tied(3, 3, 4),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axes=(0,)), (floats(1, 3),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axes=(0,)), (floats(5, 0),)),
        ]
        for name in ("reduce_max", "reduce_min")
    },
    **{
        name: [
            (lambda lax, x, name=name: getattr(lax, name)(x, axes=(1,)), (ints(_rng.integers(0, 9, (3, 4))),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axes=(0, 1)), (_rng.random((3, 4)) < 0.5,)),
        ]
        for name in ("reduce_and", "reduce_or", "reduce_xor")
    },
    **{
        name: [
            (lambda lax, x, name=name: getattr(lax, name)(x, 1, np.int32), (floats(3, 4),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, 0, np.int32), (tied(6, 3),)),
        ]
        for name in ("argmax", "argmin")
    },
    **{
        name: [
            (lambda lax, x, name=name: getattr(lax, name)(x), (floats(9),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=1), (floats(2, 5, 3),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=0, reverse=True), (tied(7, 2),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=1), (tied(3, 6),)),
            (lambda lax, x, name=name: getattr(lax, name)(x), (floats(1, 3),)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=1), (floats(3, 0),)),
        ]
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    },
    "dot_general": [
        (lambda lax, x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))), (floats(3, 4), floats(4, 5))),
        (lambda lax, x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))), (floats(2, 3, 4), floats(2, 4, 5))),
        (
            lambda lax, x, y: lax.dot_general(x, y, (((3, 1), (0, 2)), ((2,), (3,)))),
            (floats(2, 3, 4, 5), floats(5, 6, 3, 4)),
        ),
        (lambda lax, x, y: lax.dot_general(x, y, (((0, 1), (1, 0)), ((), ()))), (floats(3, 4), floats(4, 3))),
        (lambda lax, x, y: lax.dot_general(x, y, (((), ()), ((1, 0), (0, 2)))), (floats(3, 2, 4), floats(2, 5, 3))),
        (lambda lax, x, y: lax.dot_general(x, y, (((), ()), ((), ()))), (floats(3), floats(4))),
        (lambda lax, x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))), (floats(0, 2), floats(0, 3))),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (0,)), ((), ()))), (floats(3, 3),)),
        (
            lambda lax, x, y: lax.dot_general(
                *(lax.convert_element_type(v, np.float16) for v in (x, y)),
                (((1,), (0,)), ((), ())),
                preferred_element_type=np.float32,
            ),
            (tied(3, 4), tied(4, 5)),
        ),
    ],
    "gather": [],
    "scatter": [],
    "scatter-add": [],
    "scatter-mul": [],
    "scatter-min": [],
    "scatter-max": [],
    "dynamic_slice": [
        (lambda lax, x, i: lax.dynamic_slice(x, (i,), (3,)), (floats(7), ints(2))),
        (lambda lax, x, i, j: lax.dynamic_slice(x, (i, j), (2, 6)), (floats(5, 6), ints(9), ints(0))),
        (lambda lax, x, i, j: lax.dynamic_slice(x, (i, j), (1, 3)), (floats(5, 6), ints(-1), ints(2))),
        (lambda lax, x, i, j: lax.dynamic_slice(x, (i, j), (1, 1)), (floats(4, 4), ints(3), ints(1))),
        (lambda lax, x, i, j: lax.dynamic_slice(x, (i, j), (4, 4)), (floats(4, 4), ints(3), ints(1))),
        (lambda lax, x, i, j: lax.dynamic_slice(x, (i, j), (0, 2)), (floats(4, 4), ints(3), ints(1))),
    ],
    "dynamic_update_slice": [
        (lambda lax, x, u, i: lax.dynamic_update_slice(x, u, (i,)), (floats(7), floats(3), ints(2))),
        (
            lambda lax, x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
            (floats(5, 6), floats(2, 3), ints(9), ints(2)),
        ),
        (
            lambda lax, x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
            (floats(5, 6), floats(1, 6), ints(2), ints(2)),
        ),
        (
            lambda lax, x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
            (floats(5, 6), floats(1, 1), ints(1), ints(2)),
        ),
        (
            lambda lax, x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
            (floats(4, 4), floats(4, 4), ints(1), ints(2)),
        ),
    ],
    "sort": [
        (lambda lax, x: lax.sort(x), (floats(9),)),
        (lambda lax, x: lax.sort(x, dimension=0), (tied(6, 3),)),
        (lambda lax, k, x: lax.sort([k, x], dimension=1), (tied(3, 6), floats(3, 6))),
        (lambda lax, k, x, y: lax.sort([k, x, y], num_keys=2), (tied(9), tied(9), floats(9))),
        (lambda lax, i, x: lax.sort([i, x], num_keys=1), (ints(3, 1, 1, 0, 2), floats(5))),
        (lambda lax, x: lax.sort(x, dimension=0), (floats(0, 3),)),
    ],
    "top_k": [
        (lambda lax, x: lax.top_k(x, 3), (floats(7),)),
        (lambda lax, x: lax.top_k(x, 2), (tied(3, 6),)),
        (lambda lax, x: lax.top_k(x, 2, axis=0)[0], (floats(4, 3),)),
    ],
}


# (operand shape, indices, dimension numbers, window sizes)
_PLACES: list[tuple[tuple[int, ...], np.ndarray, tuple[Any, ...], tuple[int, ...]]] = [
    ((7,), ints([[3], [0], [9], [5]]), ((), (0,), (0,)), (1,)),
    ((7,), ints([[3], [0], [3], [-1]]), ((), (0,), (0,)), (1,)),
    ((5, 3), ints([[2], [4], [2]]), ((1,), (0,), (0,)), (1, 3)),
    ((5, 6), ints([[[0, 1], [4, 5]], [[4, 5], [2, 7]]]), ((), (0, 1), (0, 1)), (1, 1)),
    ((5, 6), ints([[3], [0]]), ((0,), (1,), (1,)), (5, 1)),
    ((5, 6), ints([[1, 0], [2, 3], [4, 1]]), ((1, 2), (), (1, 0)), (2, 3)),
    ((3, 6), ints([[[0], [5]], [[2], [2]], [[6], [1]]]), ((), (1,), (1,), (0,), (0,)), (1, 1)),
    ((3, 6), ints([[4], [0], [6]]), ((), (1,), (1,), (0,), (0,)), (1, 1)),
    ((4, 3, 2), ints([[[3]], [[0]], [[9]]]), ((2,), (0,), (0,), (1,), (0,)), (1, 1, 2)),
    ((5, 6), ints([2]), ((0,), (0,), (0,)), (1, 6)),
    ((5, 6), ints([2, 1]), ((0, 1), (), (1, 0)), (1, 1)),
    ((5, 6), ints([0, 3]), ((0, 1), (), (0, 1)), (5, 1)),
    ((5, 6), ints([[[1, 3]]]), ((2, 3), (), (0, 1)), (5, 1)),
    ((5, 6), np.zeros((0, 1), np.int32), ((1,), (0,), (0,)), (1, 6)),
    (
        (2, 4, 3),
        ints([[[1, 0], [0, 2], [3, 1]], [[9, 0], [1, 1], [2, 2]]]),
        ((), (1, 2), (1, 2), (0,), (0,)),
        (1, 1, 1),
    ),
]


def _indexed() -> None:
    for number, (shape, indices, numbers, sizes) in enumerate(_PLACES):
        for mode in ("clip", "fill", "promise_in_bounds"):
            limits = [shape[d] - sizes[d] for d in numbers[2]]
            bounded = np.clip(indices, 0, limits).astype(np.int32)
            inside = bounded if mode == "promise_in_bounds" else indices

            def gather(lax: Any, x: Any, i: Any, numbers: Any = numbers, sizes: Any = sizes, mode: Any = mode) -> Any:
                return lax.gather(x, i, lax.GatherDimensionNumbers(*numbers), sizes, mode=mode)

            CASES["gather"].append((gather, (floats(*shape), inside)))
            updates = np.shape(_shape_of(shape, inside, numbers, sizes))
            for name in ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"):

                def scatter(
                    lax: Any, x: Any, i: Any, u: Any, numbers: Any = numbers, mode: Any = mode, name: str = name
                ) -> Any:
                    dimension_numbers = lax.ScatterDimensionNumbers(*numbers)
                    return getattr(lax, name.replace("-", "_"))(
                        x, i, u, dimension_numbers, mode=mode, unique_indices=name == "scatter-mul"
                    )

                if mode != ("clip", "fill", "promise_in_bounds")[number % 3]:
                    continue
                if name == "scatter-mul" and number not in (0, 4, 7, 8, 9, 10, 11, 12, 13):
                    continue  # its derivative by the updates needs distinct indices
                extreme = name in ("scatter-min", "scatter-max")
                values = tied if extreme else floats
                # JAX's own rule of these two takes no notice of the mode, and gives nan where "clip" moves an index.
                places = bounded if extreme and mode == "clip" else inside
                CASES[name].append((scatter, (values(*shape), places, values(*updates))))


def _shape_of(shape: tuple[int, ...], indices: np.ndarray, numbers: tuple[Any, ...], sizes: tuple[int, ...]) -> Any:
    from fuser.lax import GatherDimensionNumbers, gather

    return gather(np.zeros(shape, np.float32), indices, GatherDimensionNumbers(*numbers), sizes)


_indexed()
