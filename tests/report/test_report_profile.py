"""Profiles of real programs: counts against arithmetic by hand, times against clocks, the picture against the plan."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends import link
from fuser.partition.group import generated
from fuser.report import from_json
from fuser.report.picture import picture
from fuser.report.traffic import CACHE, bytes_moved


def softmax(x):
    e = fnp.exp(x - fnp.max(x, axis=1, keepdims=True))
    return e / fnp.sum(e, axis=1, keepdims=True)


def two_kernels(x, w):
    hidden = x @ w
    return fnp.tanh(hidden) + 1


def ordered(x):
    """Complex numbers are sorted in a library."""
    return fnp.sort(x) * 2 + 1


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.fixture(scope="module")
def softmax_profile():
    return fuser.profile(softmax, repeats=3)(uniform(512, 1024))


def test_softmax_is_one_kernel_that_moves_what_it_must(softmax_profile):
    (kernel,) = softmax_profile.kernels
    size = 512 * 1024 * 4
    assert kernel.kind == "reduction"
    assert (
        kernel.bytes_ideal
        == kernel.bytes_moved
        == softmax_profile.planned_bytes
        == softmax_profile.ideal_bytes
        == 2 * size
    )
    assert kernel.flops == 5 * 512 * 1024  # max, sub, exp, sum, div: one an element each
    assert softmax_profile.peak_bytes == 2 * size
    assert softmax_profile.launches == 1


def test_a_kernel_knows_the_users_lines(softmax_profile):
    (kernel,) = softmax_profile.kernels
    assert [line.text for line in kernel.lines] == [
        "e = fnp.exp(x - fnp.max(x, axis=1, keepdims=True))",
        "return e / fnp.sum(e, axis=1, keepdims=True)",
    ]
    assert all(line.where.startswith("test_report_profile.py:") for line in kernel.lines)
    assert {"exp", "reduce_max", "reduce_sum", "div"} <= set(kernel.ops)


def test_times_are_ordered(softmax_profile):
    (kernel,) = softmax_profile.kernels
    assert softmax_profile.repeats == 3
    assert 0 < kernel.min_seconds <= kernel.median_seconds
    assert 0 < softmax_profile.min_seconds <= softmax_profile.median_seconds
    names = [stage.name for stage in softmax_profile.stages]
    assert names[:6] == ["trace", "optimise", "legalise", "partition", "emit", "load"]
    assert all(stage.seconds > 0 for stage in softmax_profile.stages)


def test_machine_is_measured(softmax_profile):
    machine = softmax_profile.machine
    assert machine.copy_bandwidth > 1e8
    assert machine.peak_flops > 1e8
    assert dict(machine.versions).keys() >= {"python", "numpy"}


def test_every_form_of_a_real_profile(softmax_profile, tmp_path):
    assert from_json(softmax_profile.to_json()) == softmax_profile
    for suffix in (".html", ".trace.json", ".txt"):
        assert softmax_profile.save(tmp_path / f"p{suffix}").stat().st_size > 500


def test_a_second_profile_finds_the_kernel_in_the_cache(softmax_profile):
    again = fuser.profile(softmax, repeats=1)(uniform(512, 1024))
    assert again.kernels[0].cache_hit
    assert again.kernels[0].compile_seconds == 0


def test_library_steps_and_refusals():
    profile = fuser.profile(ordered, repeats=1)(uniform(64, 32) + 0j)
    sort, rest = profile.kernels
    assert (sort.generated, rest.generated) == (False, True)
    assert sort.compile_seconds == 0
    assert any("sort" in refusal.first for refusal in profile.refused)
    assert any(sort.name in note for note in profile.notes)


def test_flops_of_a_product():
    (product,) = fuser.profile(lambda x, w: x @ w, repeats=1)(uniform(64, 32), uniform(32, 16)).kernels
    assert product.flops == 2 * 64 * 32 * 16


def test_steps_are_timed_where_they_are_spent(monkeypatch):
    compiled = fuser.jit(ordered)
    dense = link.dense
    monkeypatch.setattr(link, "dense", lambda arrays: (time.sleep(0.02), dense(arrays))[1])
    profile = fuser.profile(compiled, repeats=3)(uniform(64, 32) + 0j)
    sort, rest = profile.kernels
    assert sort.min_seconds > 0.02 > rest.min_seconds
    assert profile.min_seconds > 0.02


def test_donated_arguments_survive():
    function = fuser.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = fnp.ones((1000,))
    profile = fuser.profile(function, repeats=4)(x)
    assert float(x.sum()) == 1000
    assert profile.notes == ("Donated arguments were kept, so that the call could be repeated.",)


def test_anything_that_can_be_traced_is_profiled():
    class Wrapped:
        """As a front end of another kind: NumPy in, NumPy out, float64 kept."""

        calls = 0

        def trace(self, *args):
            with fuser.config.using(enable_x64=True):
                return fuser.jit(softmax).trace(*args)

        def __call__(self, x):
            self.calls += 1
            return np.asarray(x)

    wrapped = Wrapped()
    profile = fuser.profile(wrapped, repeats=3)(uniform(64, 32).astype(np.float64))
    assert profile.kernels[0].bytes_moved == 2 * 64 * 32 * 8
    assert wrapped.calls >= 3


def test_static_and_keyword_arguments():
    def scale(x, power, *, shift):
        return x**power + shift["by"]

    function = fuser.jit(scale, static_argnums=1)
    profile = fuser.profile(function, repeats=1)(uniform(8), 3, shift={"by": uniform(8)})
    labels = {node.label for node in profile.graph.nodes if node.primitive == "input"}
    assert len(labels) == 2
    assert "x" in labels


def test_repeats_are_counted_or_refused():
    assert fuser.profile(softmax, repeats=2)(uniform(4, 4)).repeats == 2
    with pytest.raises(ValueError) as caught:
        fuser.profile(softmax, repeats=0)
    assert str(caught.value) == "a profile needs at least 1 repeat, got 0"


def test_the_picture_shows_the_plan():
    plan = fuser.jit(two_kernels).lower(uniform(64, 32), uniform(32, 16)).plan
    drawn = picture(plan, ["x", "w"])
    label = {node.id: node.label for node in drawn.nodes}
    group = {node.id: node.group for node in drawn.nodes}
    edges = [(label[a], label[b]) for a, b in drawn.edges]
    assert ("x", "dot_general") in edges
    assert ("w", "dot_general") in edges
    assert ("dot_general", "tanh") in edges
    assert ("tanh", "add") in edges
    assert ("add", "result") in edges
    for number, made in enumerate(plan.groups):
        assert sorted(label[id] for id in group if group[id] == number) == sorted(made.ops)


def moved(function, *arrays: np.ndarray, kernels: int = 1) -> tuple[int, int]:
    """Bytes moved and ideal bytes of the kernels of a function."""
    groups = fuser.jit(function).lower(*arrays).plan.groups
    assert len(groups) == kernels and all(generated(group, fuser.backends.get("c").limits) for group in groups)
    return sum(bytes_moved(group, True) for group in groups), sum(group.ideal_bytes for group in groups)


def test_rows_that_fit_the_cache_are_read_once():
    found, ideal = moved(softmax, uniform(16, CACHE // 8))
    assert found == ideal


def test_rows_beyond_the_cache_are_read_by_each_stage():
    x = uniform(
        2, CACHE // 2
    )  # softmax runs twice over a row, for the maximum and the sum, and stores exponentials, which a kernel divides
    found, ideal = moved(softmax, x, kernels=2)
    sums = 2 * 4 * 2  # one a row, which one kernel writes and the other reads
    assert ideal == 4 * x.nbytes + sums
    assert found == ideal + x.nbytes


def test_columns_run_side_by_side():
    def centred(x):
        return x - fnp.mean(x, axis=0)

    short, tall = uniform(8, 4096), uniform(1024, 2048)
    assert moved(centred, short)[0] == 2 * short.nbytes
    assert moved(centred, tall)[0] == 3 * tall.nbytes


def test_a_missing_gpu_is_named(monkeypatch):
    monkeypatch.setattr("fuser.runtime.device.has_cuda", lambda: False)
    with pytest.raises(RuntimeError) as caught:
        fuser.profile(fuser.jit(softmax, backend="triton"))(uniform(4, 4))
    assert str(caught.value) == (
        "there is no platform 'cuda' on this machine; it has cpu, and to profile a function of the backend triton is to run it "
        "there; set FUSER_BACKEND=c, or compile it without the device: python -m fuser compile --target"
    )


def test_shape_errors_are_the_functions_own():
    with pytest.raises(TypeError):
        fuser.profile(softmax)("no array")
