"""Calls of native functions leave out results that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.library.library_calls import OPTIONAL_RESULTS
from fuser.ir.primitive import Primitive


def cases() -> Iterator[Any]:
    """Each primitive's samples of single precision."""
    for primitive in sorted(OPTIONAL_RESULTS, key=str):
        assert primitive.samples is not None
        for number, (arrays, params) in enumerate(primitive.samples()):
            if all(a.dtype in (np.float32, np.int32) and a.size for a in arrays):
                yield pytest.param(primitive, arrays, params, id=f"{primitive}-{number}")


@pytest.mark.parametrize("primitive, arrays, params", list(cases()))
def test_each_result_alone_is_that_of_all(primitive: Primitive, arrays: Any, params: dict[str, Any]) -> None:
    def whole(*args: Any) -> tuple[Any, ...]:
        found = primitive.bind(*args, **params)
        return tuple(found) if primitive.multiple_results else (found,)

    wanted = fuser.jit(whole, backend="c")(*arrays)
    for number, result in enumerate(wanted):
        alone = fuser.jit(lambda *args, n=number: whole(*args)[n], backend="c")
        found, result = np.asarray(alone(*arrays)), np.asarray(result)
        scale = float(np.max(np.abs(result), initial=0))  # LAPACK finds eigenvalues alone in another way
        np.testing.assert_allclose(found, result, rtol=0, atol=20 * np.finfo(np.float32).eps * scale)
        for group in alone.lower(*arrays).plan.groups:
            assert len(group.graph.outvars) == 1


def test_eigenvalues_alone_take_no_vectors() -> None:
    """What LAPACK is asked for shows in the room that it has."""
    a = np.eye(30, dtype=np.float32)

    def room(f: Any) -> int:
        return max(source.launch.get("workspace", 0) for source in fuser.jit(f, backend="c").lower(a).sources)

    assert room(lambda a: fnp.linalg.eigh(a)[0]) < room(lambda a: fnp.linalg.eigh(a))


def test_r_alone_has_no_memory_for_q() -> None:
    a = np.eye(30, dtype=np.float32) + 1
    plan = fuser.jit(lambda a: fnp.abs(fnp.linalg.qr(a)[1]), backend="c").lower(a).plan
    assert [len(group.graph.outvars) for group in plan.groups] == [1, 1]
