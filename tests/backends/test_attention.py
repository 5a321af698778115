"""Attention from the unmodified graph as one kernel of the Triton backend: what fuses, what does not, and the machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import config, jit, lax
from fuser.ir.types import ArrayType, bfloat16
from fuser.partition.group import Kind
from tests.backends.attention_cases import (
    ATTENTION,
    F32,
    GRADIENTS,
    attend,
    causal,
    grouped,
    scores,
    types,
    windowed,
    with_gradients,
)

pytestmark = pytest.mark.xdist_group("triton")
HEADS = types(F32, *((2, 3, 150, 32),) * 3)


def plan(function: Callable[..., Any], *avals: ArrayType) -> Any:
    return jit(function, backend="triton").lower(*avals).plan


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_kernel_without_an_array_of_scores(name: str) -> None:
    function, avals = ATTENTION[name]
    found = plan(function, *avals)
    assert [(group.kind.value, group.ops[0], group.reason) for group in found.groups] == [
        ("contraction", "attention", "")
    ]
    assert {slot.aval for slot in found.slots} == {*avals, *(v.aval for v in found.groups[0].graph.outvars)}
    assert "attention in one kernel: attention, " in found.explain()


def test_blocks_that_positions_hide_are_left_out_and_visited_where_they_count() -> None:
    text = lambda function, *avals: jit(function, backend="triton").lower(*avals).sources[0].text
    plain = text(lambda q, k, v: attend(scores(q, k), v), *HEADS)
    assert plain.count("for start in range(") == plain.count("for start in") == 2  # blocks, and what fills none
    hidden = text(causal, *HEADS)  # −∞ weighs nothing, whatever else a row has seen
    assert "hidden" not in hidden and hidden.count("for start in") == 2
    assert (
        text(windowed, *HEADS).count("for start in") == 3
    )  # −1e9 weighs as much as all in a row that sees nothing else
    assert "tl.min(" in text(windowed, *HEADS)


def _walks(text: str) -> list[str]:
    """The loops of a kernel's last form, in order."""
    return text.split("\n@triton.jit")[-1].split("for start in ")[1:]


@pytest.mark.parametrize("dtype", [bfloat16, F32])
def test_blocks_that_all_rows_see_make_no_tests_of_positions(dtype: np.dtype) -> None:
    (source,) = jit(grouped, backend="triton").lower(*types(dtype, *((1, 300, 2, 32),) * 3)).sources
    whole, edge, hidden = _walks(source.text)
    tests = "column_inside", "column_down_inside", "tl.where(v"
    assert not any(test in whole for test in tests)
    assert all(test in walk for walk in (edge, hidden) for test in tests)


def test_what_else_hides_scores_is_asked_in_whole_blocks_too() -> None:
    function, avals = ATTENTION["attention to what is alike"]
    (source,) = jit(function, backend="triton").lower(*avals).sources
    whole, *_ = _walks(source.text)
    assert "tl.where(v" in whole and "column_inside" not in whole


def test_few_keys_are_walked_along_in_one_loop() -> None:
    few = types(bfloat16, *((1, 40, 2, 32),) * 3)
    walks = _walks(jit(grouped, backend="triton").lower(*few).sources[0].text)
    assert len(walks) == 2 and all("column_inside" in walk for walk in walks)


NO_SUM = "what stands between its products is no sum of exponentials relative to the row's maximum"


@pytest.mark.parametrize(
    ("function", "avals", "reason"),
    [
        (causal, types(np.dtype("float64"), *((2, 3, 150, 32),) * 3), "attention of f64 runs as separate kernels"),
        (
            causal,
            types(bfloat16, *((1, 2, 64, 512),) * 3),
            "attention over 512 features of values runs as separate kernels; fused is that over 16 to 256",
        ),
        (
            causal,
            types(bfloat16, (1, 1, 1, 64), (1, 1, 9000, 64), (1, 1, 9000, 64)),
            "1 queries of 1 heads would leave most of the GPU idle while a few programs walk along the keys",
        ),
        (lambda q, k, v: fnp.maximum(scores(q, k), 0) @ v, HEADS, ""),
        (
            lambda q, k, v: fuser.nn.softmax(scores(q, k), axis=-2) @ v,
            HEADS,
            "reduce_max does not reduce along the keys",
        ),
        (lambda q, k, v: fnp.where(fnp.isnan(p := fuser.nn.softmax(scores(q, k), -1)), 0, p) @ v, HEADS, NO_SUM),
        (
            lambda q, k, v: (p := fuser.nn.softmax(scores(q, k), -1), p @ v),
            HEADS,
            "its weights are needed in memory by other operations too",
        ),
    ],
)
def test_what_is_no_attention_or_does_not_fit_stays_apart_and_says_why(
    function: Callable[..., Any], avals: Any, reason: str
) -> None:
    found = plan(function, *avals)
    assert "attention" not in [name for group in found.groups for name in group.ops]
    said = [d.reason.removeprefix("no attention in one kernel: ") for d in found.decisions if "attention" in d.reason]
    assert said == ([reason] if reason else [])


@pytest.mark.parametrize(
    "weights",
    [lambda s: s / s.sum(-1, keepdims=True), lambda s: (e := fnp.exp(s)) / e.sum(-1, keepdims=True)],
)
def test_rows_without_a_maximum_have_plain_sums(weights: Callable[..., Any]) -> None:
    found = plan(lambda q, k, v: weights(scores(q, k)) @ v, *HEADS)
    assert [group.ops[0] for group in found.groups] == ["attention"]


def test_products_with_weights_are_a_step_behind_where_registers_hold_what_they_multiply() -> None:
    """Behind the scores of the next step, so that matrix units have work while weights are computed."""

    def of(dtype: np.dtype, function: Callable[..., Any] = causal) -> tuple[str, list[str]]:
        (source,) = jit(function, backend="triton").lower(*types(dtype, *((2, 3, 150, 32),) * 3)).sources
        (launch,) = source.launch["launches"]
        return source.text, [choice.function.rpartition("_")[2] for choice in launch.choices]

    text, forms = of(bfloat16)
    assert list(dict.fromkeys(forms)) == ["behind", "mapped", "attention"]
    loop = text[text.index("def k0_attention_behind") :]
    loop = loop[loop.index("for start in range(") :]
    assert loop.index("score0 = tl.dot(") < loop.index("tl.dot(weight0") < loop.index("next = combine_max(")
    assert set(of(F32)[1]) == {"attention"}  # whose products are no matrix unit's


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_make_no_array_of_scores(name: str) -> None:
    function, avals = GRADIENTS[name]
    found = plan(function, *avals)
    products = [group for group in found.groups if group.kind is Kind.CONTRACTION]
    assert [group.ops.count("attention") for group in products] == [1, 1, 1]
    assert not any(group.reason for group in found.groups)
    scores = avals[0].size // avals[0].shape[-1] * avals[1].shape[-2 if "grouped" not in name else 1]
    made = {slot.aval.size for slot in found.slots} - {aval.size for aval in avals}
    assert made and max(made) < scores


def test_the_gradient_pass_reads_what_the_result_knows() -> None:
    """Row sums of P ∘ dP are made of the result and its cotangent; without the result, of the products again."""
    products = lambda name: [
        len([eqn for eqn in group.eqns if eqn.primitive.name == "dot_general"])
        for group in plan(*_flat(GRADIENTS[name])).groups
        if group.kind is Kind.CONTRACTION
    ]
    assert products("gradients of causal attention") == [2, 4, 3]
    assert products("gradients of a loss") == [2, 4, 3]


def _flat(form: Any) -> Any:
    return form[0], *form[1]


def test_blocks_that_positions_hide_are_left_out_of_gradients() -> None:
    avals = types(bfloat16, *((2, 70, 6, 32), (2, 90, 2, 32), (2, 90, 2, 32), (2, 70, 6, 32)))
    texts = [source.text for source in jit(with_gradients(grouped), backend="triton").lower(*avals).sources]
    walks = [text.split("\n@triton.jit")[-1] for text in texts if "tl.dot" in text]
    assert len(walks) == 3 and all("range(whole, whole_end" in text for text in walks)
    trans = [text.count("tl.trans(") for text in walks]  # what a product has read, another one reads across
    assert sorted(trans) == [0, 2, 6]


def test_fuel_counts_it_and_a_loop_of_layers_has_one_each() -> None:
    with config.using(fuel=0):
        found = plan(causal, *HEADS)
        assert len(found.groups) > 3
        assert any(d.reason.endswith("kernel: the merges allowed by FUSER_FUEL are used up") for d in found.decisions)
    with config.using(fuel=1):
        assert [group.ops[0] for group in plan(causal, *HEADS).groups] == ["attention"]
    layers = lambda x: lax.fori_loop(0, 3, lambda i, x: grouped(x, x, x), x)
    (loop,) = plan(layers, *types(bfloat16, (2, 64, 4, 32))).groups
    assert [group.ops[0] for group in loop.bodies[-1].groups if "attention" in group.ops] == ["attention"]


def test_a_mask_that_layers_share_is_made_in_each() -> None:
    def layers(x: Any) -> Any:
        mask = fnp.tril(fnp.ones((64, 64), bool))
        for _ in range(3):
            x = attend(fnp.where(mask, scores(x, x), -fnp.inf), x)
        return x

    assert [group.ops[0] for group in plan(layers, *types(bfloat16, (4, 64, 32))).groups] == ["attention"] * 3


@pytest.mark.parametrize(("dtype", "features"), [(bfloat16, 128), (F32, 64)])
def test_machine_code_of_attention(dtype: np.dtype, features: int) -> None:
    pytest.importorskip("triton")
    from bench import static

    found = static.report(grouped, *types(dtype, (4, 1024, 8, features), *((4, 1024, 2, features),) * 2))
    (launch,) = found.launches
    assert found.moved == found.ideal
    assert (launch.code.spills, launch.code.load_bits, launch.code.store_bits) == (0, 128, 128)
    assert launch.code.matrix_units == (dtype == bfloat16)


def test_arrays_of_two_billion_elements_have_positions_of_64_bits() -> None:
    pytest.importorskip("triton")
    from bench import static

    found = static.report(with_gradients(grouped), *types(bfloat16, *((64, 16384, 32, 64),) * 4))
    assert [launch.code.matrix_units for launch in found.launches].count(True) == 3


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"])
@pytest.mark.parametrize(("dtype", "features"), [(bfloat16, 128), (bfloat16, 64), (F32, 64)])
def test_machine_code_of_its_gradients(target: str, dtype: np.dtype, features: int) -> None:
    pytest.importorskip("triton")
    from bench import static
    from fuser.backends.triton.target import MACHINES, shared_of_block

    machine = MACHINES[target]
    arrays = types(dtype, *((4, 1024, 8, features),) * 4)
    found = static.report(with_gradients(grouped), *arrays, machine=machine)
    assert [launch.code.spills for launch in found.launches] == [0] * len(found.launches)
    assert all(launch.code.shared <= shared_of_block(machine.platform, machine.arch) for launch in found.launches)
    if target == "cuda:90":
        assert found.moved == found.ideal
        assert [launch.code.load_bits for launch in found.launches] == [128] * 4
        assert [launch.code.matrix_units for launch in found.launches].count(True) == 3 * (dtype == bfloat16)


def test_exponentials_of_sixteen_bits_take_the_fast_unit_and_others_do_not() -> None:
    texts = lambda function, avals: "".join(
        source.text for source in jit(function, backend="triton").lower(*avals).sources if "tl.dot" in source.text
    )
    half, single = (texts(with_gradients(grouped), types(d, *((2, 64, 2, 32),) * 4)) for d in (bfloat16, F32))
    assert ("power_of_two(" in half, "power_of_two(" in single) == (True, False)
    assert "tl.div_rn(1.0, " in half and "tl.div_rn(1.0, " not in single
    widened = lambda q, k, v: grouped(*(x.astype("float32") for x in (q, k, v)))
    assert "power_of_two(" not in texts(widened, types(bfloat16, *((2, 64, 2, 32),) * 3))  # 24 bits are asked for


def test_training_has_three_kernels_a_layer_and_products_without_rows_to_reduce_stay_apart() -> None:
    def loss(layers: Any, x: Any) -> Any:
        for w, up, down in layers:
            q = fnp.reshape(x @ w, (2, 32, 4, 16))
            x = x + fnp.reshape(grouped(q, q * 2, q + 1), x.shape)
            x = x + fnp.maximum(x @ up, 0) @ down
        return (x * x).mean()

    layer = types(F32, (64, 64), (64, 128), (128, 64))
    found = plan(fuser.grad(loss), (layer, layer), *types(F32, (2, 32, 64)))
    assert [group.ops.count("attention") for group in found.groups if "attention" in group.ops] == [1] * 6
