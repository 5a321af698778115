"""Which functions have another signature than JAX's, and why: `python -m tests.signatures` prints those without a reason.

`--write` brings the table of docs/differences-from-jax.md up to date.

Compared are names, kinds and defaults of parameters: a call that JAX takes is to mean the same here. Parameters that fuser
has besides, with defaults, are no difference; nor are sentinels, functions and classes as defaults, which are each library's own.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from typing import Any

from tests import surface

_UFUNC = "a universal function: JAX's signature is (*args, out, where) for each, fuser's names the operands"
_STAGES = "JAX's tracing and lowering take part in it"
# By name in JAX, without "jax.".
REASONS = {
    **{
        f"numpy.{name}": _UFUNC
        for name in [
            "add",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "logaddexp",
            "logaddexp2",
            "logical_and",
            "logical_or",
            "logical_xor",
            "maximum",
            "minimum",
            "multiply",
            "negative",
            "subtract",
        ]
    },
    "numpy.set_printoptions": "JAX hands on any argument, fuser names NumPy's",
    "lax.random_gamma_grad": "JAX hands on any arguments, fuser names both",
    "debug.breakpoint": "JAX hands on any option, fuser names those that there are",
    "debug.print": "_use_logging is JAX's own",
    "export.export": "_override_lowering_rules are rules for XLA's HLO",
    "extend.linear_util.transformation_with_aux2": "unk_names is of JAX's names for debugging",
    "interpreters.ad.linearize": _STAGES,
    "ref.swap": "the name is for messages",
}


def _shape(value: Any) -> Any:
    """A default as far as it can be compared."""
    plain = (type(None), bool, int, float, complex, str)
    if isinstance(value, tuple):
        return tuple(map(_shape, value))
    if isinstance(value, plain):
        return value
    if isinstance(value, type):
        return value.__name__
    return "own"


def _same_default(theirs: Any, ours: Any) -> bool:
    if theirs is inspect.Parameter.empty:
        return True  # one that fuser does not ask for
    a, b = _shape(theirs), _shape(ours)
    # What JAX marks by a sentinel fuser may mark by None.
    return a == b or (a == "own" and ours is None) or str(theirs) == str(ours)


def difference(theirs: inspect.Signature, ours: inspect.Signature) -> str | None:
    """What a call that JAX takes would find otherwise; None where there is nothing."""
    wanted, found = list(theirs.parameters.values()), dict(ours.parameters)
    order = [p.name for p in found.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional = [p.name for p in wanted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if order[: len(positional)] != positional:
        return f"positional parameters {positional}, found {order}"
    for parameter in wanted:
        own = found.get(parameter.name)
        if own is None:
            return f"no parameter {parameter.name}"
        accepted = own.kind == parameter.kind or own.kind == parameter.POSITIONAL_OR_KEYWORD
        if not accepted:
            return f"{parameter.name} is {own.kind.description}, not {parameter.kind.description}"
        if not _same_default(parameter.default, own.default):
            return f"{parameter.name} is {own.default!r} if left out, not {parameter.default!r}"
    required = [
        p.name for p in found.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    more = sorted(set(required) - {p.name for p in wanted})
    return f"{', '.join(more)} must be given" if more else None


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _functions() -> list[tuple[str, Any, Any]]:
    """(name, JAX's, fuser's) of every public function that both have."""
    found = []
    for module in surface.modules():
        for name in surface.public(module):
            if not surface.has(module, name):
                continue
            theirs = getattr(importlib.import_module(f"jax.{module}".rstrip(".")), name)
            ours = getattr(importlib.import_module(f"fuser.{module}".rstrip(".")), name)
            if callable(theirs) and not isinstance(theirs, type) and not isinstance(ours, type):
                found.append((f"{module}.{name}".lstrip("."), theirs, ours))
    return found


def differences() -> dict[str, str]:
    """By name, in what a signature differs; without the reasons."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, theirs, ours in _functions():
            wanted, own = _signature(theirs), _signature(ours)
            text = None if wanted is None else "no signature" if own is None else difference(wanted, own)
            if text is not None:
                found[name] = text
    return found


def undocumented() -> list[str]:
    """Functions that JAX documents and fuser does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [n for n, a, b in _functions() if type(a).__module__ != "typing" and a.__doc__ and not b.__doc__]


def table() -> str:
    """The page's table of signatures that differ on purpose."""
    lines = ["| function | why its signature differs |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `jax.{name}` | {why} |" for name, why in sorted(REASONS.items()))])


def written() -> str:
    """The page's table as it stands."""
    _, _, text = surface.PAGE.read_text().partition(surface.SIGNATURES)
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for name, text in sorted(differences().items()):
        if name not in REASONS:
            print(f"jax.{name}: {text}")
    if "--write" in sys.argv:
        surface.PAGE.write_text(surface.PAGE.read_text().replace(written(), table()))
