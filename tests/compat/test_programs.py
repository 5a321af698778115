"""Unmodified libraries of the JAX ecosystem: programs give under fuser what they give under real JAX, from the same keys.

Each program runs in two processes of its own, one with `install_as_jax`, one with JAX.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fuser.runtime import toolchain

HERE = Path(__file__).parent
# program -> the libraries that it imports, and the relative and absolute tolerance of its results
PROGRAMS: dict[str, tuple[tuple[str, ...], float, float]] = {
    "small_libraries": (("chex", "einops", "jaxtyping", "jmp"), 1e-5, 1e-6),
    "optax_training": (("optax",), 2e-4, 2e-5),
    "haiku_nets": (("haiku", "optax"), 1e-3, 1e-5),
    "flax_linen": (("flax", "optax"), 1e-3, 1e-5),
    "flax_nnx": (("flax", "optax"), 1e-3, 1e-5),
    "equinox_nets": (("equinox", "optax"), 1e-3, 1e-5),
    "blackjax_sampling": (("blackjax",), 1e-3, 1e-4),
    "numpyro_models": (("numpyro",), 5e-3, 1e-4),  # NUTS multiplies what a sum's order makes of rounding
    "jaxopt_solvers": (("jaxopt",), 1e-4, 1e-5),
    "diffrax_equations": (("diffrax", "lineax", "optimistix"), 1e-3, 1e-5),
}
# `pytest -m ecosystem` alone runs these: they need more packages, or minutes.
OTHERS: dict[str, tuple[tuple[str, ...], float, float]] = {
    "distrax_models": (("distrax", "tensorflow_probability"), 2e-3, 1e-5),
    "orbax_checkpoints": (("orbax.checkpoint", "flax"), 1e-4, 1e-6),
    "small_training": (("chex", "einops", "jaxtyping", "jmp"), 1e-3, 1e-5),
    "implicit_solvers": (("diffrax", "lineax", "optimistix"), 1e-3, 1e-5),
}


def results(program: str, subject: str, folder: Path) -> dict[str, np.ndarray]:
    out = folder / f"{subject}.npz"
    path = HERE / "programs" / f"{program}.py"
    command = [sys.executable, str(HERE / "run.py"), str(path), str(out), subject]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(out) as stored:
        return dict(stored)


@pytest.mark.parametrize("program", [*PROGRAMS, *(pytest.param(name, marks=pytest.mark.ecosystem) for name in OTHERS)])
def test_programs_give_what_they_give_under_jax(program: str, tmp_path: Path) -> None:
    libraries, rtol, atol = (PROGRAMS | OTHERS)[program]
    for library in libraries:
        if importlib.util.find_spec(library.partition(".")[0]) is None:
            pytest.skip(f"{library} is not installed (pip install 'fuser[ecosystem]')")
    found, wanted = (results(program, subject, tmp_path) for subject in ("fuser", "jax"))
    failures = {name: str(value) for name, value in (found | wanted).items() if name.endswith("!")}
    assert not failures, "\n".join(f"{name} {text}" for name, text in failures.items())
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        # JAX computes halves as halves where a processor does; elsewhere, and here, they are rounded from floats.
        native = name.startswith("mixed_precision") and "avx512_fp16" in toolchain.processor()
        np.testing.assert_allclose(found[name], value, np.finfo(np.float16).eps if native else rtol, atol, err_msg=name)
