"""What libraries ask of jax.core, jax.extend, jax.interpreters, jax.api_util, jax.monitoring and jax.stages."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.extend.core
import jax.extend.core.primitives
import jax.extend.linear_util
import jax.interpreters.partial_eval as jax_partial_eval
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import api_util, core, monitoring
from fuser.api import stages
from fuser.extend import core as extend
from fuser.extend import linear_util
from fuser.interpreters import ad, batching, partial_eval
from fuser.lax.primitives import LAX, PRIMITIVES

BOTH = pytest.mark.parametrize("library", [fuser, jax], ids=["fuser", "jax"])


def test_primitives_have_the_names_of_jax() -> None:
    for name in LAX:
        assert hasattr(jax.lax, name) or hasattr(jax.extend.core.primitives, name), name
        assert getattr(fuser.lax, name) is PRIMITIVES[name]
    theirs = {n for n in dir(jax.extend.core.primitives) if n.endswith("_p")}
    for name in sorted(theirs & set(PRIMITIVES)):
        mine, other = PRIMITIVES[name], getattr(jax.extend.core.primitives, name)
        assert mine.name == other.name or name == "remat_p", name
        assert mine.multiple_results == other.multiple_results, name


def test_graphs_run_and_hold_what_they_did() -> None:
    graph = fuser.make_jaxpr(lambda x: fnp.sin(x) * 2 + np.arange(3, dtype=np.float32))(np.ones(3, np.float32))
    x = np.full(3, 0.5, np.float32)
    expected = np.sin(x) * 2 + np.arange(3)
    np.testing.assert_allclose(core.eval_jaxpr(graph.jaxpr, graph.consts, x)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(extend.jaxpr_as_fun(graph)(x)[0], expected, rtol=1e-6)
    assert isinstance(graph, extend.Jaxpr) and isinstance(graph, extend.ClosedJaxpr)
    assert all(isinstance(e, extend.JaxprEqn) and isinstance(e.primitive, extend.Primitive) for e in graph.eqns)
    assert [type(v) for v in graph.invars] == [extend.Var]
    assert extend.check_jaxpr(graph) is graph and list(extend.subjaxprs(graph)) == []
    aval = graph.in_avals[0]
    assert isinstance(aval, core.ShapedArray) and extend.mapped_aval(3, 0, aval).shape == ()
    assert extend.unmapped_aval(5, -1, aval).shape == (3, 5)
    assert extend.valid_jaxtype(1.0) and not extend.valid_jaxtype("x")
    assert (core.max_dim(2, 3), core.min_dim(2, 3)) == (3, 2)
    assert extend.primal_dtype_to_tangent_dtype(np.int32) == jax.extend.core.primal_dtype_to_tangent_dtype(np.int32)


def test_dce_jaxpr_as_jax_does() -> None:
    def carried(library: Any, values: Any) -> Any:
        body = lambda c, x: ([c[0], c[0] + c[1], c[1] * x], c[2])
        return library.lax.scan(body, values, np.arange(3, dtype=np.float32))

    def chosen(library: Any, x: Any, y: Any) -> Any:
        one, other = (lambda x, y: (library.numpy.sin(x), y)), (lambda x, y: (library.numpy.sin(y), x))
        return library.lax.cond(x > 0, one, other, x, y)

    def counted(library: Any, x: Any, y: Any) -> Any:
        return library.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2, s[2] + s[1]), (x, y, y))

    again = lambda library, x, y: library.checkpoint(lambda x, y: (library.numpy.sin(x), library.numpy.cos(y)))(x, y)
    for function, args, count in (
        (carried, ([1.0, 2.0, 3.0],), 4),
        (chosen, (1.0, 2.0), 2),
        (counted, (0.0, 2.0), 3),
        (again, (1.0, 2.0), 2),
    ):
        graphs = [library.make_jaxpr(functools.partial(function, library))(*args).jaxpr for library in (fuser, jax)]
        for used in itertools.product([False, True], repeat=count):
            (smaller, mine), (_, theirs) = (
                dce(graph, list(used))
                for dce, graph in zip((partial_eval.dce_jaxpr, jax_partial_eval.dce_jaxpr), graphs)
            )
            if function is counted:  # JAX keeps a while loop as it is
                theirs = [a and b for a, b in zip(mine, theirs)]
            assert mine == theirs, (function.__name__, used)
            assert len(smaller.outvars) == sum(used)
    effect = fuser.make_jaxpr(lambda x: (fuser.debug.print("{}", x), x * 2, x * 3)[1:])(1.0).jaxpr
    kept, _ = partial_eval.dce_jaxpr(effect, [False, False], instantiate=True)
    assert [e.primitive.name for e in kept.eqns] == ["debug_callback"] and len(kept.invars) == 1


def test_the_current_trace() -> None:
    outer = extend.get_opaque_trace_state()
    seen: dict[str, Any] = {}

    def function(x: Any) -> Any:
        seen["same"] = extend.get_opaque_trace_state() == outer
        seen["jit"] = extend.unsafe_am_i_under_a_jit_DO_NOT_USE()
        with core.ensure_compile_time_eval():
            seen["known"] = float(fnp.sin(fnp.asarray(0.0)))
        with pytest.raises(fuser.errors.ConcretizationTypeError, match=r"no value yet\. in the test"):
            extend.concrete_or_error(None, x, "in the test")
        return x

    fuser.jit(function)(1.0)
    assert seen == {"same": False, "jit": True, "known": 0.0}
    assert extend.get_opaque_trace_state() == outer and not extend.unsafe_am_i_under_a_jit_DO_NOT_USE()
    names: list[Any] = []
    fuser.vmap(lambda x: names.append(extend.unsafe_get_axis_names_DO_NOT_USE()) or x, axis_name="i")(np.ones(2))
    assert names == [["i"]]


def _log_of(library: Any) -> Any:
    import importlib

    lu = importlib.import_module(f"{library.__name__}.extend.linear_util")
    util = importlib.import_module(f"{library.__name__}.api_util")
    return lu, util


@BOTH
def test_functions_with_transformations(library: Any) -> None:
    lu, util = _log_of(library)
    info = util.debug_info("test", lambda x, y: x, (1, {"a": 2}), {})
    assert info.traced_for == "test" and info.arg_names == ("x", "y['a']")

    def double(f: Any, scale: Any, *args: Any) -> Any:
        return f(*(a * scale for a in args))

    def with_count(f: Any, store: Any, *args: Any) -> Any:
        result = f(*args)
        store.store(len(args))
        return result

    wrapped = lu.wrap_init(lambda x, y: x - y, debug_info=info)
    wrapped = lu.transformation2(double)(wrapped, 10)
    wrapped, count = lu.transformation_with_aux2(with_count)(wrapped)
    assert wrapped.call_wrapped(5, 2) == 30 and count() == 2
    args, in_tree = library.tree.flatten(((1, {"a": 2}), {}))
    flat, out_tree = util.flatten_fun(lu.wrap_init(lambda x, y: [x, y["a"]], debug_info=info), in_tree)
    assert flat.call_wrapped(*args) == [1, 2] and out_tree() == library.tree.structure([0, 0])
    args, in_tree = library.tree.flatten((1, {"a": 2}))
    flat, out_tree = util.flatten_fun_nokwargs(lu.wrap_init(lambda x, y: (x + y["a"],), debug_info=info), in_tree)
    assert flat.call_wrapped(*args) == [3] and out_tree() == library.tree.structure((0,))
    partial, dynamic = util.argnums_partial(lu.wrap_init(lambda x, y: (x, y), debug_info=info), (1,), (7, 8))
    assert partial.call_wrapped(9) == (7, 9) and list(dynamic) == [8]
    assert util.rebase_donate_argnums((2,), (0,)) == (1,)
    with pytest.raises(ValueError):
        util.rebase_donate_argnums((2,), (2,))
    structure = library.tree.structure(((1, [2, 3]), {}))
    assert util.donation_vector((1,), (), structure) == (False, True, True)
    assert util.flatten_axes("in_axes", library.tree.structure((1, [2, 3])), (0, None)) == [0, None, None]
    with pytest.raises(ValueError, match="in_axes specification must be a tree prefix"):
        util.flatten_axes("in_axes", library.tree.structure((1, [2, 3])), (0, 1, 2))
    assert util.safe_map(lambda a, b: a + b, [1, 2], (3, 4)) == [4, 6]


def test_generators_as_transformations_and_their_cache() -> None:
    @linear_util.transformation_with_aux
    def shifted(by: Any, *args: Any) -> Any:
        result = yield tuple(a + by for a in args), {}
        yield result, "aux"

    calls = []

    @linear_util.cache
    def run(fun: Any, x: Any) -> Any:
        calls.append(x)
        return fun.call_wrapped(x)

    f = lambda x: x * 2
    wrapped, aux = shifted(linear_util.wrap_init(f), 1)
    assert run(wrapped, 3) == 8 and aux() == "aux"
    first, second = linear_util.Store(), linear_util.Store()
    second.store(5)
    assert linear_util.merge_linear_aux(lambda: first.val, lambda: second.val) == (False, 5)
    with pytest.raises(linear_util.StoreException):
        second.store(6)
    plain = linear_util.wrap_init(f)
    assert run(plain, 3) == run(linear_util.wrap_init(f), 3) == 6 and calls == [3, 3]


@BOTH
def test_primitives_of_a_library_with_rules(library: Any) -> None:
    import importlib

    ad, batching, extend = (
        importlib.import_module(f"{library.__name__}.{m}")
        for m in ("interpreters.ad", "interpreters.batching", "extend.core")
    )
    triple = extend.Primitive("triple_of_the_test")
    triple.def_impl(lambda x: np.asarray(x) * 3)
    triple.def_abstract_eval(lambda aval: library.core.ShapedArray(aval.shape, aval.dtype))
    ad.deflinear2(triple, lambda ct, x: [triple.bind(ct)])
    batching.defvectorized(triple)
    x = library.numpy.asarray(np.arange(4, dtype=np.float32))
    with jax.disable_jit():
        np.testing.assert_array_equal(np.asarray(triple.bind(x)), np.arange(4) * 3)
        _, tangent = library.jvp(lambda x: triple.bind(x), (x,), (x,))
        np.testing.assert_array_equal(np.asarray(tangent), np.arange(4) * 3)
        (slope,) = library.linear_transpose(lambda x: triple.bind(x), x)(x)
        np.testing.assert_array_equal(np.asarray(slope), np.arange(4) * 3)
        np.testing.assert_array_equal(np.asarray(library.vmap(triple.bind)(x)), np.arange(4) * 3)


def test_rules_are_the_fields_of_primitives() -> None:
    assert ad.primitive_transposes[fuser.lax.neg_p] is fuser.lax.neg_p.transpose
    assert batching.primitive_batchers[fuser.lax.add_p] is fuser.lax.add_p.batch
    out, tangent = ad.primitive_jvps[fuser.lax.sin_p]((fnp.asarray(0.0),), (fnp.asarray(2.0),))
    assert (float(out), float(tangent)) == (0.0, 2.0)
    zero = ad.Zero(core.ShapedArray((2,), np.dtype("float32")))
    assert np.asarray(ad.instantiate_zeros(zero)).tolist() == [0, 0]
    assert fuser.lax.add_p in ad.primitive_jvps and len(ad.primitive_jvps) > 50
    assert batching.bdim_at_front(fnp.ones((2, 3)), 1, 3).shape == (3, 2)


@BOTH
def test_listeners(library: Any) -> None:
    import importlib

    monitor = importlib.import_module(f"{library.__name__}.monitoring")
    heard: list[Any] = []
    kinds = {
        "event": ("register_event_listener", "unregister_event_listener", "record_event", ()),
        "duration": (
            "register_event_duration_secs_listener",
            "unregister_event_duration_listener",
            "record_event_duration_secs",
            (1.5,),
        ),
        "span": (
            "register_event_time_span_listener",
            "unregister_event_time_span_listener",
            "record_event_time_span",
            (1.0, 2.0),
        ),
        "scalar": ("register_scalar_listener", "unregister_scalar_listener", "record_scalar", (3,)),
    }
    for name, (register, unregister, record, values) in kinds.items():
        listener = lambda *args, **kwargs: heard.append((args, kwargs))
        getattr(monitor, register)(listener)
        getattr(monitor, record)(f"/test/{name}", *values, extra="x")
        getattr(monitor, unregister)(listener)
        getattr(monitor, record)(f"/test/{name}", *values)
    assert heard == [((f"/test/{name}", *values), {"extra": "x"}) for name, (*_, values) in kinds.items()]


def test_stages() -> None:
    info = stages.ArgInfo(core.ShapedArray((2,), np.dtype("int8")), True)
    assert (info.shape, info.dtype, info.donated) == ((2,), np.dtype("int8"), True)
    assert api_util.shaped_abstractify(np.ones(3, np.float32)).shape == (3,)
    monitoring.record_event("/nobody/listens")


@pytest.mark.parametrize(("transform", "word"), [("grad", "Differentiation"), ("vmap", "Batching")])
def test_a_rule_that_is_missing_is_named_in_the_words_of_jax(transform: str, word: str) -> None:
    p = extend.Primitive("without_rules")
    p.def_impl(lambda x: x + 1)
    p.def_abstract_eval(lambda x: x)
    x = np.float32(1) if transform == "grad" else np.ones(3, np.float32)
    with pytest.raises(NotImplementedError, match=f"{word} rule for 'without_rules' not implemented"):
        getattr(fuser, transform)(p.bind)(x)
