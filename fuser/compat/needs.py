"""What an installed library asks of `jax`, read from its source, and which of those names fuser lacks.

A name counts as optional where the library asks for it inside of `try` or behind a test (`if hasattr(...)`, a version).
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fuser.compat.finder import PACKAGES

# Libraries for JAX whose metadata do not say that they need it.
UNDECLARED = ("dm-haiku", "jmp", "jaxtyping", "einops")


@dataclass
class Needs:
    """Names of JAX's that a library asks for; `missing` those without which it may fail, `optional` those that it asks for first."""

    library: str
    version: str
    names: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)


def libraries() -> list[str]:
    """The installed distributions that need JAX, by name."""
    found = {
        dist.metadata["Name"]
        for dist in importlib.metadata.distributions()
        if dist.metadata["Name"] in UNDECLARED or any(map(_needs_jax, dist.requires or ()))
    }
    return sorted(found - {*PACKAGES, "fuser"}, key=str.lower)


def _needs_jax(requirement: str) -> bool:
    return bool(re.match(r"jax(lib)?(?![\w.-])", requirement)) and "extra ==" not in requirement


def needs_of(library: str) -> Needs:
    """What the sources of an installed distribution ask for. Call it with fuser installed as jax."""
    dist = importlib.metadata.distribution(library)
    result = Needs(library, dist.version)
    certain: set[str] = set()
    for path in dist.files or ():
        if path.suffix != ".py" or _is_test(path.parts):
            continue
        try:
            tree = ast.parse(Path(str(path.locate())).read_text())
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        for name, guarded in asked(tree):
            result.names.add(name)
            if not guarded:
                certain.add(name)
    lacking = {name for name in result.names if not has(name)}
    result.missing, result.optional = lacking & certain, lacking - certain
    return result


def _is_test(parts: tuple[str, ...]) -> bool:
    return (
        parts[0] in ("tests", "docs", "examples")
        or any(p in ("tests", "testing") for p in parts)
        or parts[-1].endswith("_test.py")
    )


def asked(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """(a name of JAX's with its module, whether the program does without) for everything that a module's source asks for."""
    aliases: dict[str, str] = {}
    for node, guarded in _walk(tree, False):
        if isinstance(node, ast.Import):
            for entry in node.names:
                if entry.name.split(".")[0] in PACKAGES:
                    aliases[entry.asname or "jax"] = entry.name if entry.asname else "jax"
                    yield entry.name, guarded
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in PACKAGES:
            for entry in node.names:
                full = f"{node.module}.{entry.name}"
                aliases[entry.asname or entry.name] = full
                if entry.name != "*":
                    yield full, guarded
    for node, guarded in _walk(tree, False):
        chain = _chain(node)
        if chain is not None and chain[0] in aliases:
            name = ".".join((aliases[chain[0]], *chain[1:]))
            yield _up_to_values(name), guarded


def _walk(node: ast.AST, guarded: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it stands in a `try` or behind a test; of an attribute chain the whole alone."""
    yield node, guarded
    if _chain(node) is not None:
        return
    inside = guarded or isinstance(node, (ast.Try, ast.If, ast.IfExp))
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, inside)
        inside = inside or isinstance(node, ast.BoolOp)  # `hasattr(jax, name) and jax.name`


def _chain(node: ast.AST) -> list[str] | None:
    """["jax", "numpy", "sin"] for `jax.numpy.sin`; None for what is no chain of names."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) and names else None


def _up_to_values(name: str) -> str:
    """The name up to the first part that is no module: attributes of values are not JAX's names."""
    parts = name.split(".")
    for stop in range(1, len(parts)):
        if not is_module(".".join(parts[:stop])):
            return ".".join(parts[:stop])
    return name


@functools.cache
def is_module(name: str) -> bool:
    """Whether the name is a module of `jax`; of those that fuser lacks, whether it might be one."""
    if importlib.util.find_spec("jax") is None:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return not has(name)


@functools.cache
def has(name: str) -> bool:
    """Whether `jax` has the name."""
    parent, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
        return True
    except ImportError:
        pass
    try:
        return hasattr(importlib.import_module(parent), last) if parent else False
    except ImportError:
        return False
