"""`parse` is the inverse of `show`, on every graph that the benchmark, the samples and the transforms make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from bench import replay
from fuser import lax, passes
from fuser.errors import GraphError
from fuser.ir.check import check
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Literal, Var
from fuser.ir.parse import parse
from fuser.ir.primitive import REGISTRY
from fuser.ir.text import show
from fuser.ir.types import DTYPES, FLOATS, SMALL_FLOATS, ArrayType, is_key, kind_of, short_dtype

X = np.linspace(0.5, 2, 3, dtype=np.float32)


def loops(x: Any, limit: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        kept = lax.cond(row.sum() > 0, lambda c: c + 1, lambda c: fnp.sin(c), carry)
        return carry * 0.5 + row, lax.switch(2, [lambda c: c, lambda c: -c, lambda c: c * 2], kept)

    carry, rows = lax.scan(body, x, fnp.ones((5, 3)))
    carry = lax.while_loop(lambda c: c.sum() < limit, lambda c: c * 2, carry)
    return carry, rows, x[np.array([0, 2])].at[1].set(3.0), lax.fori_loop(0, 3, lambda i, c: c + i, x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "loops": (loops, (X, np.float32(30))),
    "gradient": (fuser.grad(lambda x: loops(x, 30.0)[1].sum()), (X,)),
    "batched": (fuser.vmap(loops, in_axes=(0, None)), (np.stack([X, X + 1]), np.float32(30))),
    "keys": (lambda key: fuser.random.normal(fuser.random.split(key)[1], (4,)), (fuser.random.key(3),)),
    "strings": (lambda x: fuser.ad_checkpoint.checkpoint_name(fnp.sin(x), 'it\'s # "one"\n'), (X,)),
    "nested calls": (lambda x: fuser.jit(lambda y: fuser.jit(fnp.cos)(y) + 1)(x), (X,)),
}


def same(before: Graph, after: Graph) -> None:
    """Equal in everything but the identity of variables."""
    assert show(after) == show(before)
    check(after)
    for old, new in zip(before.eqns, after.eqns, strict=True):
        assert new.primitive is old.primitive and set(new.params) == set(old.params)
        assert [v.aval for v in new.invars] == [v.aval for v in old.invars]
        assert (new.source.lineno, new.source.function, new.source.via) == (
            old.source.lineno,
            old.source.function,
            old.source.via,
        )


@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip_of_transformed_programs(name: str) -> None:
    function, arguments = PROGRAMS[name]
    graph = passes.run(fuser.jit(function).trace(*arguments).graph)
    same(graph, parse(show(graph), graph.consts))


def test_a_parsed_program_computes_the_same() -> None:
    function, arguments = PROGRAMS["loops"]
    graph = fuser.jit(function).trace(*arguments).graph
    for old, new in zip(evaluate(graph, arguments), evaluate(parse(show(graph), graph.consts), arguments)):
        np.testing.assert_array_equal(np.asarray(old), np.asarray(new))


def test_round_trip_of_the_workloads() -> None:
    for program in replay.workloads():
        if "/tiny" in program.name:
            same(program.graph, parse(show(program.graph), program.graph.consts))


def test_round_trip_of_every_sample() -> None:
    names = set()
    for program in replay.samples():
        same(program.graph, parse(show(program.graph)))
        names.add(program.graph.eqns[0].primitive.name)
    assert len(names) > 100


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if not is_key(d)], ids=short_dtype)
def test_literals_keep_their_bits(dtype: np.dtype) -> None:
    values = [0, 1] if kind_of(dtype) in "iu" else [True, False]
    if dtype.kind in "iu":
        values += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    elif dtype.kind == "c":
        values = [0.1 + 0.2j, complex(-0.0, float("inf")), complex(float("nan"), -0.0), 1e-30j]
    elif dtype in (*FLOATS, *SMALL_FLOATS):
        values = [-0.0, 0.1, 1 / 3, float("nan"), 3.0e-5, 96.0]
        values += [] if dtype in SMALL_FLOATS else [float("inf"), float("-inf"), 65504.0]
    aval = ArrayType((), dtype)
    literals = tuple(Literal(value, aval) for value in values)
    again = parse(show(Graph((), (), (), (), literals))).outvars
    for old, new in zip(literals, again, strict=True):
        assert new.aval == aval
        assert np.asarray(old.val).tobytes() == np.asarray(new.val).tobytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ lambda ; a:f32[3] . let\n b:f32[3] = sinn a\n in (b,) }", "'sinn', where the name of a primitive"),
        ("{ lambda ; a:f32[3] . let\n b:f32[3] = sin c\n in (b,) }", "'c', where a variable that is defined before"),
        ("{ lambda ; a:f33[3] . let\n in (a,) }", "'f33', where a dtype among"),
        ("{ lambda ; a:f32[3] . let\n a:f32[3] = sin a\n in (a,) }", "'a', where a name that is not in use"),
        ("{ lambda ; a:f32[3] . let\n b:f32[3] = sin a", "where 'in \\(RESULTS\\) }' was expected"),
        ("{ lambda ; a:f32[3] . let\n in (a,) }\n more", "'more', where the end of the text"),
        ("{ lambda a:f32[3] ; . let\n in (a,) }", "has 1 constants, but 0 values were given"),
        ("{ lambda ; a:i32[] . let\n in (1.5:i32[],) }", "'1.5:i32\\[\\]', where a value of i32"),
        ("{ lambda ; a:f32[3] . let\n b:f32[3] = copy[x=<f>] a\n in (b,) }", "where a value was expected"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse(text)


def test_a_function_among_the_params_is_refused() -> None:
    @fuser.custom_jvp
    def double(x: Any) -> Any:
        return 2 * x

    double.defjvp(lambda primals, tangents: (double(*primals), 2 * tangents[0]))
    with pytest.raises(GraphError, match="<"):
        parse(show(fuser.jit(double).trace(X).graph))


def test_a_wrong_type_is_found_by_the_checker() -> None:
    graph = parse("{ lambda ; a:f32[3] . let\n b:f32[4] = sin a\n in (b,) }")
    with pytest.raises(GraphError, match="its type rule gives"):
        check(graph)
    assert isinstance(graph.eqns[0], Eqn) and graph.eqns[0].primitive is REGISTRY["sin"]
    assert isinstance(graph.invars[0], Var)
