"""Exchanges between GPUs on a second stream, while the device computes: order, numbers, and that a missing wait is caught."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import processes_on_gpus

import fuser
import fuser.numpy as fnp
from fuser import NamedSharding, P, config, lax
from fuser.backends.triton.device import link, operations, overlap
from fuser.parallel import passes
from fuser.runtime.core import native
from tests import cuda_stand_in

pytestmark = [
    pytest.mark.xdist_group("triton"),
    pytest.mark.skipif(native is None, reason="the native core is not built, or turned off"),
]
COUNT = 4
AUTO = fuser.sharding.AxisType.Auto


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[cuda_stand_in.Device]:
    """Four GPUs, on which an exchange runs beside as little as one kernel and a bucket is full with one layer."""
    monkeypatch.setattr(overlap, "FORK_SECONDS", 0.0)
    monkeypatch.setattr(passes, "bucket_bytes", lambda devices, link: 6000)
    with cuda_stand_in.opened(COUNT) as opened, config.using(num_cpu_devices=COUNT):
        yield opened


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The operations of each program as it is linked, without those that compute addresses."""
    found: list[Any] = []

    class Recording(link._Prepared):
        def __init__(self, made: list[Any], arguments: Any) -> None:
            super().__init__(made, arguments)
            found.append(made)

    monkeypatch.setattr(link, "_Prepared", Recording)
    return found


def words(made: Any) -> list[str]:
    """Operations as text: what runs beside the main stream in brackets."""
    found = []
    for operation in made:
        if isinstance(operation, operations.Beside):
            found.append(f"begin{operation.event}({' '.join(words(operation.body))})")
        elif isinstance(operation, operations.Join):
            found.append(f"end{operation.event}")
        elif isinstance(operation, operations.Exchange):
            found.append("+".join(sorted({sent.kind for sent in operation.sent})))
        elif isinstance(operation, operations.Repeat):
            found += ["loop", *words(operation.body), "again"]
        elif not isinstance(operation, operations.Point):
            found.append({"Multiply": "product"}.get(type(operation).__name__, type(operation).__name__.lower()))
    return found


def mesh_of(platform: str = "cuda") -> Any:
    return fuser.make_mesh((COUNT,), ("x",), axis_types=(AUTO,), devices=fuser.devices(platform)[:COUNT])


def put(value: Any, mesh: Any, *spec: Any) -> Any:
    return fuser.device_put(np.asarray(value), NamedSharding(mesh, P(*spec)))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def training(platform: str) -> tuple[Any, Any]:
    """A data-parallel step over four layers of 9 KB, and its arguments."""
    mesh = mesh_of(platform)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = fnp.tanh(x @ w)
        return (x**2).mean()

    def step(ws: Any, x: Any) -> Any:
        return [w - 0.1 * s for w, s in zip(ws, fuser.grad(loss)(ws, x))]

    ws = [put(0.2 * numbers(48, 48, seed=n), mesh) for n in range(4)]
    return fuser.jit(step), (ws, put(numbers(16, 48, seed=9), mesh, "x"))


def trained(platform: str, calls: int = 6) -> list[np.ndarray]:
    step, (ws, x) = training(platform)
    for _ in range(calls):
        ws = step(ws, x)
    return [np.asarray(w) for w in ws]


def test_sums_of_gradients_travel_while_other_layers_compute(device: Any, linked: list[Any]) -> None:
    """A bucket is a unit: the exchange of shares, their addition, the gather of the sums. At most two are under way."""
    found = trained("cuda")
    text = words(max(linked, key=len))
    unit = "(swap kernel gather)"
    begins = [n for n, word in enumerate(text) if word.startswith("begin") and word.endswith(unit)]
    assert len(begins) >= 3 and not any(word in ("swap", "gather") for word in text)
    under_way = np.cumsum([word.startswith("begin") - word.startswith("end") for word in text])
    assert under_way.max() == 2 and under_way[-1] == 0
    for begin in begins[:-1]:
        end = text.index("end" + text[begin][len("begin") :].removesuffix(unit), begin)
        assert {"product", "kernel"} & set(text[begin:end])
    for a, b in zip(found, trained("cpu")):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    assert device.counts()["graphs"]


def test_bits_are_those_of_one_stream(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = trained("cuda")
    monkeypatch.setattr(overlap, "FORK_SECONDS", np.inf)
    for a, b in zip(beside, trained("cuda")):
        assert a.tobytes() == b.tobytes()


def test_compute_is_enqueued_between_start_and_wait(device: Any) -> None:
    """As the driver sees it, launched and captured: exchanges on a stream of their own, with work of the main one before its wait."""
    trained("cuda", 1)  # connects
    step, (ws, x) = training("cuda")
    for call, captured in ((1, False), (2, True)):
        device.record()
        fuser.block_until_ready(step(ws, x))
        journal = device.journal()
        streams = {stream for stream, _, kind in journal if kind == "exchange"}
        assert len(streams) == COUNT
        for side in streams:
            device_of = [n for n, (stream, _, _) in enumerate(journal) if stream == side]
            first = next(n for n in device_of if journal[n][2] == "exchange")
            branch = journal[first][1]
            assert (branch > 0) == captured, call
            assert {kind for stream, _, kind in journal if stream == side} <= {"after", "exchange", "kernel", "copy"}
        main = {stream for stream, _, kind in journal if kind == "product"}
        assert main and not main & streams
        for stream in main:
            order = [kind for s, _, kind in journal if s == stream or (s in streams and kind == "exchange")]
            between = order[order.index("exchange") : len(order) - 1 - order[::-1].index("product")]
            assert between.count("product") + between.count("kernel") >= 2


@pytest.mark.parametrize("lost", ["all", "first", "last"])
def test_a_missing_wait_is_caught(device: Any, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """The stand-in refuses a kernel that reads what the second stream writes, and a graph with a branch that nothing joins."""
    numbers = itertools.count(1)  # each thread, one a device, gets its own
    plain = operations.Join.tuples

    def without(self: Any, chosen: Any, keep: Any) -> Any:
        number = next(numbers)
        kept = {"all": False, "first": number > 1, "last": number % total}[lost]
        return plain(self, chosen, keep) if kept else []

    step, args = training("cuda")
    waits = [w for w in words(_operations(monkeypatch, step, args)) if w.startswith("end")]
    total = len(waits)
    monkeypatch.setattr(operations.Join, "tuples", without)
    step, args = training("cuda")
    with pytest.raises(RuntimeError, match="refused a"):
        fuser.block_until_ready(step(*args))
    device.abandon()
    assert re.search("does not wait for the stream that wrote its memory|another stream still reads", device.fault)
    assert next(numbers) > 1


def test_a_graph_with_a_branch_that_nothing_waits_for_is_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trained("cuda", 1)  # connects
    step, args = training("cuda")
    monkeypatch.setattr(operations.Join, "tuples", lambda self, chosen, keep: [])
    device.switch.checking.value = device.switch.execute.value = 0  # which would refuse the first call, and run into it
    try:
        with pytest.raises(RuntimeError, match="a branch of a graph that nothing waits for"):
            for _ in range(3):
                step(*args)
    finally:
        device.abandon()
        device.switch.checking.value = device.switch.execute.value = 1


def _operations(monkeypatch: pytest.MonkeyPatch, step: Any, args: Any) -> Any:
    """Those of the largest program that a call links."""
    found: list[Any] = []
    with monkeypatch.context() as patch:
        plain = link._Prepared.__init__

        def recording(self: Any, made: Any, arguments: Any) -> None:
            found.append(made)
            plain(self, made, arguments)

        patch.setattr(link._Prepared, "__init__", recording)
        fuser.block_until_ready(step(*args))
    return max(found, key=len)


def test_weights_are_gathered_while_the_layer_before_computes(device: Any, linked: list[Any]) -> None:
    results = []
    for platform in ("cuda", "cpu"):
        mesh = mesh_of(platform)
        whole = NamedSharding(mesh, P())

        def forward(ws: Any, x: Any, whole: Any = whole) -> Any:
            for w in ws:
                x = fnp.tanh(x @ lax.with_sharding_constraint(w, whole))
            return x

        ws = [put(0.2 * numbers(48, 48, seed=n), mesh, "x") for n in range(5)]
        forward = fuser.jit(forward)
        for _ in range(4):
            y = forward(ws, put(numbers(16, 48), mesh, "x"))
        results.append(np.asarray(y))
    text = words(max(linked, key=len))
    assert text[:5] == ["begin0(gather)", "end0", "begin0(gather)", "begin1(gather)", "kernel"]
    under_way = np.cumsum([word.startswith("begin") - word.startswith("end") for word in text])
    assert under_way.max() == 2 and text.count("begin0(gather)") + text.count("begin1(gather)") == 5
    np.testing.assert_allclose(*results, 1e-5, 1e-6)


def test_blocks_go_round_the_ring_while_each_is_used(device: Any, linked: list[Any]) -> None:
    """In each iteration of a loop: the next block is on its way while this one is multiplied."""
    ring = [(n, (n + 1) % COUNT) for n in range(COUNT)]

    def rows_times_all(a: Any, b: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            total, block = carry
            return (total + fnp.tanh(a @ block), lax.ppermute(block, "x", ring)), None

        return lax.scan(turn, (fnp.zeros((a.shape[0], b.shape[1]), np.float32), b), None, length=COUNT)[0][0]

    results = []
    for platform in ("cuda", "cpu"):
        mesh = mesh_of(platform)
        f = fuser.jit(fuser.shard_map(rows_times_all, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
        for _ in range(4):
            y = f(put(numbers(64, 16), mesh, "x"), put(numbers(64, 24, seed=1), mesh, "x"))
        results.append(np.asarray(y))
    text = words(max(linked, key=lambda made: len(words(made))))
    loop = text[text.index("loop") : text.index("again")]
    begin, end = loop.index("begin0(permute)"), loop.index("end0")
    assert {"product", "kernel"} & set(loop[begin:end])
    np.testing.assert_allclose(*results, 1e-5, 1e-5)


def test_collectives_beside_others_have_the_bits_of_the_cpu(device: Any) -> None:
    """All of them, in loops and branches too; launched, captured and replayed."""
    found = processes_on_gpus.results(COUNT, "cuda")
    for name, wanted in processes_on_gpus.results(COUNT, "cpu").items():
        assert np.asarray(found[name]).tobytes() == np.asarray(wanted).tobytes(), name


def test_what_is_over_before_two_events_are_stays_on_one_stream(
    device: Any, linked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "FORK_SECONDS", 4e-6)
    trained("cuda", 1)
    assert not any(word.startswith(("begin", "end")) for made in linked for word in words(made))
