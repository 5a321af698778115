"""`vectorize`: a function on core dimensions made one that broadcasts over all dimensions before them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fuser.ir.source import current_source
from fuser.lax.movement import reshape
from fuser.lax.values import as_value, broadcast_shapes
from fuser.transforms.vmap import vmap

Core = tuple[str, ...]
_CORE = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*,?)?\s*\)"
_LIST = rf"{_CORE}(?:\s*,\s*{_CORE})*"
_SIGNATURE = re.compile(rf"^\s*(?:{_LIST})?\s*->\s*{_LIST}\s*$")


def parse(signature: str) -> tuple[list[Core], list[Core]]:
    """The core dimensions of inputs and of outputs: `(m,n),(n)->(m)`. ValueError for what is no signature."""
    if not _SIGNATURE.match(signature):
        raise ValueError(f"not a gufunc signature: {signature!r}; write it as in '(m,n),(n)->(m)'")
    left, right = signature.split("->")
    cores = lambda part: [tuple(re.findall(r"\w+", core)) for core in re.findall(_CORE, part)]
    return cores(left), cores(right)


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Iterable[int | str] = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """`pyfunc` on arrays of any rank: it sees the core dimensions that `signature` names, and is mapped over the others.

    Without a signature it works on scalars. The other dimensions broadcast as in NumPy. `excluded` arguments (positions
    or keywords), keyword arguments and None are passed as they are. Extents of a core dimension must agree: ValueError.
    """
    excluded = frozenset(excluded)
    if any(not isinstance(e, (int, str)) for e in excluded):
        raise TypeError(
            "jax.numpy.vectorize can only exclude {integers, strings}: positions and names of arguments; got "
            f"excluded={set(excluded)}"
        )
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"excluded={set(excluded)!r} contains negative numbers; positions count from 0")
    cores = parse(signature) if signature is not None else None

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        absent = {n for n, arg in enumerate(args) if arg is None and n not in excluded}
        mapped = [n for n in range(len(args)) if n not in excluded | absent]
        named = [k for k in kwargs if k not in excluded]
        constant = list(args)

        def function(*values: Any) -> Any:
            for n, value in zip(mapped, values):
                constant[n] = value
            rest = dict(zip(named, values[len(mapped) :]))
            return pyfunc(*constant, **{**kwargs, **rest})

        values = [as_value(args[n], "vectorize") for n in mapped] + [as_value(kwargs[k], "vectorize") for k in named]
        return _apply(function, values, _without(cores, absent, args, excluded, signature), signature)

    return vectorized


def _without(cores: Any, absent: set[int], args: Any, excluded: frozenset[int | str], signature: str | None) -> Any:
    """The core dimensions of the arguments that are not None, which stands for scalars alone."""
    if cores is None or not absent:
        return cores
    named = [n for n in range(len(args)) if n not in excluded]
    if any(core for n, core in zip(named, cores[0]) if n in absent):
        raise ValueError(f"Cannot pass None at locations {absent} with signature={signature!r}")
    return [core for n, core in zip(named, cores[0]) if n not in absent], cores[1]


def _apply(function: Callable[..., Any], values: list[Any], cores: Any, signature: str | None) -> Any:
    inputs, outputs = cores if cores is not None else ([()] * len(values), None)
    if len(inputs) != len(values):
        raise TypeError(
            f"vectorize with signature {signature!r} takes {len(inputs)} arguments, got {len(values)} ({current_source().short})"
        )
    sizes: dict[str, int] = {}
    for core, value in zip(inputs, values):
        _core_sizes(sizes, core, value.shape, "an argument", signature)
    outer = broadcast_shapes(*(v.shape[: v.ndim - len(core)] for v, core in zip(values, inputs)), function="vectorize")

    def checked(*arguments: Any) -> Any:
        result = function(*arguments)
        if outputs is not None:
            _check_outputs(result, outputs, sizes, signature)
        return result

    mapped: Callable[..., Any] = checked
    arranged = [_arranged(v, len(core), outer) for v, core in zip(values, inputs)]
    for depth in range(len(outer)):
        dims = tuple(0 if present[len(outer) - 1 - depth] else None for _, present in arranged)
        mapped = vmap(mapped, in_axes=dims, axis_size=outer[len(outer) - 1 - depth])
    return mapped(*(value for value, _ in arranged))


def _arranged(value: Any, core: int, outer: Sequence[int]) -> tuple[Any, list[bool]]:
    """The value without the outer dimensions of extent 1 that repeat it, and which of the outer ones it has."""
    own = value.shape[: value.ndim - core]
    missing = len(outer) - len(own)
    present = [False] * missing + [e == o for e, o in zip(own, outer[missing:])]
    kept = [e for e, p in zip(own, present[missing:]) if p]
    return reshape(value, (*kept, *value.shape[value.ndim - core :])), present


def _core_sizes(sizes: dict[str, int], core: Core, shape: tuple[int, ...], what: str, signature: Any) -> None:
    if len(shape) < len(core):
        raise ValueError(
            f"vectorize with signature {signature!r}: {what} of shape {shape} lacks core dimensions ({', '.join(core)}) ({current_source().short})"
        )
    for name, extent in zip(core, shape[len(shape) - len(core) :]):
        if sizes.setdefault(name, int(name) if name.isdigit() else extent) != extent:
            raise ValueError(
                f"vectorize with signature {signature!r}: core dimension {name} has extents {sizes[name]} and {extent} ({current_source().short})"
            )


def _check_outputs(result: Any, outputs: list[Core], sizes: dict[str, int], signature: Any) -> None:
    results = result if len(outputs) > 1 else (result,)
    if len(outputs) > 1 and not (isinstance(result, tuple) and len(result) == len(outputs)):
        raise TypeError(
            f"vectorize with signature {signature!r} needs a tuple of {len(outputs)} results, got a {type(result).__name__} ({current_source().short})"
        )
    for core, one in zip(outputs, results):
        shape = as_value(one, "vectorize").shape if not isinstance(one, tuple) else None
        if shape is None or len(shape) != len(core):
            raise ValueError(
                f"output shape {shape} does not match core dimensions {tuple(core)} on vectorized function with signature "
                f"{signature!r} ({current_source().short})"
            )
        _core_sizes(sizes, core, shape, "a result", signature)
