"""Index maps: which loop axis runs along each dimension, read off the same `lower` rules that kernels are made with.

`View` is the way from a value through movement equations to an operand. Where it only permutes, adds or drops whole
dimensions it is transparent, and axes can be matched through it; otherwise it is opaque.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from fuser.ir import scalar as S
from fuser.ir.graph import Eqn, Literal, Operand, Var
from fuser.ir.index import Affine, Axis, linearise
from fuser.ir.primitive import VIEWS, Fusion, Movement, Primitive
from fuser.ir.scalar import Scalar
from fuser.ir.types import KEY, ArrayType, is_key

Shift = tuple[int, ...]  # how far along each dimension an array is read from the running element
# Dimension of the operand that runs along each dimension of the source; None for an extent of 1.
DimensionMap = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class View:
    """An operand as seen from the value it is made of.

    `source` is that value (a Var that is no view itself, or None for iotas and literals); `path` the movement
    equations between; `dimensions` the transparent map, or None where the view is opaque; `dense` whether elements keep
    their order in memory, so that the view costs nothing at all; `shift` how far each element of the source lies
    from the operand's along every dimension, where that is one distance for all.
    """

    source: Var | None
    path: tuple[Eqn, ...]
    dimensions: DimensionMap | None
    dense: bool = False
    shift: tuple[int, ...] | None = None

    @property
    def barriers(self) -> set[tuple[Var, int]]:
        """The source with the scope of each optimization barrier on the way."""
        if self.source is None:
            return set()
        return {(self.source, e.params["scope"]) for e in self.path if e.primitive.movement is Movement.BARRIER}


def is_view(eqn: Eqn) -> bool:
    """Whether the equation is pure index arithmetic on at most one operand, and so is never computed by itself: keys made
    of keys too, which are cheap beside the numbers drawn from them."""
    if eqn.primitive.fusion is not Fusion.MOVEMENT:
        return False
    operands = [v for v in eqn.invars if isinstance(v, Var)]
    return len(operands) == 0 or (len(eqn.invars) == 1 and eqn.primitive.movement in VIEWS and not _of_wide_keys(eqn))


def _of_wide_keys(eqn: Eqn) -> bool:
    """Whether words are made of keys that no kernel holds, or those of words."""
    derives = eqn.primitive.movement is Movement.DERIVE
    return derives and any(is_key(v.aval.dtype) and v.aval.dtype != KEY for v in (*eqn.invars, *eqn.outvars))


class Views:
    """Resolves operands through movement equations; each variable is resolved once."""

    def __init__(self, eqns: tuple[Eqn, ...]) -> None:
        self.eqn_of = {var: eqn for eqn in eqns if is_view(eqn) for var in eqn.outvars}
        self.known: dict[Var, View] = {}

    def __call__(self, operand: Operand) -> View:
        """The view behind an operand; a variable that no movement makes is its own source."""
        if isinstance(operand, Literal):
            return View(None, (), ())
        found = self.known.get(operand)
        if found is not None:
            return found
        chain = [operand]  # down to what is known or no view, resolved from there up
        while (eqn := self.eqn_of.get(chain[-1])) is not None:
            inner = next((v for v in eqn.invars if isinstance(v, Var)), None)
            if inner is None or inner in self.known:
                break
            chain.append(inner)
        for var in reversed(chain):
            self.known[var] = self._resolve(var)
        return self.known[operand]

    def windows(self, operand: Operand) -> Eqn | None:
        """The equation that makes `operand`, where that is windows of an array."""
        eqn = self.eqn_of.get(operand) if isinstance(operand, Var) else None
        return eqn if eqn is not None and eqn.primitive.movement is Movement.WINDOWS else None

    def _resolve(self, var: Var) -> View:
        eqn = self.eqn_of.get(var)
        if eqn is None:
            identity = tuple(None if e == 1 else d for d, e in enumerate(var.aval.shape))
            return View(var, (), identity, True, (0,) * var.aval.ndim)
        inputs = [v for v in eqn.invars if isinstance(v, Var)]
        if not inputs:
            return View(None, (eqn,), None)
        inner = self(inputs[0])
        if inner.source is None:
            return View(None, (*inner.path, eqn), None)
        step, dense, shift = step_map(eqn, var)
        through: DimensionMap | None = None
        if inner.dimensions is not None and step is not None:
            through = tuple(None if d is None else step[d] for d in inner.dimensions)
            if any(t is None and e != 1 for t, e in zip(through, inner.source.aval.shape)):
                through = None
        return View(inner.source, (*inner.path, eqn), through, inner.dense and dense, composed(inner.shift, shift))


def step_map(eqn: Eqn, var: Var) -> tuple[DimensionMap | None, bool, Shift | None]:
    """Of one movement equation: its transparent map (None if opaque), whether it keeps the order of elements, and how far it shifts them."""
    output = eqn.outvars.index(var) if eqn.primitive.multiple_results else -1
    params = tuple(sorted((k, _hashable(v)) for k, v in eqn.params.items()))
    return _step_map(eqn.primitive, params, tuple(v.aval for v in eqn.invars), var.aval, output)


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=65536)
def _step_map(
    primitive: Primitive,
    params: tuple[tuple[str, object], ...],
    avals: tuple[ArrayType, ...],
    out: ArrayType,
    output: int,
) -> tuple[DimensionMap | None, bool, Shift | None]:
    axes = [Axis(extent) for extent in out.shape]
    index = tuple(Affine.of(axis) for axis in axes)
    inner = _read_at(primitive, dict(params), avals, output, index)
    shape = avals[0].shape
    dense = out.size == avals[0].size and linearise(inner, shape) == linearise(index, out.shape)
    return _dimension_map(inner, shape, axes), dense and primitive.movement is not Movement.DERIVE, _shift(inner, axes)


def _dimension_map(index: tuple[Affine, ...], shape: tuple[int, ...], axes: Sequence[Axis]) -> DimensionMap | None:
    """Which of `axes` runs along each dimension of an array that is read at `index`; None where that is no such map."""
    dimensions: list[int | None] = []
    for extent, i in zip(shape, index):
        axis = i.axis()
        if extent == 1:
            dimensions.append(None)
        elif axis is not None and axis.extent == extent and axes.index(axis) not in dimensions:
            dimensions.append(axes.index(axis))
        else:
            return None
    return tuple(dimensions)


def _shift(index: tuple[Affine, ...], axes: Sequence[Axis]) -> Shift | None:
    """How far along each of `axes` an array is read that is read at `index`; None where that is no one distance."""
    near = len(index) == len(axes) and all(i.terms == ((x, 1),) for i, x in zip(index, axes) if x.extent > 1)
    return tuple(i.offset for i in index) if near else None


def is_shift(index: Hashable) -> TypeGuard[Shift]:
    """Whether an index is a constant distance along each dimension."""
    return isinstance(index, tuple) and all(isinstance(step, int) for step in index)


def composed(first: Shift | None, second: Shift | None) -> Shift | None:
    """One shift after the other; None where one of them is none, or of other dimensions."""
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(x + y for x, y in zip(first, second))


def dimension_maps(eqn: Eqn) -> tuple[DimensionMap | None, ...]:
    """Of a movement that is no view, by operand: its map where every element of the result reads it at one known index,
    as a gather reads its indices; None where it is read at computed indices, at several, or only here and there."""
    params = tuple(sorted((k, _hashable(v)) for k, v in eqn.params.items()))
    return _dimension_maps(eqn.primitive, params, tuple(v.aval for v in eqn.invars), eqn.outvars[0].aval)


@lru_cache(maxsize=65536)
def _dimension_maps(
    primitive: Primitive, params: tuple[tuple[str, object], ...], avals: tuple[ArrayType, ...], out: ArrayType
) -> tuple[DimensionMap | None, ...]:
    axes = [Axis(extent) for extent in out.shape]
    seen: dict[int, set[DimensionMap | None]] = {}

    def read(number: int, index: tuple[Affine, ...], mask: Scalar | None = None) -> Scalar:
        found = _dimension_map(index, avals[number].shape, axes) if mask is None else None
        seen.setdefault(number, set()).add(found)
        return Scalar("input", (), avals[number].dtype)

    primitive.rule("lower")(read, tuple(Affine.of(axis) for axis in axes), *avals, **dict(params))
    return tuple(next(iter(seen[n])) if len(seen.get(n, ())) == 1 else None for n in range(len(avals)))


def shifts(eqn: Eqn) -> tuple[Shift | None, ...]:
    """Of a movement that is no view, by operand: how far it is read from the place of the result's element, where that is one distance."""
    params = tuple(sorted((k, _hashable(v)) for k, v in eqn.params.items()))
    return _shifts(eqn.primitive, params, tuple(v.aval for v in eqn.invars), eqn.outvars[0].aval)


@lru_cache(maxsize=65536)
def _shifts(
    primitive: Primitive, params: tuple[tuple[str, object], ...], avals: tuple[ArrayType, ...], out: ArrayType
) -> tuple[Shift | None, ...]:
    axes = [Axis(extent) for extent in out.shape]
    seen: dict[int, set[Shift | None]] = {}

    def read(number: int, index: tuple[Affine, ...], mask: Scalar | None = None) -> Scalar:
        seen.setdefault(number, set()).add(_shift(index, axes))
        return Scalar("input", (), avals[number].dtype)

    primitive.rule("lower")(read, tuple(Affine.of(axis) for axis in axes), *avals, **dict(params))
    return tuple(next(iter(seen[n])) if len(seen.get(n, ())) == 1 else None for n in range(len(avals)))


def _read_at(
    primitive: Primitive, params: dict[str, Any], avals: tuple[ArrayType, ...], output: int, index: tuple[Affine, ...]
) -> tuple[Affine, ...]:
    """Where a movement reads its operand for the element of its result at `index`."""
    seen: list[tuple[Affine, ...]] = []

    def read(number: int, inner: tuple[Affine, ...], mask: Scalar | None = None) -> Scalar:
        seen.append(inner)
        return S.constant(0, avals[number].dtype)

    more = {} if output < 0 else {"output": output}
    primitive.rule("lower")(read, index, *avals, **params, **more)
    return seen[0]


def source_offset(view: View, operand: Operand, axes: Sequence[Axis]) -> Affine | None:
    """Where in its dense source the element of an operand lies whose index these axes are; None if it is made of it."""
    assert view.source is not None
    index = tuple(Affine.of(axis) for axis in axes)
    for eqn in reversed(view.path):
        if eqn.primitive.movement is Movement.DERIVE:
            return None
        output = eqn.outvars.index(operand) if eqn.primitive.multiple_results else -1  # type: ignore[arg-type]
        index = _read_at(eqn.primitive, eqn.params, tuple(v.aval for v in eqn.invars), output, index)
        operand = next(v for v in eqn.invars if isinstance(v, Var))
    return linearise(index, view.source.aval.shape)
