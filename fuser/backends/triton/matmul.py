"""Contractions taken apart: what of a product is whose axes, its operands' elements, and elementwise work on its result.

Whether a product is generated is a matter of seconds: cuBLASLt's arithmetic is faster, but a kernel saves writing and reading its result.
float32 means float32: TF32 is used where the user asks for it (`precision="tensorfloat32"`), and not in libraries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.product_cost import Extents, choose, epilogue_seconds, library_seconds
from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.index import ZERO, Affine, Axis, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.target import duration
from fuser.ir.types import FLOATS, bfloat16, short_dtype
from fuser.kernel.decompose import Decomposition
from fuser.kernel.kernel import Kernel, Param, Store, Sweep
from fuser.kernel.lower import Demand, Index, Sweeping
from fuser.ops.dot import algorithm, free_dimensions, tensor_float, window_product_p
from fuser.partition.group import FusionGroup, Layout

MULTIPLIED = (FLOATS[0], bfloat16, FLOATS[2])
MULTIPLIED_SMALL = tuple(spell.MATRIX_FLOATS)  # of 8 bits, into wider numbers
MULTIPLIED_INTEGERS = (np.dtype("int8"), np.dtype("uint8"))  # into integers of up to 32 bits, which wrap around
LONGEST_OF_BYTES = (1 << 17) - 1  # products of two int8 whose sum int32 holds, beyond which matrix units saturate
SHORTEST = 16  # the least extent that tl.dot takes
LIKE = 1.05  # times a library's time that a generated kernel may be expected to take and still run alone: estimates are no better


def refusal(eqn: Eqn) -> str | None:
    """Why a contraction runs as a library call; None if it becomes a kernel."""
    x = eqn.invars[0].aval
    (contracted, _), _ = eqn.params["dimension_numbers"]
    dtype, out = x.dtype, eqn.outvars[0].aval
    small = dtype in MULTIPLIED_SMALL and eqn.invars[1].aval.dtype == dtype and out.dtype in MULTIPLIED
    whole = dtype in MULTIPLIED_INTEGERS and out.dtype.kind in "iu" and out.dtype.itemsize <= 4
    if not small and not whole and (dtype not in MULTIPLIED or out.dtype not in (dtype, FLOATS[2])):
        return f"products of {short_dtype(dtype)} run in a library"
    if len(contracted) != 1 or out.size == 0 or algorithm(eqn.params.get("precision")):
        return "products over several or no dimensions, or by a given algorithm, run in a library"
    shortest = 1 if whole else SHORTEST
    if (length := x.shape[contracted[0]]) < shortest:
        return f"a product over {length} elements runs in a library; generated are those over {shortest} and more"
    if whole or eqn.primitive is window_product_p:  # a library would widen or copy the operands
        return None
    size = extents(eqn)
    generated, library = choose(size).seconds, library_seconds(size)
    if generated > library + epilogue_seconds(size):
        return f"a library is expected to take {duration(library)}, a generated kernel {duration(generated)}"
    return None


def slower_alone(eqn: Eqn) -> str | None:
    """Why a library should run a product that nothing has joined; None where it should not."""
    size = extents(eqn)
    generated, library = choose(size).seconds, library_seconds(size)
    if generated <= LIKE * library:
        return None
    return f"nothing joins it, and a library is expected to take {duration(library)}, a generated kernel {duration(generated)}"


def extents(eqn: Eqn) -> Extents:
    """The extents of a product over one dimension."""
    x, y, out = (v.aval for v in (*eqn.invars, eqn.outvars[0]))
    (dims, others), (batch, other_batch) = eqn.params["dimension_numbers"]
    total = lambda aval, chosen: math.prod(aval.shape[d] for d in chosen)
    m = total(x, free_dimensions(x.ndim, dims, batch))
    n = total(y, free_dimensions(y.ndim, others, other_batch))
    sizes = x.dtype.itemsize, out.dtype.itemsize
    return Extents(total(x, batch), m, n, total(x, dims), *sizes, _rounded(eqn))


def _rounded(eqn: Eqn) -> bool:
    """Whether operands are of float32 and may be rounded to TF32."""
    return bool(eqn.invars[0].aval.dtype == FLOATS[2] and tensor_float(eqn.params.get("precision")))


@dataclass(frozen=True)
class Parts:
    """A contraction taken apart: the axes of its result by kind, its operands' elements, and the kernel around them."""

    kernel: Kernel
    kinds: dict[str, frozenset[Axis]]  # of the result's axes: "batch", "m" (left operand), "n" (right)
    k: tuple[Axis, Axis]  # the contracted axis, as each side reads along it
    sides: tuple[Scalar, Scalar]
    orders: tuple[tuple[Scalar, ...], tuple[Scalar, ...]]
    epilogue: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    result: Scalar
    dtype: np.dtype  # of the operands
    tensor_float: bool  # whether these may be rounded to TF32

    @property
    def sums(self) -> np.dtype:
        """What products are added up in."""
        return np.dtype("int32") if self.dtype in MULTIPLIED_INTEGERS else FLOATS[2]

    @property
    def as_bytes(self) -> bool:
        """Whether operands are int8 whose products matrix units add up in int32 without saturation."""
        return self.dtype == MULTIPLIED_INTEGERS[0] and self.k[0].extent <= LONGEST_OF_BYTES

    @property
    def widened(self) -> bool:
        """Whether operands are integers that are multiplied as float16: a step's sums, at most 128 · 255², are exact in float32."""
        return self.dtype in MULTIPLIED_INTEGERS and not self.as_bytes


class _Demand(Demand):
    """Values of a contraction's group; the product itself is a leaf."""

    def __init__(self, group: FusionGroup) -> None:
        super().__init__(group)
        (self.dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
        self.result = Scalar("dot", (), self.dot.outvars[0].aval.dtype)

    def _compute(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        return self.result if operand is self.dot.outvars[0] else super()._compute(operand, index, mask)

    def side(self, number: int, contracted: Axis, others: Layout) -> Scalar:
        """The element of one operand: `others` are the axes along its batch and free dimensions, in order."""
        numbers = self.dot.params["dimension_numbers"]
        dims, batch = numbers[0][number], numbers[1][number]
        operand = self.dot.invars[number]
        free = free_dimensions(operand.aval.ndim, dims, batch)
        axes = dict(zip((*batch, *free, *dims), (*others, contracted), strict=True))
        index = tuple(ZERO if axes[d] is None else Affine.of(axes[d]) for d in range(operand.aval.ndim))  # type: ignore[arg-type]
        return self.value(operand, index, None)


def lower_product(group: FusionGroup) -> Parts:
    """The parts of a contraction group."""
    demand = _Demand(group)
    eqn, graph = demand.dot, group.graph
    labels = group.layout[eqn.outvars[0]]
    k = (_contracted(eqn, 0), _contracted(eqn, 1))
    batch, m, n = _kinds(eqn, labels)
    new = Decomposition(spell.TABLE.has)
    sides = (new.node(demand.side(0, k[0], (*batch, *m))), new.node(demand.side(1, k[1], (*batch, *n))))
    stores = [new.store(store) for store in _stores(demand, group)]
    orders = (_order([Store(0, ZERO, sides[0])]), _order([Store(0, ZERO, sides[1])]))
    epilogue = _order(stores)
    sweep = Sweep((*orders[0], *orders[1], *epilogue), tuple(stores), (), (), ())
    params = [Param(f"in{i}", v.aval.dtype, v.aval.shape, False) for i, v in enumerate(graph.invars)]
    params += [Param(f"out{i}", v.aval.dtype, v.aval.shape, True) for i, v in enumerate(dict.fromkeys(graph.outvars))]
    comments = tuple(dict.fromkeys(str(source) for source in group.sources if source.file))
    kernel = Kernel(group.name, tuple(params), group.parallel, k, (sweep,), comments)
    kinds = {"batch": _axes(batch), "m": _axes(m), "n": _axes(n)}
    dtype = eqn.invars[0].aval.dtype
    return Parts(kernel, kinds, k, sides, orders, epilogue, tuple(stores), demand.result, dtype, _rounded(eqn))


def _contracted(eqn: Eqn, side: int) -> Axis:
    return Axis(eqn.invars[side].aval.shape[eqn.params["dimension_numbers"][0][side][0]])


def _kinds(eqn: Eqn, labels: Layout) -> tuple[Layout, Layout, Layout]:
    """The result's labels apart: batch, from the left operand, from the right one."""
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    left = len(batch) + len(free_dimensions(eqn.invars[0].aval.ndim, contracted, batch))
    return labels[: len(batch)], labels[len(batch) : left], labels[left:]


def _axes(labels: Layout) -> frozenset[Axis]:
    return frozenset(a for a in labels if a is not None)


def _stores(demand: _Demand, group: FusionGroup) -> list[Store]:
    stores = []
    for number, var in enumerate(dict.fromkeys(group.graph.outvars)):
        assert isinstance(var, Var)
        index = tuple(ZERO if axis is None else Affine.of(axis) for axis in group.layout[var])
        offset = linearise(index, var.aval.shape)
        stores.append(Store(len(group.graph.invars) + number, offset, demand.value(var, index, None)))
    return stores


def _order(stores: list[Store]) -> tuple[Scalar, ...]:
    return Sweeping(()).cut(stores)[0].row
