"""Runs one program of `programs/`, under fuser as `jax` or under the real JAX, and stores what its functions give.

    python run.py PROGRAM OUT.npz fuser|jax

Every function of the program whose name does not begin with an underscore takes nothing and gives a tree of arrays.
"""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import traceback

import numpy as np


def main(program: str, out: str, subject: str) -> None:
    if subject == "fuser":
        from fuser.compat import install_as_jax

        install_as_jax()
    found = runpy.run_path(program)
    import jax

    arrays: dict[str, np.ndarray] = {}
    for name, function in found.items():
        if name.startswith("_") or not inspect.isfunction(function) or function.__code__.co_filename != program:
            continue
        try:
            leaves = jax.tree_util.tree_leaves(function())
            arrays |= {f"{name}.{n}": np.asarray(leaf) for n, leaf in enumerate(leaves)}
        except Exception:
            arrays[f"{name}!"] = np.array(traceback.format_exc())
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    real = [name for name, file in files.items() if re.search(r"/site-packages/(jax|jaxlib)/", file)]
    assert subject == "jax" or not real, f"real JAX was loaded: {real[:3]}"
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
