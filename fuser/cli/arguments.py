"""Example arguments from text: `"f32[4096,4096], f64[10], i32, 3.0, axis=1"` in, Python arguments out.

The text is read as the arguments of a Python call in which dtypes are names: `f32[3,4]` is an array, `f32` a scalar of
that dtype, all else a Python literal. Tuples, lists and dicts of these nest. Contents are random from a fixed seed.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

from fuser.cli.output import UsageError
from fuser.ir.types import ALL_DTYPES, BOOL, is_complex, is_inexact, short_dtype

DTYPES = {short_dtype(dtype): dtype for dtype in ALL_DTYPES}
LARGEST_INTEGER = 10


def parse_arguments(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments. UsageError names the part that cannot be read."""
    try:
        scalars = re.sub(r"(\w)\[\s*\]", r"\1", text)  # f32[] is f32
        call = ast.parse(f"f({scalars})", mode="eval").body
    except (SyntaxError, ValueError):
        raise _unreadable(text) from None
    if not isinstance(call, ast.Call) or any(keyword.arg is None for keyword in call.keywords):
        raise _unreadable(text)
    generator = np.random.default_rng(0)
    args = tuple(_value(node, generator) for node in call.args)
    return args, {str(keyword.arg): _value(keyword.value, generator) for keyword in call.keywords}


def _value(node: ast.expr, generator: np.random.Generator) -> Any:
    if isinstance(node, ast.Name) and node.id in DTYPES:
        return random_array((), DTYPES[node.id], generator)[()]
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in DTYPES:
        return random_array(_shape(node), DTYPES[node.value.id], generator)
    if isinstance(node, (ast.Tuple, ast.List)):
        items = [_value(item, generator) for item in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_literal(key): _value(item, generator) for key, item in zip(node.keys, node.values)}  # type: ignore[arg-type]
    return _literal(node)


def _shape(node: ast.Subscript) -> tuple[int, ...]:
    shape = _literal(node.slice)
    shape = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise _unreadable(ast.unparse(node))
    return shape


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise _unreadable(ast.unparse(node)) from None


def random_array(shape: tuple[int, ...], dtype: np.dtype, generator: np.random.Generator) -> np.ndarray:
    """Uniform on [0, 1) for real and complex numbers, 0 to 9 for integers."""
    if dtype == BOOL:
        return generator.integers(0, 2, shape).astype(BOOL)
    if not is_inexact(dtype):
        return generator.integers(0, LARGEST_INTEGER, shape).astype(dtype)
    if is_complex(dtype):
        return (generator.random(shape) + 1j * generator.random(shape)).astype(dtype)
    single = generator.random(shape, np.float32) if dtype != np.float64 else generator.random(shape)
    return np.asarray(single).astype(dtype)


def _unreadable(text: str) -> UsageError:
    return UsageError(
        f"--args cannot read {text!r}; write a dtype with a shape (f32[4096,4096]), a dtype alone for a scalar (i32), or "
        f"a Python literal (3.0), separated by commas; the dtypes are {', '.join(DTYPES)}"
    )
