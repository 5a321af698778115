"""Library calls on a GPU that is not the first: handles, plans and tables of addresses are its own."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.runtime.array import Array
from fuser.runtime.core import native
from tests import cuda_stand_in

pytestmark = pytest.mark.skipif(native is None, reason="the native core is not built, or turned off")


def test_calls_are_of_the_threads_device() -> None:
    host = np.random.default_rng(0).standard_normal((3, 8, 8)).astype(np.float32)
    function = lambda x: (
        lax.linalg.qr(x, full_matrices=False)[1],
        fnp.fft.fft(x),
        lax.linalg.cholesky(x @ x.swapaxes(1, 2) + 9 * fnp.eye(8)),
    )
    want = fuser.tree_util.tree_leaves(fuser.jit(function, backend="c")(host))
    with cuda_stand_in.opened(devices=2):
        for device in (0, 1):
            before = native.cuda_use(device)
            try:
                run, x = fuser.jit(lambda x: function(x), backend="triton"), Array(native.device_upload(host))
                for _ in range(4):
                    found = fuser.tree_util.tree_leaves(run(x))
                for a, b in zip(found, want, strict=True):
                    np.testing.assert_allclose(np.asarray(a), np.asarray(b), 2e-3, 2e-3)
            finally:
                native.cuda_use(before)
