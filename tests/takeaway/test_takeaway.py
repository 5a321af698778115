"""Kernels taken away: folders that are built and run without fuser, in C by make, in Triton by its interpreter."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.errors import UnsupportedError

X = np.linspace(-2, 2, 96, dtype=np.float32).reshape(8, 12)
W = np.cos(np.arange(60, dtype=np.float32)).reshape(12, 5)
TABLE = np.arange(12, dtype=np.float32)


def layers(x: Any, w: Any) -> Any:
    """Two results, a product with an epilogue, a constant, a temporary."""
    p = fuser.nn.softmax(x + TABLE)
    return {"y": fnp.tanh(p @ w), "sums": p.sum(0), "x": x.T}


def loops(x: Any, n: Any) -> Any:
    """A loop with a call of a library function in it; results of other dtypes."""

    def body(carry: Any, row: Any) -> Any:
        carry = fnp.sort(carry + row)
        return carry, carry.argmax()

    carry, found = fuser.lax.scan(body, fnp.zeros(12, fnp.float32), x)
    doubled = fuser.lax.fori_loop(0, n, lambda i, c: c * 2, carry)
    return (
        doubled.astype(fnp.bfloat16),
        found,
        (x > 0).any(1),
        x.at[fnp.argsort(x[:, 0])].add(1.0),
        (x[0] + 1j * x[1]) * 2,
    )


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "layers": (layers, (X, W)),
    "loops": (loops, (X, np.int32(3))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_c_is_built_and_gives_the_same(name: str, tmp_path: pathlib.Path) -> None:
    function, arguments = PROGRAMS[name]
    folder = fuser.export_kernels(function)(*arguments).save(tmp_path / "away")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(["make", "test", "CC=gcc"], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.endswith("as expected\n")
    header = (folder / f"{name}.h").read_text()
    assert f"int {name}(const float *in0" in header and "test_takeaway.py:" in header and "Apache License" in header
    data = np.fromfile(folder / "expected0.bin", np.uint8)
    (data + 1).tofile(folder / "expected0.bin")  # the test must be able to fail
    assert subprocess.run([f"./test_{name}"], cwd=folder, capture_output=True).returncode == 1


def test_triton_runs_in_its_interpreter(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("triton")

    def scaled(x: Any) -> Any:
        e = x * 2 + TABLE
        return e - e.max(1, keepdims=True), (e * e).sum(0)

    with fuser.config.using(backend="triton"):
        lowered = fuser.jit(scaled).lower(X)
    assert lowered.sources[0].language == "triton"
    script = (
        "import fuser, sys\nimport numpy as np\nTABLE = np.arange(12, dtype=np.float32)\n"
        "def scaled(x):\n    e = x * 2 + TABLE\n    return e - e.max(1, keepdims=True), (e * e).sum(0)\n"
        "x = np.linspace(-2, 2, 96, dtype=np.float32).reshape(8, 12)\n"
        "with fuser.config.using(backend='triton'):\n    fuser.export_kernels(scaled)(x).save(sys.argv[1])\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=True)
    alone = {key: value for key, value in environment.items() if key != "PYTHONPATH"}
    ran = subprocess.run([sys.executable, "test_scaled.py"], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert ran.stdout == "as expected\n", ran.stderr[-3000:]
    assert "fuser" not in {
        line.split()[1] for line in (tmp_path / "scaled.py").read_text().splitlines() if line.startswith("import")
    }


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_triton_is_taken_away_without_a_gpu(dtype: str, tmp_path: pathlib.Path) -> None:
    """The test's data are those of the CPU."""
    pytest.importorskip("triton")
    x = np.linspace(-2, 2, 96).reshape(8, 12).astype(dtype)
    softened = fuser.jit(lambda x: fnp.arctan2(fuser.nn.softmax(x, -1), fnp.tanh(x)), backend="triton")
    fuser.export_kernels(softened)(x).save(tmp_path)
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"TRITON_INTERPRET": "1"}
    (test,) = tmp_path.glob("test_*.py")
    ran = subprocess.run([sys.executable, test.name], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert test.name == "test_function_lambda.py" and ran.stdout == "as expected\n", ran.stderr[-3000:]


def test_products_of_a_library_are_torchs(tmp_path: pathlib.Path) -> None:
    """Over few or several dimensions, of other shapes of what is stored; those that torch has none for are named, with a way out."""
    pytest.importorskip("triton")

    def products(a: Any, b: Any, c: Any) -> Any:
        x = a.reshape(3, 5, 7)
        return (
            fnp.einsum("bij,bkj->bik", x * 2, b).reshape(-1),
            fnp.tensordot(x, c, ((1, 2), (0, 1))) + 1,
            fnp.tanh(b[0] @ a.T[:, ::2]),
        )

    draw = np.random.default_rng(0).normal
    arguments = [draw(size=shape).astype(np.float32) for shape in ((15, 7), (3, 9, 7), (5, 7, 2))]
    fuser.export_kernels(fuser.jit(products, backend="triton"))(*arguments).save(tmp_path)
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, "test_products.py"], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert ran.stdout == "as expected\n", ran.stderr[-3000:]
    assert (tmp_path / "products.py").read_text().count("torch.einsum") == 3
    whole = np.arange(12).reshape(3, 4)
    with (
        pytest.raises(UnsupportedError, match=r"products of i64 run in a library .*, or in C \(fuser.jit\(function"),
        fuser.config.using(enable_x64=True),
    ):
        fuser.export_kernels(fuser.jit(lambda x: x @ x.T, backend="triton"))(whole)


@pytest.mark.parametrize("name", ["double", "exp", "main", "<lambda>", "class", "2nd"])
def test_functions_may_have_names_that_mean_something_in_c(name: str, tmp_path: pathlib.Path) -> None:
    def function(x: Any) -> Any:
        return fnp.exp(x) + 1

    function.__name__ = name
    fuser.export_kernels(function)(X).save(tmp_path)
    ran = subprocess.run(["make", "-s", "test", "CC=gcc"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.endswith("as expected\n"), ran.stderr[-3000:]


def test_what_is_no_kernel_stays() -> None:
    with pytest.raises(UnsupportedError, match=r"which is no part of fuser's own C"):
        fuser.export_kernels(lambda x: fnp.linalg.svd(x)[1] + 1)(X)
    with pytest.raises(UnsupportedError, match=r"the step .* cannot be taken away: .* \(test_takeaway.py:\d+ "):
        fuser.export_kernels(lambda x: fuser.pure_callback(np.sin, fuser.ShapeDtypeStruct(X.shape, X.dtype), x))(X)
    with pytest.raises(
        UnsupportedError, match=r"the step .* cannot be taken away: complex numbers are sorted in NumPy"
    ):
        fuser.export_kernels(lambda x: fuser.lax.fori_loop(0, 3, lambda i, c: fnp.sort(c)[::-1], x))(X + 0j)
    with fuser.config.using(backend="reference"), pytest.raises(UnsupportedError, match="backends c and triton"):
        fuser.export_kernels(fnp.sin)(X)
