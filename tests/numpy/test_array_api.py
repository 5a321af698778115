"""The array API standard's inspection functions and members of arrays, as JAX has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp


@pytest.mark.parametrize("x64", [False, True])
def test_inspection_as_jax(x64: bool) -> None:
    with fuser.enable_x64(x64), jax.enable_x64(x64):
        ours, theirs = fnp.__array_namespace_info__(), jnp.__array_namespace_info__()
        assert ours.capabilities() == theirs.capabilities()
        assert ours.default_dtypes() == theirs.default_dtypes()
        for kind in (None, "bool", "integral", "numeric", "real floating", ("bool", "signed integer")):
            assert ours.dtypes(kind=kind) == theirs.dtypes(kind=kind)
    assert ours.default_device() is None and ours.devices() == [None, *fuser.devices()]
    assert fnp.__array_api_version__ == jnp.__array_api_version__


def test_members_of_arrays() -> None:
    x = fnp.arange(3)
    assert x.__array_namespace__() is fnp is x.__array_namespace__(api_version="2024.12")
    with pytest.raises(ValueError, match="not available"):
        x.__array_namespace__(api_version="2020.01")
    assert fuser.jit(lambda y: y.__array_namespace__().sum(y))(x) == 3
    assert x.to_device(fuser.devices()[0]).tolist() == [0, 1, 2] and 2 in x and 5 not in x
    assert x.is_ready() and x.on_device_size_in_bytes() == 12 and x.aval == fuser.typeof(x)
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
    assert fuser.copy_to_host_async({"x": x, "n": 1})["x"] is x
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        x.is_ready()
