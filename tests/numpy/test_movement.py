"""Creation and movement against JAX: shapes, dtypes, weak types, values and refused arguments."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import Weak, numbers, precision, same

X = numbers(np.float32, (3, 4))
T = numbers(np.float32, (2, 3, 4))
V = np.arange(5)

MOVES = [
    ("reshape", X, (4, 3)),
    ("reshape", X, (2, -1)),
    ("reshape", X, -1),
    ("reshape", X, (6, 2), "F"),
    ("reshape", X, (5, 2)),
    ("reshape", X, (5, -1)),
    ("reshape", X, (-1, -1)),
    ("reshape", Weak(1.0), (1, 1)),
    ("ravel", T),
    ("ravel", T, "F"),
    ("transpose", T),
    ("transpose", T, (0, 2, 1)),
    ("transpose", T, (0, 1)),
    ("transpose", T, (-1, 0, 1)),
    ("matrix_transpose", T),
    ("matrix_transpose", V),
    ("swapaxes", T, 0, -1),
    ("swapaxes", T, 0, 3),
    ("moveaxis", T, 0, -1),
    ("moveaxis", T, (0, 1), (-1, 0)),
    ("moveaxis", T, (0, 1), (0,)),
    ("rollaxis", T, 2),
    ("rollaxis", T, 0, 3),
    ("squeeze", X[None, :, None]),
    ("squeeze", X[None, :, None], 0),
    ("squeeze", X[None, :, None], (0, -2)),
    ("squeeze", X, 0),
    ("expand_dims", X, 0),
    ("expand_dims", X, (0, -1)),
    ("expand_dims", X, 4),
    ("expand_dims", X, range(2)),
    ("broadcast_to", V, (3, 5)),
    ("broadcast_to", V, (5, 3)),
    ("broadcast_to", 1.5, (2,)),
    ("broadcast_arrays", V, X[:, :1]),
    ("concatenate", [X, X[:1]]),
    ("concatenate", [X, X[:, :2]], 1),
    ("concatenate", [X, V], None),
    ("concatenate", [X, V]),
    ("concatenate", [X, X.astype(np.int32)]),
    ("concatenate", [np.ones(2, np.int8), np.ones(2, np.float16)]),
    ("concatenate", []),
    ("concatenate", T),
    ("concatenate", [1.0, 2.0]),
    ("stack", [X, X]),
    ("stack", [X, X], -1),
    ("stack", [X, X], 3),
    ("stack", [X, T]),
    ("stack", [1, 2.5]),
    ("hstack", [V, V]),
    ("hstack", [X, X]),
    ("vstack", [V, V]),
    ("vstack", [X, X]),
    ("dstack", [V, V]),
    ("dstack", [X, X]),
    ("column_stack", [V, V]),
    ("column_stack", [X, np.arange(3)]),
    ("append", V, 7),
    ("append", X, X[:1], 0),
    ("split", np.arange(6), 3),
    ("split", np.arange(6), 4),
    ("split", np.arange(6), [2, 5]),
    ("split", np.arange(6), [2, 9, -1]),
    ("split", X, 2, 1),
    ("array_split", np.arange(7), 3),
    ("array_split", X, 3, 1),
    ("hsplit", X, 2),
    ("vsplit", X, 3),
    ("dsplit", T, 2),
    ("unstack", T),
    ("flip", T),
    ("flip", T, (0, -1)),
    ("fliplr", X),
    ("flipud", X),
    ("rot90", X),
    ("rot90", X, 2),
    ("rot90", T, 3, (1, 2)),
    ("roll", V, 2),
    ("roll", X, -1, 1),
    ("roll", X, (1, 2), (0, 1)),
    ("roll", X, 7),
    ("roll", X, 1, (0, 1)),
    ("tile", V, 2),
    ("tile", X, (2, 1, 2)),
    ("tile", X, (2,)),
    ("repeat", X, 2, 1),
    ("resize", V, (2, 4)),
    ("resize", V, 3),
    ("atleast_1d", 2.0),
    ("atleast_2d", V),
    ("atleast_3d", X, V),
    ("insert", V, 2, 7),
    ("insert", X, 1, 9, 1),
    ("insert", V, np.array([1, 3]), 7),
    ("delete", V, 2),
    ("delete", X, np.array([0, 2]), 1),
    ("delete", V, slice(1, 3)),
    ("diag", V),
    ("diag", V, -2),
    ("diag", X, 1),
    ("diag", T),
    ("diagflat", X, 1),
    ("diagonal", T, 1, 0, 2),
    ("diagonal", X, 9),
    ("trace", X),
    ("trace", T, 1, 1, 2),
    ("trace", np.ones((3, 3), np.int8)),
    ("tril", X, 1),
    ("tril", T),
    ("triu", X, -1),
    ("triu", V),
]


@pytest.mark.parametrize(
    "case",
    MOVES,
    ids=lambda case: "-".join(
        [case[0], *(str(np.shape(a)) if isinstance(a, np.ndarray) else str(a)[:12] for a in case[1:])]
    ),
)
def test_movement(case):
    name, *args = case
    same(name, *args)


CREATIONS = [
    ("zeros", 3),
    ("zeros", (2, 3), np.int8),
    ("zeros", (), bool),
    ("zeros", (2, -1)),
    ("zeros", 2.5),
    ("ones", (2,), np.complex64),
    ("ones", [2, 3]),
    ("full", (2, 3), 1.5),
    ("full", 3, 2),
    ("full", (2, 3), np.arange(3)),
    ("full", 3, 2.7, np.int32),
    ("full", 3, True),
    ("empty", 2),
    ("zeros_like", V),
    ("zeros_like", Weak(2.0)),
    ("ones_like", X, np.int32),
    ("ones_like", X, None, (2,)),
    ("full_like", V, 2.7),
    ("full_like", Weak(2), 3),
    ("full_like", X, 1j),
    ("full_like", V > 2, 3),
    ("empty_like", X),
    ("arange", 5),
    ("arange", 5.0),
    ("arange", 2.5),
    ("arange", 2, 7),
    ("arange", 7, 2),
    ("arange", 0, 1, 0.25),
    ("arange", 10, 0, -3),
    ("arange", 3, None, None, np.float32),
    ("arange", 1, 2, 0.3),
    ("arange", np.int8(3)),
    ("arange", 5, None, 2),
    ("linspace", 0, 1),
    ("linspace", 0, 1, 5, False),
    ("linspace", 0.0, 10, 7, True, True),
    ("linspace", 0, 10, 6, True, False, np.int32),
    ("linspace", np.zeros(3), np.arange(3.0), 4),
    ("linspace", 1, 2, 1),
    ("linspace", 1, 2, 0),
    ("linspace", 1, 2, -1),
    ("linspace", 0, 1j, 3),
    ("logspace", 0, 2, 5),
    ("geomspace", 1, 100, 5),
    ("geomspace", -1, -100, 3),
    ("eye", 3),
    ("eye", 3, 4, 1),
    ("eye", 3, 2, -1, np.int32),
    ("eye", -1),
    ("identity", 3),
    ("tri", 3, 4, 1),
    ("indices", (2, 3)),
    ("indices", (2, 3), np.float32, True),
    ("meshgrid", V, np.arange(3.0)),
    ("meshgrid", X, V),
    ("array", [[1, 2], [3, 4]]),
    ("array", [1, 2], np.float16),
    ("array", 3, None, True, "K", 2),
    ("array", None),
    ("array", [1, None]),
    ("array", "a"),
    ("array", [np.arange(3), np.ones(3, np.float32)]),
    ("asarray", X, np.int32),
    ("asarray", np.array([1.5, 2])),
    ("astype", X, np.int8),
    ("astype", X, bool),
    ("astype", X * 1j, np.float32),
    ("vander", np.arange(4.0), 3),
    ("vander", V, None, True),
]


@pytest.mark.parametrize(
    "case", CREATIONS, ids=lambda case: "-".join([case[0], *(str(a)[:14] for a in case[1:])]).replace("\n", " ")
)
def test_creation(case):
    name, *args = case
    same(name, *args)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
def test_meshgrid(indexing, sparse):
    same("meshgrid", V, np.arange(3.0), np.arange(2), indexing=indexing, sparse=sparse)


def test_creation_in_double_precision():
    with precision(True):
        for name, *args in [
            ("arange", 5),
            ("arange", 0.5, 3),
            ("linspace", 0, 1, 7),
            ("zeros", 3),
            ("eye", 2),
            ("array", [1.5, 2]),
        ]:
            same(name, *args)


@pytest.mark.parametrize(
    "mode",
    [
        "constant",
        "edge",
        "reflect",
        "symmetric",
        "wrap",
        "linear_ramp",
        "maximum",
        "minimum",
        "mean",
        "median",
        "empty",
        "other",
    ],
)
@pytest.mark.parametrize("width", [0, 2, (1, 3), ((1, 2), (0, 3))])
def test_pad(mode, width):
    if mode == "empty":
        same("pad", np.zeros((3, 4), np.float32), width, mode)
        return
    same("pad", X, width, mode)
    same("pad", np.arange(12).reshape(3, 4), width, mode)


def test_pad_options():
    same("pad", X, ((1, 2), (0, 3)), constant_values=((1, 2), (3, 4)))
    same("pad", X, 5, "reflect")
    same("pad", V, 9, "symmetric")
    same("pad", V, 9, "wrap")
    same("pad", V, 3, "reflect", reflect_type="odd")
    same("pad", X, 2, "mean", stat_length=2)
    same("pad", X, 2, "linear_ramp", end_values=5)
    same("pad", V, -1)
    same("pad", V, 2, "edge", constant_values=1)
    same("pad", V, 1.5)
