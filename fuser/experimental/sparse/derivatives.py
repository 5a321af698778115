"""Derivatives with respect to sparse arrays: those of their data, arranged as the arrays are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fuser.experimental.sparse.base import is_sparse
from fuser.trace import tree
from fuser.transforms import grad as _grad
from fuser.transforms import jacobian as _jacobian
from fuser.transforms.vmap import vmap


def _with_data(value: Any, data: Any) -> Any:
    """A sparse array with other data; leading dimensions that its own has not are mapped over."""
    leaves, structure = tree.flatten(value)
    made = lambda d: tree.unflatten(structure, [d, *leaves[1:]])
    if data.ndim > leaves[0].ndim:
        extra = data.ndim - leaves[0].ndim
        build: Callable[..., Any] = made
        for _ in range(extra):
            build = vmap(build)
        return build(data)
    return made(data)


def _data(value: Any) -> Any:
    return tree.leaves(value)[0] if is_sparse(value) else value


def _sparse_aware(transform: Callable[..., Any], has_value: bool = False) -> Callable[..., Any]:
    """`transform`, whose arguments to differentiate may hold sparse arrays."""

    def transformed(
        fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any
    ) -> Any:
        @functools.wraps(fun)
        def call(*args: Any, **kwargs: Any) -> Any:
            numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
            numbers = tuple(n % len(args) for n in numbers)
            dense = [tree.map(_data, args[n], is_leaf=is_sparse) for n in numbers]

            def of_data(*data: Any) -> Any:
                whole = list(args)
                for n, part in zip(numbers, data):
                    whole[n] = _joined(args[n], part)
                return fun(*whole, **kwargs)

            found = transform(of_data, argnums=tuple(range(len(numbers))), has_aux=has_aux, **options)(*dense)
            first, second = found if has_value or has_aux else (None, found)
            derivative: Any = first if has_aux and not has_value else second
            parts = tuple(_joined(args[n], part) for n, part in zip(numbers, derivative))
            result = parts[0] if isinstance(argnums, int) else parts
            if has_value:
                return first, result
            return (result, second) if has_aux else result

        return call

    return transformed


def _joined(value: Any, data: Any) -> Any:
    """An argument with other data in its sparse arrays, and other arrays."""
    leaves, structure = tree.flatten(value, is_sparse)
    parts = tree.leaves(data)
    return tree.unflatten(structure, [_with_data(v, d) if is_sparse(v) else d for v, d in zip(leaves, parts)])


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Any:
    """As fuser.value_and_grad; the gradient with respect to a sparse array is one with the same indices."""
    return _sparse_aware(_grad.value_and_grad, True)(fun, argnums, has_aux, **kwargs)


def grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Any:
    """As fuser.grad; the gradient with respect to a sparse array is one with the same indices."""
    return _sparse_aware(_grad.grad)(fun, argnums, has_aux, **kwargs)


def jacfwd(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Any:
    """As fuser.jacfwd; the derivative with respect to a sparse array has its indices."""
    return _sparse_aware(_jacobian.jacfwd)(fun, argnums, has_aux, **kwargs)


def jacrev(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Any:
    """As fuser.jacrev; the derivative with respect to a sparse array has its indices."""
    return _sparse_aware(_jacobian.jacrev)(fun, argnums, has_aux, **kwargs)


jacobian = jacrev
