"""Runs the kernels of `test_pallas` on a backend in its interpreter: prints as JSON what went wrong, by kernel, empty where nothing did.

A process of its own, because the settings of the interpreters are read when their packages are imported.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import sys
from typing import Any


def main(backend: str) -> None:
    """Run every case and two random ones."""
    os.environ |= {"TRITON_INTERPRET": "1", "FUSER_TPU_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
    import fuser
    from tests.pallas import test_pallas as cases

    def difference(compiled: Any, interpreted: Any, arrays: Any) -> str:
        try:
            cases.close(fuser.jit(compiled, backend=backend)(*arrays), interpreted(*arrays))
            return ""
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:500]

    found = {
        name: difference(functools.partial(kernel, "compiled"), functools.partial(kernel, "interpreted"), arrays)
        for name, (kernel, arrays) in cases.CASES.items()
    }
    for n, (call, arrays) in enumerate(cases.random_calls(3, 2)):
        found[f"random {n}"] = difference(functools.partial(call, False), functools.partial(call, True), arrays)
    print(json.dumps(found))


main(sys.argv[1])
