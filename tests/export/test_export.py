"""Functions saved and loaded: values, trees, derivatives, platforms; errors in JAX's words; every primitive; hostile bytes."""

from __future__ import annotations

import collections
import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import passes
from fuser.errors import DeserializationError, UnsupportedError
from fuser.export import (
    DisabledSafetyCheck,
    deserialize,
    export,
    file,
    register_namedtuple_serialization,
    register_pytree_node_serialization,
)
from fuser.export.decode import Damaged, decode_arrays, decode_graph, no_dims
from fuser.export.encode import Arrays, encode_graph
from fuser.ir.primitive import REGISTRY
from fuser.ir.text import show
from fuser.legalise.platform import on_platform
from fuser.trace.core import type_of
from fuser.trace.stage import stage
from tests.export import mutations
from tests.export.programs import DIFFERENTIABLE, PROGRAMS, X

SAVED = pathlib.Path(__file__).parent / "saved"


def same(found: Any, wanted: Any) -> None:
    assert fuser.tree.structure(found) == fuser.tree.structure(wanted)
    for a, b in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted)):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-5, 1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loaded_function_computes_the_same(name: str) -> None:
    function, arguments = PROGRAMS[name]
    exported = export(fuser.jit(function))(*arguments)
    loaded = deserialize(exported.serialize())
    assert (loaded.in_avals, loaded.out_avals) == (exported.in_avals, exported.out_avals)
    assert (loaded.in_tree, loaded.out_tree) == (exported.in_tree, exported.out_tree)
    assert loaded.serialize() == exported.serialize()
    same(loaded.call(*arguments), fuser.jit(function)(*arguments))


@pytest.mark.parametrize("path", sorted(SAVED.glob("*/*.fuser")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_files_of_every_version_keep_loading(path: pathlib.Path) -> None:
    function, arguments = PROGRAMS[path.stem]
    loaded = deserialize(path.read_bytes())
    same(loaded.call(*arguments), fuser.jit(function)(*arguments))
    if path.stem in DIFFERENTIABLE:
        gradient = fuser.grad(lambda x: sum(leaf.sum() for leaf in fuser.tree.leaves(loaded.call(x, *arguments[1:]))))
        wanted = fuser.grad(lambda x: sum(leaf.sum() for leaf in fuser.tree.leaves(_forward(function, x, arguments))))
        same(gradient(X), wanted(X))


def _forward(function: Any, x: Any, arguments: Any) -> Any:
    return function(x, *arguments[1:])


def test_there_is_a_file_of_every_program_and_version() -> None:
    found = {(int(path.parent.name), path.stem) for path in SAVED.glob("*/*.fuser")}
    assert found == {(version, name) for version in range(1, file.VERSION + 1) for name in PROGRAMS}


def test_fields_are_those_of_jax() -> None:
    def scaled(pair: Any, *, by: Any) -> Any:
        return {"sum": pair[0] + pair[1], "by": by}

    jax = pytest.importorskip("jax")
    from jax import export as jax_export

    arguments, by = (np.ones(3, np.float32), np.zeros(3, np.float32)), np.int32(2)
    ours = export(fuser.jit(scaled))(arguments, by=by)
    theirs = jax_export.export(jax.jit(scaled))(arguments, by=by)
    for name in ("fun_name", "nr_devices", "platforms", "module_kept_var_idx", "uses_global_constants"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for mine, other in zip((*ours.in_avals, *ours.out_avals), (*theirs.in_avals, *theirs.out_avals)):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
    assert str(ours) == str(theirs)


def test_derivatives_are_saved_in_the_order_asked_for() -> None:
    exported = export(fuser.jit(lambda x: x**3))(np.float32(4))
    loaded = deserialize(exported.serialize(vjp_order=2))
    assert float(fuser.grad(loaded.call)(4.0)) == 48
    assert float(fuser.grad(fuser.grad(loaded.call))(4.0)) == 24
    with pytest.raises(ValueError, match="No VJP is available"):
        fuser.grad(fuser.grad(fuser.grad(loaded.call)))(4.0)
    assert loaded.has_vjp() and not loaded.vjp().vjp().has_vjp()


def test_custom_derivatives_are_those_of_the_function() -> None:
    @fuser.custom_vjp
    def clipped(x: Any) -> Any:
        return fnp.sin(x)

    clipped.defvjp(lambda x: (fnp.sin(x), None), lambda _, ct: (ct * 7,))
    loaded = deserialize(export(fuser.jit(clipped))(np.float32(1)).serialize(vjp_order=1))
    assert float(fuser.grad(loaded.call)(1.0)) == 7


def test_integers_have_no_derivative() -> None:
    exported = export(fuser.jit(lambda n, x: (n * 2, x * x * n)))(np.int32(3), np.float32(2))
    loaded = deserialize(exported.serialize(vjp_order=1))
    assert float(fuser.grad(lambda x: loaded.call(np.int32(3), x)[1])(2.0)) == 12
    assert [str(a) for a in loaded.vjp().in_avals] == ["i32[]", "f32[]", "f32[]"]


def test_calls_join_the_program_around_them() -> None:
    inner = export(fuser.jit(lambda x: fnp.sin(x) + 1))(X)
    outer = fuser.jit(lambda x: inner.call(x) * inner.call(x * 2))
    assert len(outer.lower(X).sources) == 1  # one kernel
    again = deserialize(export(outer)(X).serialize())
    same(again.call(X), (fnp.sin(X) + 1) * (fnp.sin(X * 2) + 1))
    same(fuser.vmap(lambda x: inner.call(x))(np.stack([X, X])), fnp.sin(np.stack([X, X])) + 1)


def test_other_arguments_are_refused_in_jaxs_words() -> None:
    a = np.ones(4, np.float32)
    exported = export(fuser.jit(lambda a, *, b: a + b))(a, b=a)
    for args, kwargs, words in (
        ((a[:3],), {"b": a}, r"Shape mismatch for args\[0\].shape\[0\] \(expected same constant\)"),
        ((a,), {"b": a[:3]}, r"Shape mismatch for kwargs\['b'\].shape\[0\]"),
        ((a[None],), {"b": a}, r"Rank mismatch for args\[0\]"),
        ((a.astype(np.float16),), {"b": a}, r"Dtype mismatch for args\[0\]"),
        (((a,),), {"b": a}, "The invocation args and kwargs must have the same pytree structure"),
    ):
        with pytest.raises(ValueError, match=words):
            exported.call(*args, **kwargs)


def test_functions_are_called_where_they_were_exported_for() -> None:
    exported = export(fuser.jit(fnp.sin), platforms=("tpu",))(X)
    with pytest.raises(ValueError, match="Function 'sin' was exported for platform"):
        exported.call(X)
    free = export(fuser.jit(fnp.sin), platforms=("tpu",), disabled_checks=[DisabledSafetyCheck.platform()])(X)
    same(deserialize(free.serialize()).call(X), fnp.sin(X))
    with pytest.raises(ValueError, match="Function to be exported must be the result of `jit`"):
        export(lambda x: x)
    with pytest.raises(ValueError, match="platforms are of cpu, cuda, rocm, tpu, or names of others, got gpu"):
        export(fuser.jit(fnp.sin), platforms=("gpu",))


def test_choices_by_platform_are_made_at_the_call() -> None:
    function = fuser.jit(lambda x: fuser.lax.platform_dependent(x, cpu=fnp.sin, cuda=fnp.cos, default=lambda x: x * 2))
    with fuser.config.using(backend="tpu"):
        exported = export(function, platforms=("cpu", "cuda", "tpu"))(X)
    loaded = deserialize(exported.serialize(vjp_order=1))
    np.testing.assert_allclose(loaded.call(X), np.sin(X), 1e-6)
    np.testing.assert_allclose(fuser.grad(lambda x: loaded.call(x).sum())(X), np.cos(X), 1e-6)
    for platform, wanted in (("cpu", "sin"), ("cuda", "cos"), ("tpu", "mul")):
        graph = passes.run(on_platform(loaded.graph, platform))
        assert [eqn.primitive.name for eqn in graph.eqns] == [wanted]
    only = export(fuser.jit(lambda x: fuser.lax.platform_dependent(x, tpu=fnp.sin)), platforms=("cpu", "tpu"))(X)
    with pytest.raises(NotImplementedError, match="translation rule for platform cpu not found"):
        only.call(X)


def test_python_functions_are_not_saved() -> None:
    def seen(x: Any) -> Any:
        fuser.debug.print("{}", x)
        return x

    with pytest.raises(UnsupportedError, match=r"debug_callback holds the Python function .* \(test_export.py:\d+\)"):
        export(fuser.jit(seen))(X).serialize()


class Point(NamedTuple):
    x: Any
    y: Any


class Box:
    def __init__(self, inside: Any, name: str) -> None:
        self.inside, self.name = inside, name


fuser.tree_util.register_pytree_node(Box, lambda b: ((b.inside,), b.name), lambda name, children: Box(*children, name))


def test_classes_are_saved_where_they_are_registered() -> None:
    function = fuser.jit(lambda p, box, d: (Point(p.y, p.x), Box(box.inside + 1, box.name), d))
    arguments = (Point(1.0, 2.0), Box(3.0, "blue"), collections.OrderedDict(b=1.0, a=2.0))
    exported = export(function)(*arguments)
    with pytest.raises(ValueError, match=r"Cannot serialize .* unregistered type .*Point"):
        exported.serialize()
    with pytest.raises(ValueError, match=r"If `from_children` is not present.* must call.*register_pytree_node"):
        register_pytree_node_serialization(
            Point, serialized_name="P", serialize_auxdata=lambda x: b"", deserialize_auxdata=lambda b: None
        )
    with pytest.raises(ValueError, match=r"Use .*register_pytree_node_serialization"):
        register_namedtuple_serialization(str, serialized_name="s")
    register_namedtuple_serialization(Point, serialized_name="test.Point")
    register_pytree_node_serialization(
        Box, serialized_name="test.Box", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
    )
    with pytest.raises(ValueError, match=r"Duplicate serialization registration .*test.Point"):
        register_namedtuple_serialization(Point, serialized_name="test.Point")
    loaded = deserialize(exported.serialize())
    assert (loaded.in_tree, loaded.out_tree) == (exported.in_tree, exported.out_tree)
    point, box, _ = loaded.call(*arguments)
    assert (float(point.x), box.name) == (2, "blue")
    with pytest.raises(TypeError, match="Serialization is supported only for dictionaries with string keys"):
        export(fuser.jit(lambda d: d[(0, 1)]))({(0, 1): X}).serialize()


@pytest.mark.parametrize("name", [name for name, p in REGISTRY.items() if p.samples is not None])
def test_every_primitive_is_written_and_read(name: str) -> None:
    primitive = REGISTRY[name]
    for arrays, params in list(primitive.samples())[:4]:  # type: ignore[misc]
        avals = [type_of(a) for a in arrays]

        def function(*operands: Any, params: Any = params) -> Any:
            found = primitive.bind(*operands, **params)
            return found if primitive.multiple_results else [found]

        graph, kept = stage(function, avals), Arrays()
        written = encode_graph(graph, kept)
        read = decode_graph(written, decode_arrays(kept.headers(), kept.contents()), no_dims)
        assert show(read, source=False) == show(graph, source=False)


def test_references_are_arguments_of_saved_functions() -> None:
    def add(ref: Any, x: Any) -> Any:
        ref[...] += x
        return ref[0, 0]

    total = fuser.new_ref(X)
    loaded = deserialize(export(fuser.jit(add))(total, X).serialize())
    assert float(loaded.call(total, X)) == 2 * X[0, 0]
    np.testing.assert_array_equal(total[...], 2 * X)
    with pytest.raises(ValueError, match=r"args\[0\]: expected Ref\{f32\[3,4\]\}, got f32\[3,4\]; new_ref makes a Ref"):
        loaded.call(X, X)
    with pytest.raises(
        UnsupportedError, match=r"closes over a Ref of type Ref\{f32\[3,4\]\}, .* give it as an argument"
    ):
        export(fuser.jit(lambda x: total[...] + x))(X)


def test_kernels_by_hand_are_looked_at_before_use() -> None:
    function, arguments = PROGRAMS["by_hand"]
    said, contents = file.read(bytes(export(fuser.jit(function))(*arguments).serialize()))
    [call] = [eqn for eqn in said["graph"]["eqns"] if eqn[0] == "pallas_call"]
    params = call[2]
    for name, value in (("blocks", params["blocks"][:1]), ("vmapped", 2), ("aliases", [[7, 0]]), ("grid", [-1])):
        before, params[name] = params[name], value
        with pytest.raises(
            DeserializationError, match=r"pallas_call of f32.* has blocks, index maps or Refs of other arrays"
        ):
            deserialize(file.write(said, contents))
        params[name] = before


def test_hostile_bytes_end_in_one_error() -> None:
    assert mutations.run(400, seed=18) < 100
    blob = bytes(export(fuser.jit(fnp.sin))(X).serialize())
    for bytes_, words in (
        (b"", "0 bytes are less than a header"),
        (b"x" * 100, "the first bytes are not those of a saved function"),
        (blob[:-1], "it ends too early"),
        (
            blob[:8] + b"\2\0\0\0" + blob[12:],
            f"it has format 2, and this version of fuser reads formats up to {file.VERSION}",
        ),
        (blob[:-2] + b"  ", "its digest is not that of what it holds"),
    ):
        with pytest.raises(DeserializationError, match=words):
            deserialize(bytes_)


def test_what_is_read_is_looked_at_before_use() -> None:
    said, contents = file.read(bytes(export(fuser.jit(lambda x: x + TABLE))(X).serialize()))
    for change, words in (
        (lambda s: s["graph"]["eqns"][0].__setitem__(0, "os.system"), "'os.system' is no primitive of this version"),
        (lambda s: s["graph"]["eqns"][0].__setitem__(3, [["f32", [9], 0]]), "its type rule gives f32"),
        (lambda s: s["graph"]["in"][0].__setitem__(1, [1 << 50]), "a shape has too many elements"),
        (lambda s: s["arrays"][0].__setitem__(1, [1 << 40]), "an array is longer than the file"),
        (
            lambda s: s.__setitem__("in_tree", ["node", [], ["os.PathLike", ""]]),
            "'os.PathLike', which is not registered",
        ),
    ):
        hostile, _ = file.read(file.write(said, contents))
        change(hostile)  # type: ignore[no-untyped-call]
        with pytest.raises(DeserializationError, match=words):
            deserialize(file.write(hostile, contents))
    with pytest.raises(Damaged):
        file.read(file.write([], b""))  # type: ignore[arg-type]


TABLE = np.ones((3, 4), np.float32)


def save() -> None:
    """Write the files of this version; `python -m tests.export.test_export` after a change of the format."""
    folder = SAVED / str(file.VERSION)
    folder.mkdir(parents=True)
    for name, (function, arguments) in PROGRAMS.items():
        exported = export(fuser.jit(function), platforms=("cpu", "cuda", "rocm", "tpu"))(*arguments)
        order = 1 if name in DIFFERENTIABLE else 0
        (folder / f"{name}.fuser").write_bytes(exported.serialize(vjp_order=order))


if __name__ == "__main__":
    sys.exit(save())


@pytest.mark.parametrize("version", [8, 9, 10, 11])
def test_calling_conventions_of_jax_are_one(version: int) -> None:
    """What a program pins is kept; others are refused, in JAX's words, of a file too."""
    with fuser.config.using(export_calling_convention_version=version):
        if version in (8, 11):
            with pytest.raises(
                ValueError, match=f"The requested export calling convention version {version} is outside the range"
            ):
                export(fuser.jit(fnp.sin))(X)
            return
        exported = export(fuser.jit(fnp.sin))(X)
    blob = exported.serialize()
    loaded = deserialize(blob)
    assert loaded.calling_convention_version == exported.calling_convention_version == version
    same(loaded.call(X), fnp.sin(X))
    said, contents = file.read(bytes(blob))
    with pytest.raises(DeserializationError, match="is outside the range"):
        deserialize(file.write({**said, "calling_convention": 11}, contents))


def test_files_for_several_platforms_or_sizes_say_so() -> None:
    sizes = fuser.ShapeDtypeStruct(fuser.export.symbolic_shape("n"), np.float32)
    cases = [(("cpu",), X), (("cpu", "cuda"), X), (("cpu",), sizes)]
    found = [export(fuser.jit(fnp.sin), platforms=p)(x).uses_global_constants for p, x in cases]
    assert found == [False, True, True]
