"""Which public names of the installed JAX fuser has: `python -m tests.surface` prints what is missing, by module.

Names are those of JAX's public modules, without modules, underscored names, and what a module imported from elsewhere.
`--write` brings the lists of docs/differences-from-jax.md up to date.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
import types
import warnings
from pathlib import Path
from typing import Any

from fuser import gaps

PAGE = Path(__file__).parent.parent / "docs" / "differences-from-jax.md"
VERSION = "0.10.2"
DELIBERATE, PENDING, SIGNATURES = "## Left out on purpose", "## Not yet there", "## Signatures that differ"
# What stands in JAX's modules because they use it: tools of theirs, by name.
TOOLS = frozenset(
    [
        "map",
        "zip",
        "safe_map",
        "safe_zip",
        "unsafe_map",
        "unsafe_zip",
        "unzip2",
        "partial",
        "partialmethod",
        "annotations",
        "split_list",
        "weakref_lru_cache",
        "subs_list",
        "debug_info",
        "flatten_fun_nokwargs",
        "tree_flatten",
        "tree_unflatten",
        "tree_map",
        "tree_leaves",
        "tree_structure",
        "treedef_is_leaf",
        "foreach",
        "wraps",
        "register_pytree_node",
        "ravel_pytree",
        "promote_dtypes",
        "promote_dtypes_inexact",
        "namedtuple",
        "wrap_name",
        "FlatTree",
        "nfold_vmap",
        "remaining",
        "typeof",
        "make_jaxpr",
        "vmap",
        "lru_cache",
        "dce_jaxpr",
        "canonicalize_axis",
        "api_boundary",
        "flatten_axes",
        "Array",
        "ArrayLike",
        "DTypeLike",
        "Shape",
        "NamedTuple",
        "DotDimensionNumbers",
        "custom_vjp",
        "sigmoid",
        "tanh",
        "PRNGKeyArray",
        "TYPE_CHECKING",
        "Dtype",
        "Buffer",
        "T",
        "broadcast_prefix",
    ]
)
# Where these are at home.
HOMES = {"", "api_util", "tree_util", "flatten_util", "typing", "numpy", "nn", "lax", "custom_derivatives", "core"}


def modules() -> list[str]:
    """The names of JAX's public modules, without "jax.", the whole ones that are left out on purpose excepted."""
    import jax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [m.name.removeprefix("jax.") for m in _walk(jax.__path__, "jax.")]
    kept = [m for m in found if not m.endswith("test_util") or m == "test_util"]
    return [
        "",
        *sorted(
            m
            for m in kept
            if not m.startswith(
                ("tools", "collect_profile", "experimental.pallas", "cloud_tpu", "extend.pallas", *_INNER)
            )
        ),
    ]


# Whose names their packages have too.
_INNER = tuple(
    f"experimental.sparse.{part}" for part in ("ad", "api", "bcoo", "bcsr", "coo", "csr", "random", "transform", "util")
)


def _walk(path: Any, prefix: str) -> Any:
    for found in pkgutil.iter_modules(path, prefix):
        name = found.name.rpartition(".")[2]
        own = found.name.removeprefix("jax.")
        if name.startswith("_") or own in gaps.MODULES or own == "experimental.array_serialization":
            continue
        yield found
        if found.ispkg:
            with contextlib.suppress(ImportError):
                yield from _walk(importlib.import_module(found.name).__path__, f"{found.name}.")


_FOREIGN = ("typing", "collections", "functools", "__future__", "contextlib", "dataclasses", "abc")


def public(module: str) -> list[str]:
    """The public names of a module of JAX that are its own."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = importlib.import_module(f"jax.{module}".rstrip("."))
    except ImportError:  # needs what is not installed
        return []
    names = []
    for name in dir(found):
        if name.startswith("_") or (name in TOOLS and module not in HOMES):
            continue
        value = getattr(found, name, None)
        home = getattr(value, "__module__", None) or ""
        foreign = isinstance(value, types.ModuleType) or home.startswith(_FOREIGN)
        if not foreign or (module == "typing" and name in ("ArrayLike", "DTypeLike")):
            names.append(name)
    return [*names, *(n for n in _deprecated(found) if n not in names)]


def _deprecated(module: Any) -> list[str]:
    """Names that a module of JAX gives away with a DeprecationWarning, and does not list."""
    known = getattr(module, "_deprecations", {})
    return [name for name, (_, value) in known.items() if value is not None and not name.startswith("_")]


def has(module: str, name: str) -> bool:
    """Whether fuser has the name."""
    try:
        found = importlib.import_module(f"fuser.{module}".rstrip("."))
    except ImportError:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return hasattr(found, name)


def survey() -> tuple[dict[str, list[str]], dict[str, list[str]], int]:
    """(deliberate, pending, all): by module the names that are left out on purpose and those still to come; how many there are."""
    deliberate: dict[str, list[str]] = {}
    pending: dict[str, list[str]] = {}
    count = 0
    for module in modules():
        for name in public(module):
            count += 1
            if not has(module, name):
                kind = pending if gaps.reason(module, name) is None else deliberate
                kind.setdefault(module, []).append(name)
    return deliberate, pending, count


def table() -> str:
    """The page's table of what is left out on purpose, from fuser.gaps."""
    rows = [(f"jax.{m}", *words) for m, words in gaps.MODULES.items()]
    rows += [
        (".".join(filter(None, ("jax", m, n))), *words) for m, names in gaps.NAMES.items() for n, words in names.items()
    ]
    lines = ["| name | why | instead |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| `{name}` | {why} | {instead} |" for name, why, instead in sorted(rows))])


def listing(pending: dict[str, list[str]]) -> str:
    """The page's list of what is still to come."""
    lines = []
    for module, names in sorted(pending.items()):
        lines.append(f"* `jax{'.' * bool(module)}{module}`: {', '.join(f'`{n}`' for n in names)}")
    return "\n".join(lines)


def sections(text: str) -> tuple[str, str]:
    """The two lists as they stand in the page."""
    _, _, rest = text.partition(DELIBERATE)
    first, _, second = rest.partition(PENDING)
    second, _, _ = second.partition("\n## ")
    body = lambda part, mark: "\n".join(line for line in part.splitlines() if line.startswith(mark))
    return body(first, "|"), body(second, "* ")


def write(pending: dict[str, list[str]]) -> None:
    """Both lists of the page, as they are now."""
    text = PAGE.read_text()
    for old, new in zip(sections(text), (table(), listing(pending))):
        text = text.replace(old, new) if old else text
    PAGE.write_text(text)


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    deliberate, pending, count = survey()
    for module, names in sorted(pending.items()):
        print(f"jax{'.' * bool(module)}{module}: {len(names)} missing: {' '.join(names)}")
    missing = sum(map(len, pending.values()))
    out = sum(map(len, deliberate.values()))
    print(f"{count - missing - out} of {count} public names; {out} left out on purpose, {missing} still to come")
    if "--write" in sys.argv:
        write(pending)


if __name__ == "__main__":
    main()
