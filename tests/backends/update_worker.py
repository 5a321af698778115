"""Updates of donated arrays in Triton's interpreter, beside JAX: one JSON line a case, `{"case", "error"}`."""

from __future__ import annotations

import json
import os
import traceback
import warnings

os.environ |= {"TRITON_INTERPRET": "1", "FUSER_BACKEND": "triton"}

import jax
import jax.numpy as jnp
import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax
from tests.backends.update_cases import CASES, COPIED, leaves


def error(name: str) -> str:
    """What went wrong with a case, or nothing."""
    make, arguments = {**CASES, **COPIED}[name]
    try:
        expected = leaves(jax.jit(make(jnp, jax.lax))(*arguments))
        found = leaves(fuser.jit(make(fnp, lax), donate_argnums=0)(*map(fnp.asarray, arguments)))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in (*CASES, *COPIED):
        print(json.dumps({"case": name, "error": error(name)}), flush=True)
