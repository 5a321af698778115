"""Primitives that libraries define: compiled as the function that they are lowered to, with rules, and graphs among their params."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.errors import AbsentError
from fuser.extend.core import Primitive
from fuser.extend.linear_util import wrap_init
from fuser.interpreters import ad, batching
from fuser.interpreters.lowering import lower_fun, register_lowering
from fuser.interpreters.partial_eval import PartialVal, trace_to_jaxpr_nounits
from fuser.ir.types import ArrayType

scaled_p = Primitive("scaled by a library")


def _scaled(x: Any, *, static: Any) -> Any:
    [factor] = fuser.core.eval_jaxpr(static[0], static[0].consts)
    return fnp.sin(x) * factor


scaled_p.def_impl(_scaled)
scaled_p.def_abstract_eval(lambda x, **params: ArrayType(x.shape, x.dtype))
register_lowering(scaled_p, lower_fun(_scaled, multiple_results=False))
ad.primitive_jvps[scaled_p] = lambda primals, tangents, static: (
    scaled_p.bind(*primals, static=static),
    ad.instantiate_zeros(tangents[0]) * 5,  # no derivative of a sine, to be told from one
)
batching.axis_primitive_batchers[scaled_p] = lambda size, name, trace, operands, dims, **params: (
    scaled_p.bind(*operands, **params) + size,
    dims[0],
)


def test_a_primitive_with_a_graph_among_its_params_is_compiled_by_its_lowering() -> None:
    factor = np.full(3, 2, np.float32)
    static = (fuser.make_jaxpr(lambda: fnp.asarray(factor) + 1)(),)
    assert static[0].consts  # as closure conversion leaves them
    f = lambda x: scaled_p.bind(x, static=static)
    x = np.float32([0.1, 0.2, 0.3])
    np.testing.assert_allclose(fuser.jit(f)(x), 3 * np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(f(fnp.asarray(x)), 3 * np.sin(x), rtol=1e-6)
    lowered = fuser.jit(f).lower(x)
    assert all(eqn.primitive is not scaled_p for eqn in lowered.graph.eqns)
    np.testing.assert_array_equal(fuser.jit(fuser.grad(lambda x: f(x).sum()))(x), [5, 5, 5])
    rows = np.stack([x, x])
    np.testing.assert_allclose(fuser.jit(fuser.vmap(f))(rows), 3 * np.sin(rows) + 2, rtol=1e-6)


def test_a_lowering_that_writes_mlir_is_refused_when_it_is_reached() -> None:
    written_p = Primitive("written in MLIR")
    written_p.def_abstract_eval(lambda x: ArrayType(x.shape, x.dtype))
    register_lowering(written_p, lambda ctx, x: x)
    with pytest.raises(AbsentError, match="the primitive written in MLIR is lowered by a rule that writes MLIR"):
        fuser.jit(written_p.bind)(np.float32(1))


def test_known_values_stay_values_where_others_are_types_alone() -> None:
    seen: list[Any] = []

    def f(x: Any, y: Any) -> list[Any]:
        seen.append(float(y * 2))  # y has a value
        return [x * y, y + 1]

    given = [PartialVal.unknown(ArrayType((2,), np.dtype("float32"))), PartialVal.known(fnp.float32(3))]
    graph, out, _ = trace_to_jaxpr_nounits(wrap_init(f), given)
    assert seen == [6] and out[0].aval.shape == (2,) and not out[0].is_known()
    assert out[1].is_known() and float(out[1].const) == 4 and len(graph.eqns) >= 1


def test_known_results_of_a_checkpoint_stay_values() -> None:
    """Flax's `nn.scan` of an `nn.remat` asks: what a layer broadcasts must not depend on the loop's values."""
    step = fuser.checkpoint(lambda x, w: (fnp.sin(x * w), w + 1))
    given = [PartialVal.unknown(ArrayType((2,), np.dtype("float32"))), PartialVal.known(fnp.float32(3))]
    _, out, _ = trace_to_jaxpr_nounits(wrap_init(lambda x, w: list(step(x, w))), given)
    assert not out[0].is_known() and out[1].is_known() and float(out[1].const) == 4


def test_traced_values_pass_through_compile_time_evaluation() -> None:
    kinds: list[bool] = []

    @fuser.jit
    def f(x: Any) -> Any:
        with fuser.ensure_compile_time_eval():
            known, traced = fnp.arange(3).sum() > 2, x > 0
        kinds.extend(isinstance(v, fuser.core.Tracer) for v in (known, traced))
        return fnp.where(traced, x, 0) if known else x

    assert float(f(-2.0)) == 0 and kinds == [False, True]


def test_residuals_that_are_pythons_stay_so() -> None:
    @fuser.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    def bwd(residuals: Any, ct: Any) -> Any:
        x, twice = residuals
        assert twice is True
        return (ct * x * 2,) if twice else (ct,)

    f.defvjp(lambda x: (x * x, (x, True)), bwd)
    assert float(fuser.jit(fuser.grad(f))(3.0)) == 6
    np.testing.assert_array_equal(fuser.vmap(fuser.grad(f))(np.float32([1, 2])), [2, 4])
