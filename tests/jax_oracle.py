"""Real JAX as an oracle: the function of jax.lax behind each primitive of this project, on NumPy arrays."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.types import KEY

# What conftest.py leaves out, where the last bits count.
AS_USERS_RUN_IT = (
    {"xla_cpu_use_fusion_emitters": True} if importlib.metadata.version("jaxlib").startswith("0.10.") else {}
)


def _jax() -> Any:
    import jax

    return jax


# Primitives whose function in jax.lax has another name or signature.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": lambda lax, x, y: lax.bitwise_and(x, y),
    "or": lambda lax, x, y: lax.bitwise_or(x, y),
    "xor": lambda lax, x, y: lax.bitwise_xor(x, y),
    "not": lambda lax, x: lax.bitwise_not(x),
    "round": lambda lax, x, rounding_method: lax.round(x, lax.RoundingMethod(rounding_method)),
    "convert_element_type": lambda lax, x, new_dtype, weak_type: lax.convert_element_type(x, new_dtype),
    "copy": lambda lax, x: x,
    "sharding_constraint": lambda lax, x, sharding: x,
    "transpose": lambda lax, x, permutation: lax.transpose(x, permutation),
    "reshape": lambda lax, x, new_sizes, dimensions=None: lax.reshape(x, new_sizes),
    "pad": lambda lax, x, value, padding_config: lax.pad(x, value, padding_config),
    "concatenate": lambda lax, *x, dimension: lax.concatenate(x, dimension),
    "broadcast_in_dim": lambda lax, x, shape, broadcast_dimensions: lax.broadcast_in_dim(
        x, shape, broadcast_dimensions
    ),
    "iota": lambda lax, dtype, shape, dimension: lax.broadcasted_iota(dtype, shape, dimension),
    "argmax": lambda lax, x, axes, index_dtype: lax.argmax(x, axes[0], index_dtype),
    "argmin": lambda lax, x, axes, index_dtype: lax.argmin(x, axes[0], index_dtype),
    "random_seed": lambda lax, seeds: _each("key", seeds),
    "random_fold_in": lambda lax, keys, numbers: _each("fold_in", keys, numbers),
    "random_hash": lambda lax, keys, high, low: _hashed(keys, high, low),
    "random_clone": lambda lax, keys: _each("clone", keys),
    "integer_pow": lambda lax, x, y: lax.integer_pow(x, y),
    "stop_gradient": lambda lax, x: lax.stop_gradient(x),
    "name": lambda lax, x, name: x,
    "logaddexp": lambda lax, x, y: _jax().numpy.logaddexp(x, y),
    "logaddexp2": lambda lax, x, y: _jax().numpy.logaddexp2(x, y),
    "xlogy": lambda lax, x, y: _jax().scipy.special.xlogy(x, y),
    "xlog1py": lambda lax, x, y: _jax().scipy.special.xlog1py(x, y),
    "xlogx": lambda lax, x: _jax().scipy.special.xlogy(x, x),
    "logit": lambda lax, x: _jax().scipy.special.logit(x),
    "log1mexp": lambda lax, x: _jax().nn.log1mexp(x),
    "regularized_incomplete_beta": lambda lax, a, b, x: lax.betainc(a, b, x),
}


def _each(name: str, *operands: Any) -> Any:
    """A function of jax.random on each element of arrays of one shape."""
    import jax

    flat = jax.vmap(getattr(jax.random, name))(*(o.ravel() for o in operands))
    return flat.reshape(operands[0].shape)


def _hashed(keys: Any, high: Any, low: Any) -> Any:
    import jax
    from jax.extend.random import threefry2x32_p

    words = jax.random.key_data(keys)
    return jax.random.wrap_key_data(jax.numpy.stack(threefry2x32_p.bind(words[..., 0], words[..., 1], high, low), -1))


# Primitives with arithmetic that jax.lax spells only as primitives.
_BOUND = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor")


def has(name: str) -> bool:
    """Whether JAX has the primitive under its name, or one that is known here."""
    return name in _FUNCTIONS or name in _BOUND or hasattr(_jax().lax, name)


def call(name: str, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The primitive in JAX; AttributeError where jax.lax has none of the name."""
    import jax

    if name in _FUNCTIONS:
        return _FUNCTIONS[name](jax.lax, *operands, **params)
    if name in _BOUND:
        more = {"out_sharding": None} if name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min") else {}
        return getattr(jax.lax, name + "_p").bind(*operands, axes=params["axes"], **more)
    return getattr(jax.lax, name)(*operands, **params)


def run(cases: list[tuple[str, tuple[np.ndarray, ...], dict[str, Any]]]) -> list[Any]:
    """The results of many primitives, compiled as one program with 64-bit types."""
    import jax

    with jax.enable_x64(True):
        arrays = [tuple(_array(a) for a in operands) for _, operands, _ in cases]

        def program(arrays: Any) -> Any:
            return [call(name, operands, params) for (name, _, params), operands in zip(cases, arrays)]

        return [
            _values(r) if not isinstance(r, (list, tuple)) else [_values(x) for x in r]
            for r in jax.jit(program, compiler_options=AS_USERS_RUN_IT)(arrays)
        ]


def _array(x: np.ndarray) -> Any:
    import jax

    return jax.random.wrap_key_data(x["fry"]) if x.dtype == KEY else jax.numpy.asarray(x)


def _values(x: Any) -> np.ndarray:
    import jax

    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.ascontiguousarray(jax.random.key_data(x)).view(KEY)[..., 0]
    return np.asarray(x)
