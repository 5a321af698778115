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


def one_kernel() -> None:
    """Kernels that Triton has a form of its own for."""
    import numpy as np

    import fuser
    from tests.pallas import one_kernel_cases as cases

    found = {}
    for name, (function, arrays) in {**cases.CASES, **cases.SHIPPED}.items():
        try:
            wanted = cases.interpreted(name) if name in cases.CASES else fuser.jit(function, backend="c")(*arrays)
            own = fuser.jit(function, backend="triton")(*arrays)
            for a, b in zip(fuser.tree.leaves(own), fuser.tree.leaves(wanted), strict=True):
                tolerance = 1e-2 if a.dtype.itemsize == 2 else 1e-5
                a, b = (np.asarray(v).astype(np.float64) for v in (a, b))
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-4)
            found[name] = ""
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:500]
    print(json.dumps(found))


def main(backend: str) -> None:
    """Run every case and four random ones."""
    os.environ |= {"TRITON_INTERPRET": "1", "FUSER_TPU_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
    if backend == "one kernel":
        one_kernel()
        return
    import fuser
    from tests.pallas import random_kernels
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
    for n, (case, arrays) in enumerate(random_kernels.cases(9, 2), 2):
        found[f"random {n}"] = random_kernels.difference(case, arrays, backend)
    print(json.dumps(found))


main(sys.argv[1])
