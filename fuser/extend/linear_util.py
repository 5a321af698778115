"""jax.extend.linear_util's names: functions with transformations around them, outermost first, and what they leave behind.

A transformation is a generator function: it yields the arguments for what is inside, is sent the results, and yields its own.
With 2 in its name it is a plain function that gets the inside function first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = [
    "StoreException",
    "WrappedFun",
    "cache",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "transformation_with_aux2",
    "wrap_init",
]

_EMPTY = object()


class StoreException(Exception):
    """A store was read before it was filled, or filled twice."""


class Store:
    """Holds one value, written once."""

    def __init__(self) -> None:
        self._value: Any = _EMPTY

    def store(self, value: Any) -> None:
        """Keep `value`. StoreException where there is one."""
        if self._value is not _EMPTY:
            raise StoreException("Store occupied")
        self._value = value

    def reset(self) -> None:
        """Forget the value."""
        self._value = _EMPTY

    @property
    def val(self) -> Any:
        """The value. StoreException where there is none."""
        if self._value is _EMPTY:
            raise StoreException("Store empty")
        return self._value

    def __bool__(self) -> bool:
        return self._value is not _EMPTY


class WrappedFun:
    """A function `f` inside transformations: `call_wrapped(*args)` runs them all."""

    def __init__(
        self,
        f: Callable[..., Any],
        transforms: tuple[Any, ...],
        stores: tuple[Any, ...],
        params: tuple[Any, ...],
        debug_info: Any = None,
    ) -> None:
        self.f, self.transforms, self.stores, self.params, self.debug_info = f, transforms, stores, params, debug_info

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "<unnamed wrapped function>")

    def wrap(self, transform: Any, out_store: Store | None) -> WrappedFun:
        """This inside one transformation more: a function of the inside function and the arguments."""
        return WrappedFun(
            self.f, (transform, *self.transforms), (out_store, *self.stores), self.params, self.debug_info
        )

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the outermost transformation."""
        inside: Callable[..., Any] = functools.partial(self.f, **dict(self.params))
        for transform in reversed(self.transforms):
            inside = functools.partial(transform, inside)
        return inside(*args, **kwargs)

    def populate_stores(self, stores: tuple[Any, ...]) -> None:
        """Fill this function's stores from those of an equal one."""
        for own, other in zip(self.stores, stores):
            if own is not None:
                own.store(other.val)

    def __repr__(self) -> str:
        return f"Wrapped function:\n{self.transforms}\nCore: {self.__name__}\n"

    def __hash__(self) -> int:
        return hash((self.f, self.transforms, self.params))

    def __eq__(self, other: object) -> bool:
        mine = (self.f, self.transforms, self.params)
        return isinstance(other, WrappedFun) and mine == (other.f, other.transforms, other.params)


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None) -> WrappedFun:
    """A function without transformations; `params` are keyword arguments for it."""
    return WrappedFun(f, (), (), () if params is None else tuple(sorted(params.items())), debug_info)


def _run(
    generator: Callable[..., Any],
    static: tuple[Any, ...],
    store: Store | None,
    inside: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    steps = generator(*static, *args, **kwargs)
    inner_args, inner_kwargs = next(steps)
    result = steps.send(inside(*inner_args, **inner_kwargs))
    if store is not None:
        result, aux = result
        store.store(aux)
    return result


def transformation(gen: Callable[..., Any], fun: WrappedFun | None = None, *gen_static_args: Any) -> Any:
    """A generator as a transformation: `transformation(gen, fun, *static)`, or a decorator whose function takes (fun, *static)."""
    if fun is None:
        return functools.partial(transformation, gen)
    return fun.wrap(functools.partial(_run, gen, gen_static_args, None), None)


def transformation_with_aux(
    gen: Callable[..., Any], fun: WrappedFun | None = None, *gen_static_args: Any, use_eq_store: bool = False
) -> Any:
    """As `transformation`, for a generator whose last value is (results, aux): (the function, a function that gives aux)."""
    if fun is None:
        return functools.partial(transformation_with_aux, gen)
    store = Store()
    return fun.wrap(functools.partial(_run, gen, gen_static_args, store), store), lambda: store.val


def transformation2(gen: Callable[..., Any], fun: WrappedFun | None = None, *gen_static_args: Any) -> Any:
    """A function `gen(f, *static, *args)` as a transformation; see `transformation`."""
    if fun is None:
        return functools.partial(transformation2, gen)
    return fun.wrap(lambda inside, *args, **kwargs: gen(inside, *gen_static_args, *args, **kwargs), None)


def transformation_with_aux2(
    gen: Callable[..., Any], fun: WrappedFun | None = None, *gen_static_args: Any, use_eq_store: bool = False
) -> Any:
    """As `transformation2`, for a function `gen(f, store, *static, *args)` that writes aux by `store.store(aux)`."""
    if fun is None:
        return functools.partial(transformation_with_aux2, gen)
    store = Store()
    wrapped = fun.wrap(lambda inside, *args, **kwargs: gen(inside, store, *gen_static_args, *args, **kwargs), store)
    return wrapped, lambda: store.val


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """(True, the first aux) where its store is filled, else (False, the second). StoreException unless exactly one is."""
    try:
        first = aux1()
    except StoreException:
        try:
            return False, aux2()
        except StoreException:
            raise StoreException("neither store occupied") from None
    try:
        aux2()
    except StoreException:
        return True, first
    raise StoreException("both stores occupied")


def cache(call: Callable[..., Any], *, explain: Any = None) -> Callable[..., Any]:
    """`call(wrapped_fun, *args)` with its results kept by function, transformations, parameters and arguments."""
    known: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    @functools.wraps(call)
    def cached(fun: WrappedFun, *args: Any) -> Any:
        key = (fun.transforms, fun.params, fun.f, args)
        if key in known:
            result, stores = known[key]
            fun.populate_stores(stores)
            return result
        result = call(fun, *args)
        known[key] = (result, fun.stores)
        return result

    cached.cache_clear = known.clear  # type: ignore[attr-defined]
    return cached
