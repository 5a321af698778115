"""How many threads LAPACK has while it factorises: one for matrices that are not large, and afterwards as many as before."""

from __future__ import annotations

import concurrent.futures
import ctypes
import subprocess
import sys

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.library import lapack


@pytest.fixture
def threads():
    """The function that says how many threads LAPACK may have, which are two here."""
    address = lapack.address(*lapack.SET_THREADS[1:])
    if not address:
        pytest.skip("SciPy's LAPACK has no function that sets the number of its threads")
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)
    before = function(2)
    yield lambda: function(2)
    function(before)


@pytest.mark.parametrize("size", [40, 400])
def test_threads_are_given_back(threads, size):
    """After calls that overlap, too."""
    f = fuser.jit(lambda a: (fnp.linalg.inv(a), fnp.linalg.eigvalsh(a @ a.T)))
    a = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) + 3 * np.eye(size, dtype=np.float32)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: [np.asarray(r) for r in f(a)], range(8)))
    assert threads() == 2
    for inverse, values in results:
        np.testing.assert_allclose(inverse @ a, np.eye(size), atol=2e-2)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(a.astype(np.float64) @ a.T), rtol=1e-2, atol=1e-2)


def test_threads_that_import_different_parts_of_scipy_do_not_wait_for_each_other() -> None:
    """In a new process, in which nothing of SciPy is imported yet."""
    program = """
import threading
from fuser.backends.c.library.lapack import address
barrier, failures = threading.Barrier(4), []
def ask(*names):
    barrier.wait()
    try:
        address(*names)
    except BaseException as error:
        failures.append(error)
asked = [("cython_lapack", "threads"), ("cython_blas", "dtrsm"), ("cython_lapack", "dgetrf"), ("cython_blas", "sgemm")]
threads = [threading.Thread(target=ask, args=names) for names in asked]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failures, failures
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
