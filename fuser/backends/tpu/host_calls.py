"""Calls of the host out of a TPU's program: Python functions (callbacks), foreign functions of C, checks that raise errors.

A file's text names each of them; `functions` gives what the names stand for. Those with an effect take and give a token
(`passes/tokens.py`), so that they happen once and in the order of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.backends.tpu import spell
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import KEY, ArrayType
from fuser.ops.callback import pure_callback_p
from fuser.ops.ffi import ffi_call_p
from fuser.runtime.array import to_numpy

PURE = (pure_callback_p, ffi_call_p)


class HostCall(NamedTuple):
    """An equation that the host computes, and the name of its function in the program's text."""

    name: str
    eqn: Eqn


def is_host_call(eqn: Eqn) -> bool:
    """Whether the equation is computed on the host, whatever the target."""
    return eqn.primitive in PURE or (eqn.primitive.effect and eqn.primitive.fusion is Fusion.LIBRARY)


def written(call: HostCall, operands: Sequence[str]) -> str:
    """The expression that calls the host; a tuple of the results."""
    through = "jax.pure_callback" if call.eqn.primitive in PURE else "jax.experimental.io_callback"
    shapes = "".join(f"{_described(v.aval)}, " for v in call.eqn.outvars)
    return f"{through}({call.name}, ({shapes}){''.join(f', {o}' for o in operands)})"


def _described(aval: ArrayType) -> str:
    shape, dtype = ((*aval.shape, 2), np.dtype(np.uint32)) if aval.dtype == KEY else (tuple(aval.shape), aval.dtype)
    return f"jax.ShapeDtypeStruct({shape}, {spell.storage(dtype)})"


class Failures(list[Exception]):
    """What functions on the host have raised: XLA hands on the text of an error alone."""

    def raised(self, otherwise: Exception) -> Exception:
        """The first error since the last time; `otherwise` where there was none."""
        found = self[0] if self else otherwise
        self.clear()
        return found


def functions(calls: Sequence[HostCall], failures: Failures) -> dict[str, Callable[..., Any]]:
    """What the names of a program's calls stand for: from arrays of JAX to ndarrays."""
    return {call.name: _function(call.eqn, failures) for call in calls}


def _function(eqn: Eqn, failures: Failures) -> Callable[..., Any]:
    rule, keys = eqn.primitive.rule("eval"), [v.aval.dtype == KEY for v in eqn.invars]

    def call(*arrays: Any) -> tuple[np.ndarray, ...]:
        given = [keys_of(a, v.aval.shape) if k else to_numpy(a) for a, v, k in zip(arrays, eqn.invars, keys)]
        try:
            found = rule(*given, **eqn.params)
        except Exception as error:
            failures.append(error)
            raise
        return tuple(words_of(f) if f.dtype == KEY else f for f in found)

    return call


def words_of(keys: Any) -> np.ndarray:
    """Random keys as the words that a program takes."""
    return np.asarray(keys)["fry"]


def keys_of(words: Any, shape: Sequence[int]) -> np.ndarray:
    """Words that a program gives as random keys."""
    return np.array(words, order="C").view(KEY).reshape(tuple(shape))
