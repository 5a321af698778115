"""Files that nobody wrote: saved functions with something changed, whose digest is right, so that reading goes deep.

`python -m tests.export.mutations 100000` tries so many, and calls in NumPy those few that load.
"""

from __future__ import annotations

import copy
import json
import math
import random
import sys
from typing import Any

import numpy as np

from fuser import pallas as pl
from fuser.errors import DeserializationError
from fuser.export import Exported, deserialize, export, file
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import graphs_in
from tests.export.programs import PROGRAMS

MOST_CALLED = 1 << 14  # elements of the largest value of a function that is called
ATOMS = [
    0,
    1,
    -1,
    2,
    7,
    1 << 31,
    1 << 62,
    1 << 80,
    -(1 << 70),
    True,
    None,
    "",
    "f32",
    "i32",
    "key<fry>",
    "scan",
    "*",
    "while",
    [],
    {},
]
DEEP = "[" * 4000 + "]" * 4000


def blobs() -> list[bytes]:
    """The files that mutations start from."""
    from fuser import jit

    programs = [*PROGRAMS.values(), (updates, (np.arange(8, dtype=np.int32), np.zeros(9, np.int32)))]
    return [bytes(export(jit(f))(*args).serialize()) for f, args in programs]


def updates(at: Any, start: Any) -> Any:
    """Atomic updates in a kernel by hand, with options of its launch."""

    def kernel(at_ref: Any, start_ref: Any, o_ref: Any) -> None:
        pl.atomic_max(o_ref, (at_ref[...],), at_ref[...] * 2, mask=at_ref[...] > 2)

    own, whole = pl.BlockSpec((4,), lambda i: (i,)), pl.BlockSpec((9,), lambda i: (0,))
    return pl.pallas_call(
        kernel, start, grid=2, in_specs=[own, whole], out_specs=whole, input_output_aliases={1: 0},
        compiler_params=pl.CompilerParams(num_warps=4),
    )(at, start)  # fmt: skip


def mutated(blob: bytes, rng: random.Random) -> bytes:
    """The file with one or a few things changed."""
    said, contents = file.read(blob)
    kind = rng.randrange(10)
    if kind == 0:  # bytes of the whole, digest and all
        data = bytearray(blob)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.3 else bytes(data)
    if kind == 1:  # bytes of the text, with a new digest
        data = bytearray(json.dumps(said).encode())
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b'[]{}",:0123456789aefnu')
        return _packed(bytes(data), contents)
    if kind == 2:
        contents = contents[: rng.randrange(len(contents) + 1)] + rng.randbytes(rng.randrange(8))
    said = copy.deepcopy(said)
    for _ in range(rng.randrange(1, 4)):
        _change(said, rng)
    text = json.dumps(said)
    if kind == 3:
        text = text.replace('"out":', f'"out":{DEEP},"else":', 1)
    return _packed(text.encode(), contents)


def _packed(text: bytes, contents: bytes) -> bytes:
    import hashlib

    return (
        file._HEAD.pack(file.MAGIC, file.VERSION, len(text), hashlib.sha256(text + contents).digest()) + text + contents
    )


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, inner in items:
            found.append((node, key))
            stack.append(inner)
    return found


def _change(said: Any, rng: random.Random) -> None:
    places = _places(said)
    node, key = rng.choice(places)
    value = node[key]
    how = rng.randrange(6)
    if how == 0:
        node[key] = copy.deepcopy(rng.choice(ATOMS))
    elif how == 1 and isinstance(value, int):
        node[key] = value + rng.choice([-2, -1, 1, 2, 5])
    elif how == 2 and isinstance(node, list):
        node.insert(key, copy.deepcopy(value))
    elif how == 3:
        del node[key]
    else:  # what stands elsewhere
        other, at = rng.choice(places)
        if at in range(len(other)) if isinstance(other, list) else at in other:
            node[key] = copy.deepcopy(other[at])


def attempt(blob: bytes) -> bool:
    """Load the file; call what loads on zeros, in NumPy. Whether it loaded. Anything but DeserializationError passes through."""
    try:
        loaded = deserialize(blob)
    except DeserializationError:
        return False
    if _largest(loaded.graph) <= MOST_CALLED:
        called(loaded)
    return True


def called(loaded: Exported) -> None:
    """The function by the reference rules, on zeros; what a rule refuses is refused."""
    try:
        with np.errstate(all="ignore"):
            evaluate(_bounded(loaded.graph), [np.zeros(a.shape, a.dtype) for a in loaded.in_avals])
    except Exception:
        return


def _bounded(graph: Any) -> Any:
    if any(eqn.primitive.name == "while" for eqn in graph.eqns) or any(
        graphs_in(e.params)
        for e in graph.eqns
        if e.params.get("length", 0) > 99 or math.prod(e.params.get("grid", ())) > 99
    ):
        raise ValueError("it may not end")
    return graph


def _largest(graph: Any) -> int:
    own = [v.aval.size for eqn in graph.eqns for v in eqn.outvars]
    inner = [_largest(g) for eqn in graph.eqns for g in graphs_in(eqn.params)]
    return max([*own, *inner, *(v.aval.size for v in graph.invars)], default=0)


def run(count: int, seed: int = 0) -> int:
    """Try so many mutations; how many loaded."""
    rng = random.Random(seed)
    starts = blobs()
    return sum(attempt(mutated(rng.choice(starts), rng)) for _ in range(count))


if __name__ == "__main__":
    total = int(sys.argv[1])
    print(f"{run(total, int(sys.argv[2]) if len(sys.argv) > 2 else 0)} of {total} mutations load; no crash")
