"""The TPU backend without a TPU: its texts and plans, numbers in Pallas' interpreter, and compilation by libtpu for real TPUs."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from bench.workloads import WORKLOADS
from fuser import jit
from fuser.backends.tpu.program import compiled
from fuser.backends.tpu.program import program as build
from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import KEY, ArrayType
from fuser.partition.group import Kind
from fuser.trace.core import bind
from tests.backends.tpu_cases import FORMS, HOST, TRANSFORMS, WIDE, f32, layer_norm, of, softmax

pytestmark = pytest.mark.tpu
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Forms of which some part is XLA's: byte and complex types, reversed and strided reads, gathers, sorts, keys, reductions
# without an instruction, products.
IN_XLA = {
    *(
        "bytes",
        "convolution that leaves an edge out",
        "gathered",
        "reductions",
        "reductions of bytes",
        "reductions of unsigned",
        "branch",
        "sorted",
        "solved",
    ),
    *("product", "float32 product", "batched product", "product of sliced operands", "loop with a sum"),
}


def lower(function: Callable[..., Any], *types: Any) -> Any:
    return jit(function, backend="tpu").lower(*types)


def kinds(lowered: Any) -> list[Kind]:
    return [group.kind for group in lowered.plan.groups]


def rows_of(module: str, *arguments: str) -> list[dict[str, Any]]:
    """The lines of JSON that a worker process prints."""
    command = [sys.executable, "-m", f"tests.backends.{module}", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ}, timeout=600, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


# ---- numbers


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "least"), [("registry", 850), ("forms,transforms,workloads", 130)])
def test_interpreter_agrees_with_the_reference(suite: str, least: int, share: tuple[int, int]) -> None:
    pytest.importorskip("jax")
    number, shares = share if suite == "registry" else (0, 1)
    rows = rows_of("tpu_worker", suite, *map(str, (number, shares) if suite == "registry" else ()))
    assert len(rows) >= least // shares
    assert {row["case"]: row["error"] for row in rows if row["error"]} == {}


@pytest.mark.parametrize("name", sorted(HOST))
def test_what_only_the_host_computes_is_refused_by_name(name: str) -> None:
    primitive = REGISTRY[name]
    for arrays, params in primitive.rule("samples")():
        narrow = [
            np.asarray(a).astype({"d": "f4", "D": "c8"}.get(np.asarray(a).dtype.char, np.asarray(a).dtype))
            for a in arrays
        ]
        with pytest.raises(UnsupportedError, match=f"the tpu backend has no form of {name} "):
            jit(lambda *a, params=params: bind(primitive, *a, **params), backend="tpu").lower(*narrow)
        return


# ---- compilation


@pytest.mark.slow
def test_every_program_compiles_for_two_generations(share: tuple[int, int]) -> None:
    pytest.importorskip("libtpu")
    rows = rows_of("tpu_aot", *map(str, share))
    programs = {*FORMS, *TRANSFORMS, *WORKLOADS} - set(WIDE)
    assert {row["case"] for row in rows} <= programs and len(rows) >= len(programs) // share[1]
    each = len(WORKLOADS) // 2 // share[1]
    assert all(sum(row["target"] == target for row in rows) > each for target in ("v5e", "v6e"))
    assert all(row["custom"] >= 1 for row in rows if row["pallas"])
    assert {(row["case"], row["target"]): row["error"] for row in rows if row["error"]} == {}


def test_a_compiled_softmax_is_one_kernel_that_reads_and_writes_once() -> None:
    pytest.importorskip("libtpu")
    program = """
import json
from fuser.backends.tpu.aot import compile_plan
from tests.backends.test_tpu import lower, softmax, f32
found = compile_plan(lower(softmax, f32(4096, 4096)).plan, "v5e")
print(json.dumps([found.kernels, found.bytes_accessed, found.output_bytes]))
"""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout) == [1, 2 * 4096 * 4096 * 4, 4096 * 4096 * 4]


def test_the_command_line_compiles_ahead_of_time(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("libtpu")
    model = "import fuser.numpy as fnp\ndef norm(x):\n    return x / fnp.sqrt(fnp.sum(x * x, axis=1, keepdims=True))\n"
    (tmp_path / "model.py").write_text(model)
    command = [
        sys.executable,
        "-m",
        "fuser",
        "compile",
        "--target",
        "tpu:v5e",
        "model.py:norm",
        "--args",
        "f32[512,256]",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout)
    (kernel,) = found["kernels"]
    assert found["launches"] == {"custom-call": 1}
    assert found["bytes_accessed"] == found["planned_bytes"] == 2 * 512 * 256 * 4
    assert 0 < kernel["vector_memory_bytes"] <= fuser.backends.get("tpu").limits.vmem
    names = {path.name for path in (tmp_path / "norm-v5e").iterdir()}
    assert names == {f"{kernel['name']}.py", "program.py", "compiled.txt", "analysis.json"}
    wrong = subprocess.run(
        [*command[:5], "gpu", "model.py:norm"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: 'gpu' is no target; write tpu:v5e, tpu:v5p, tpu:v6e, cuda:80, ")


MOVED = (
    *("line", "rows and columns", "many rows", "stencil in space", "large stencil", "softmax of 6000", "long rows"),
    *("tall column softmax", "long sum", "middle sum", "long cumsum", "long layer norm", "loop of lanes", "padded"),
)


@pytest.mark.parametrize("name", MOVED)
def test_declared_bytes_are_those_that_the_blocks_move(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walk the grid as a TPU does: a block is fetched, or written, whenever its index changes."""
    jax = pytest.importorskip("jax")
    from jax.experimental import pallas

    seen: dict[str, Any] = {}
    original = pallas.pallas_call
    monkeypatch.setattr(
        pallas, "pallas_call", lambda kernel, **given: (seen.update(given), original(kernel, **given))[1]
    )
    function, avals = FORMS[name]
    lowered = lower(function, *avals)
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    program = compiled(build(lowered.plan).text, True)
    jaxpr = jax.make_jaxpr(program)(*shapes)
    (call,) = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "pallas_call")
    arrays = [v.aval for v in (*call.invars, *call.outvars)]
    walked = sum(
        _walked(seen["grid"], spec, array.shape, array.dtype.itemsize)
        for spec, array in zip((*seen["in_specs"], *seen["out_specs"]), arrays, strict=True)
    )
    (source,) = lowered.sources
    assert source.launch["bytes"] == seen["cost_estimate"].bytes_accessed
    assert walked <= source.launch["bytes"] * 1.001
    assert walked >= source.launch["bytes"] * 0.9  # a halo that is clamped at the edge stays where it is


def _walked(grid: tuple[int, ...], spec: Any, shape: tuple[int, ...], itemsize: int) -> int:
    if spec.block_shape is None:
        return int(np.prod(shape)) * itemsize
    total, last = 0, None
    for step in np.ndindex(*grid):
        index = tuple(int(i) for i in spec.index_map(*step))
        if index != last:
            sizes = (min(b, n - i * b) for i, b, n in zip(index, spec.block_shape, shape))
            total, last = total + int(np.prod(list(sizes))) * itemsize, index
    return total


# ---- plans and texts, for which nothing is needed


@pytest.mark.parametrize("name", sorted(set(FORMS) - IN_XLA))
def test_forms_are_pallas_kernels_alone(name: str) -> None:
    function, avals = FORMS[name]
    lowered = lower(function, *avals)
    assert {source.language for source in lowered.sources} == {"pallas"}
    assert len(lowered.sources) == 1


@pytest.mark.parametrize("name", sorted(IN_XLA))
def test_what_is_no_kernel_says_why(name: str) -> None:
    function, avals = FORMS[name]
    outside = [g for g in lower(function, *avals).plan.groups if g.kind is Kind.LIBRARY]
    assert all(group.reason for group in outside)
    assert outside or "product" in name or name in ("branch", "loop with a sum")


def test_norms_are_one_reduction() -> None:
    assert kinds(lower(softmax, f32(512, 1024))) == [Kind.REDUCTION]
    assert kinds(lower(layer_norm, f32(512, 1024), f32(1024), f32(1024))) == [Kind.REDUCTION]


def test_blocks_are_whole_registers_or_whole_arrays() -> None:
    for function, types in (
        (softmax, (f32(1000, 700),)),
        (lambda x, y: x * y[:, None], (of("bfloat16", 3000, 700), of("bfloat16", 3000))),
    ):
        text = lower(function, *types).sources[0].text
        for block in re.findall(r"BlockSpec\(\(([\d, ]+)\)", text):
            extents = [int(n) for n in block.split(",") if n.strip()]
            assert extents[-1] % 128 == 0 or extents[-1] in (700, 3000)
            assert len(extents) == 1 or extents[-2] % 8 == 0


def test_a_kernel_keeps_to_its_vector_memory() -> None:
    limit = fuser.backends.get("tpu").limits.vmem
    for columns in (100, 10_000, 1_000_000):
        (group,) = lower(softmax, f32(2000, columns)).plan.groups
        assert 0 < group.vmem <= limit


def test_rows_that_do_not_fit_are_read_once_a_stage() -> None:
    near, far = (lower(softmax, f32(16, n)).sources[0].launch for n in (4096, 1_000_000))
    assert near["bytes"] == 2 * 16 * 4096 * 4
    assert far["bytes"] == 4 * 16 * 1_000_000 * 4
    assert len(far["grid"]) == len(near["grid"]) + 2 or len(far["grid"]) == 3


def test_a_stencil_reads_little_more_than_its_array() -> None:
    function, _ = FORMS["stencil"]
    launch = lower(function, f32(4096, 4096)).sources[0].launch
    assert launch["bytes"] < 1.3 * 2 * 4096 * 4096 * 4


def test_products_of_float32_are_exact_unless_asked_otherwise() -> None:
    exact, fast = (
        lower(lambda x, y, precision=precision: fnp.matmul(x, y, precision=precision), f32(64, 64), f32(64, 64))
        .sources[0]
        .text
        for precision in (None, "default")
    )
    assert 'precision="highest", preferred_element_type=jnp.float32' in exact
    assert 'precision="default", preferred_element_type=jnp.float32' in fast


def test_launches_are_counted_inside_loops_too() -> None:
    from fuser.backends.tpu.aot import launches

    text = """HloModule m
%body (p: (f32[8], s32[])) -> (f32[8], s32[]) {
  %p = (f32[8]{0}, /*index=1*/s32[]) parameter(0)
  %x = f32[8]{0} get-tuple-element(%p), index=0
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  ROOT %t = (f32[8]{0}, /*index=1*/s32[]) tuple(%y, %n)
}
%fused (q: f32[8]) -> f32[8] {
  ROOT %z = f32[8]{0} multiply(%q, %q)
}
ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %k = f32[8]{0} custom-call(%a), custom_call_target="tpu_custom_call"
  %w = (f32[8]{0}, /*index=1*/s32[]) while(%k0), condition=%test, body=%body
  ROOT %r = f32[8]{0} get-tuple-element(%w), index=0
}
"""
    assert launches(text) == {"custom-call": 1, "fusion": 1}


def test_reversed_reads_are_moved_by_xla_and_say_so() -> None:
    (group,) = lower(lambda x: fnp.exp(x[::-1]), f32(100, 300)).plan.groups
    assert group.kind is Kind.ELEMENTWISE
    assert (
        group.refusal
        == "XLA moves its inputs first (rev): it reads or writes in0 at strided, reshaped or computed indices"
    )


def test_explain_gives_vector_memory_and_reasons() -> None:
    text = lower(lambda x: fnp.sort(fnp.exp(x)) + 1, f32(100, 300)).plan.explain()
    assert "of vector memory" in text
    assert "a library call (sort is XLA's): sort" in text


def test_text_is_the_same_for_the_same_program() -> None:
    first, second = (lower(softmax, f32(100, 300)).sources[0].text for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("float64", "a TPU has no f64; convert to float32 first"),
        ("complex128", "a TPU has no c128; convert to complex64 first"),
        ("int64", "a TPU has no i64; convert to int32 first"),
        ("int8", "Mosaic computes in 32 bits, and i8 is XLA's"),
        ("complex64", "Mosaic computes in 32 bits, and c64 is XLA's"),
    ],
)
def test_types_that_kernels_lack_are_refused(dtype: str, reason: str) -> None:
    aval = ArrayType((8, 128), np.dtype(dtype))
    eqn = Eqn(REGISTRY["neg"], (Var(aval),), {}, (Var(aval),))
    assert fuser.backends.get("tpu").supports(eqn) == reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint32"])
def test_types_that_kernels_have(dtype: str) -> None:
    aval = of(dtype, 8, 128)
    assert fuser.backends.get("tpu").supports(Eqn(REGISTRY["neg"], (Var(aval),), {}, (Var(aval),))) is None


def test_a_program_in_64_bits_is_refused_loudly() -> None:
    with (
        fuser.config.using(enable_x64=True),
        pytest.raises(UnsupportedError, match="a TPU has no f64; convert to float32 first"),
    ):
        lower(lambda x: fnp.exp(x) * 2, ArrayType((8, 128), np.dtype("float64")))


def test_every_group_is_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In loops within loops too, whose text is the plan's, the kernels' and the whole program's."""
    from fuser.backends.tpu import program as module

    tried: list[str] = []
    for name in ("in_pallas", "in_xla"):
        emit = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda g, *r, emit=emit, name=name: tried.append(f"{name} {g.name}") or emit(g, *r)
        )

    def loops(x: Any, depth: int = 3) -> Any:
        if depth == 0:
            return fnp.sort(fnp.sin(x), axis=1)
        body = lambda state: (state[0] + 1, loops(state[1] * 0.5, depth - 1))
        return fuser.lax.while_loop(lambda state: state[0] < 2, body, (0, x))[1]

    lowered = lower(loops, f32(8, 128))
    assert build(lowered.plan).text.count("lax.while_loop") == 3
    assert len(tried) == len(set(tried)) >= 4


def test_a_tool_that_needs_steps_says_so() -> None:
    pytest.importorskip("jax")
    with (
        fuser.config.using(tpu_interpret=True),
        pytest.raises(
            UnsupportedError,
            match=r"fuser\.check runs programs step by step, and the tpu backend compiles them whole; "
            r"use it on another backend, such as FUSER_BACKEND=c",
        ),
    ):
        fuser.check(jit(softmax, backend="tpu"))(np.ones((8, 128), np.float32))


def test_random_numbers_are_part_of_the_kernel() -> None:
    (kind,) = kinds(lower(lambda key: fnp.sum(fuser.random.normal(key, (64, 256)), axis=1), ArrayType((), KEY)))
    assert kind is Kind.REDUCTION


def test_without_a_tpu_running_says_what_to_do() -> None:
    pytest.importorskip("jax")
    program = "import numpy as np, fuser; fuser.jit(lambda x: x + 1, backend='tpu')(np.ones(3, np.float32))"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"} | {"FUSER_TPU_INTERPRET": "0"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert (
        "the tpu backend needs a TPU, and JAX sees none (cpu); set FUSER_BACKEND=c, "
        "or FUSER_TPU_INTERPRET=1 to run kernels slowly in Pallas' interpreter" in result.stderr
    )


def test_lowering_imports_no_jax() -> None:
    program = """
import sys, fuser, fuser.numpy as fnp
from fuser.ir.types import KEY, ArrayType
import numpy as np
x = ArrayType((64, 256), np.dtype("float32"))
lowered = fuser.jit(lambda x: fnp.exp(x).sum(axis=1), backend="tpu").lower(x)
assert "pallas_call" in lowered.sources[0].text and lowered.plan.explain()
assert not {"jax", "libtpu", "torch"} & set(sys.modules), sorted(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_reduction_of_a_known_kind_needs_no_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.backends.tpu import arrays
    from fuser.ops.reduce import reduce_prod_p

    monkeypatch.delitem(arrays.CALLS, reduce_prod_p)  # by which Mosaic does not reduce
    lowered = lower(lambda x: fnp.prod(x, axis=1) + 1, f32(8, 128))
    assert any("lax.reduce_prod_p.bind" in source.text for source in lowered.sources)
