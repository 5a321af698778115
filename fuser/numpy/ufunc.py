"""`ufunc` and `frompyfunc`: functions of scalars made universal, with reduce, accumulate, at, reduceat and outer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser.lax.control import fori_loop, scan
from fuser.lax.values import as_value, axes_of, axis_of
from fuser.numpy import movement as V
from fuser.numpy.creation import asarray, full, iota
from fuser.numpy.maths import select
from fuser.numpy.vectorize import vectorize
from fuser.trace.core import type_of
from fuser.trace.stage import stage

__all__ = ["frompyfunc", "ufunc"]


class ufunc:
    """A function of `nin` scalars with `nout` results that broadcasts, as NumPy's universal functions do.

    `identity` is what `reduce` starts from. With two operands and one result it has reduce, accumulate, reduceat and outer.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        at: Callable[..., Any] | None = None,
        reduceat: Callable[..., Any] | None = None,
    ) -> None:
        self.__name__ = name or str(getattr(func, "__name__", "ufunc"))
        self.__doc__ = func.__doc__
        self._function = func
        self._nin, self._nout, self._identity = nin, nout, identity
        self._nargs = nin if nargs is None else nargs
        self._call = call or vectorize(func)
        self._own = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}

    _func = property(lambda self: self._function)
    nin = property(lambda self: self._nin, doc="The number of operands.")
    nout = property(lambda self: self._nout, doc="The number of results.")
    nargs = property(lambda self: self._nargs, doc="The number of positional arguments.")
    identity = property(lambda self: self._identity, doc="The value that changes nothing, or None.")

    def __hash__(self) -> int:
        return hash((self._func, self._nin, self._nout, self._identity))

    def __eq__(self, other: object) -> bool:
        mine = (self._func, self._nin, self._nout, self._identity)
        return isinstance(other, ufunc) and mine == (other._func, other._nin, other._nout, other._identity)

    def __repr__(self) -> str:
        return f"<fuser.numpy.ufunc '{self.__name__}'>"

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        if out is not None or where is not None:
            which = "out" if out is not None else "where"
            raise NotImplementedError(
                f"{which} argument of {self!r}: arrays are immutable, and all elements are computed"
            )
        return self._call(*args)

    def _binary(self, method: str) -> None:
        if self._nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs")
        if self._nout != 1:
            raise ValueError(f"{method} only supported for functions returning a single value")

    def reduce(
        self,
        a: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Any:
        """The function reduced along `axis` (of all elements for None), from `initial` or the identity on; ValueError without."""
        self._binary("reduce")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.reduce()")
        if initial is None and where is not None and self._identity is None:
            raise ValueError(
                f"reduction operation {self.__name__!r} does not have an identity, so to use a where mask one has to specify 'initial'."
            )
        if where is not None and asarray(where).dtype != bool:
            raise ValueError(f"where argument must have dtype=bool; got dtype={asarray(where).dtype}")
        if self._own["reduce"] is not None:
            options = {} if where is None else {"where": where}
            if initial is not None:
                options["initial"] = initial
            return self._own["reduce"](a, axis=axis, keepdims=keepdims, dtype=dtype, **options)
        x = asarray(a) if dtype is None else asarray(a).astype(dtype)
        axes = axes_of(axis, x.ndim, self.__name__)
        rows = self._rows(x, axes)
        chosen = None if where is None else self._rows(V.broadcast_to(asarray(where), x.shape), axes)
        start = self._identity if initial is None else initial
        if start is None and not rows.shape[0]:
            raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
        rows = rows.astype(self._result_dtype(x) if dtype is None else x.dtype)
        first = rows[0] if start is None else V.broadcast_to(asarray(start).astype(rows.dtype), rows.shape[1:])

        def step(n: Any, carry: Any) -> Any:
            found = self._call(carry, rows[n]).astype(carry.dtype)
            return found if chosen is None else select(chosen[n], found, carry)

        result = first if not rows.shape[0] else fori_loop(int(start is None), rows.shape[0], step, first)
        return V.reshape(result, tuple(1 if d in axes else e for d, e in enumerate(x.shape))) if keepdims else result

    @staticmethod
    def _rows(x: Any, axes: tuple[int, ...]) -> Any:
        """The axes as the first one, in row-major order."""
        kept = [d for d in range(x.ndim) if d not in axes]
        extents = (math.prod(x.shape[d] for d in axes), *(x.shape[d] for d in kept))
        return V.reshape(V.transpose(x, (*axes, *kept)), extents)

    def _result_dtype(self, x: Any) -> Any:
        aval = type_of(x).update(shape=())
        graph = stage(lambda a, b: [as_value(self._func(a, b))], [aval, aval])
        return graph.out_avals[0].dtype

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """The function reduced along `axis`, with all that comes on the way."""
        self._binary("accumulate")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.accumulate()")
        if self._own["accumulate"] is not None:
            return self._own["accumulate"](a, axis=axis, dtype=dtype)
        x = asarray(a) if dtype is None else asarray(a).astype(dtype)
        moved = V.moveaxis(x, axis_of(axis, x.ndim, self.__name__), 0)
        moved = moved.astype(self._result_dtype(x) if dtype is None else x.dtype)
        if not moved.shape[0]:
            return V.moveaxis(moved, 0, axis)

        def step(carry: Any, row: Any) -> Any:
            found = self._call(carry, row).astype(carry.dtype)
            return found, found

        _, rest = scan(step, moved[0], moved[1:])
        return V.moveaxis(V.concatenate([moved[:1], rest], 0), 0, axis)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """A new array with the function applied to the elements at `indices`, one after another; `inplace` must be False."""
        if inplace:
            raise NotImplementedError("ufunc.at: arrays are immutable; pass inplace=False and use the result")
        if self._own["at"] is not None:
            return self._own["at"](a, indices) if b is None else self._own["at"](a, indices, b)
        x = asarray(a)
        if b is None:
            return x.at[indices].apply(self._call)
        numbered = V.reshape(iota((x.size,), 0), x.shape)
        positions = numbered.at[indices].get(mode="fill", fill_value=x.size)
        flat, values = V.ravel(positions), V.ravel(V.broadcast_to(asarray(b), positions.shape))
        if not flat.shape[0] or not x.size:
            return x

        def step(n: Any, elements: Any) -> Any:
            position = flat[n]
            return elements.at[position].set(self._call(elements[position], values[n]).astype(x.dtype), mode="drop")

        return V.reshape(fori_loop(0, flat.shape[0], step, V.ravel(x)), x.shape)

    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """The function reduced over the slices of `axis` from each index up to the next; that element alone where it is not below."""
        self._binary("reduceat")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.reduceat()")
        if axis is None:
            raise ValueError("reduceat requires a single axis")
        if self._own["reduceat"] is not None:
            return self._own["reduceat"](a, indices, axis=axis, dtype=dtype)
        x = asarray(a) if dtype is None else asarray(a).astype(dtype)
        from fuser.numpy.maths import where

        starts = asarray(indices)
        moved = V.moveaxis(x, axis_of(axis, x.ndim, self.__name__), 0)
        ends = V.concatenate([starts[1:], full((1,), moved.shape[0], starts.dtype)])
        ends = where(ends > starts, ends, starts + 1)
        shape = (starts.shape[0],) + (1,) * (moved.ndim - 1)
        inside = lambda n: V.reshape((n > starts) & (n < ends), shape)
        body = lambda n, carry: where(inside(n), self._call(carry, moved[n][None]).astype(carry.dtype), carry)
        return V.moveaxis(fori_loop(0, moved.shape[0], body, moved[starts]), 0, axis)

    def outer(self, A: Any, B: Any, /) -> Any:
        """The function of all pairs of elements: shape (*A.shape, *B.shape)."""
        self._binary("outer")
        first, second = asarray(A), asarray(B)
        rows, columns = first.shape + (1,) * second.ndim, (1,) * first.ndim + second.shape
        return self._call(V.reshape(first, rows), V.reshape(second, columns))


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A universal function of `nin` operands and `nout` results from one of scalars, which is traced."""
    return ufunc(func, nin, nout, identity=identity)
