"""The benchmark harness: workloads against independent oracles, rows of a real run, verdicts on made-up figures."""

from __future__ import annotations

import json
import pathlib
import re
import time
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import scipy.sparse.csgraph
import scipy.special
import scipy.stats

import fuser
import fuser.numpy as fnp
from bench import __main__ as command
from bench import compare, large, machine, measure, report, startup, systems
from bench.workload import FLOATS, outputs
from bench.workloads import SUITES, WORKLOADS, elementwise, select

ROW_FIELDS = {
    *("workload", "size", "dims", "dtype", "device", "system", "bytes", "flops", "skipped", "failure", "first_call_s"),
    *("median_s", "min_s", "q1_s", "q3_s", "samples_s", "calls_per_sample", "gb_per_s", "gflop_per_s", "error"),
    *("tolerance", "correct", "result_dtype"),
}
QUICK = measure.Settings(rounds=3)


@pytest.fixture(autouse=True)
def settings_as_they_were() -> Iterator[None]:
    """Systems choose dtypes and the backend for their whole process, which other tests share."""
    own = {name: getattr(fuser.config, name) for name in ("enable_x64", "backend")}
    theirs = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_default_matmul_precision")}
    yield
    for name, value in own.items():
        fuser.config.update(name, value)
    for name, value in theirs.items():
        jax.config.update(name, value)


class Scripted(systems.System):
    """A system made of one function of (workload, inputs), for tests."""

    def __init__(self, name: str, function: Any) -> None:
        self.name, self.function = name, function

    def prepare(self, workload: Any, inputs: Any, dtype: str) -> systems.Prepared:
        return systems.Prepared(
            lambda: self.function(workload, inputs), lambda result: None, lambda result: outputs(result)
        )


def right(workload: Any, inputs: Any) -> Any:
    return workload.array(np, *inputs)


# workloads


def test_every_named_workload_of_the_issue_is_there_at_full_size() -> None:
    named = {"polynomial", "chain", "black_scholes", "softmax", "layer_norm", "rms_norm", "cross_entropy", "column_sum"}
    named |= {"full_sum", "stencil", "nbody", "mandelbrot", "gelu_mlp"}
    named |= {"cross_entropy_gradient", "mlp_train_step", "monte_carlo_paths", "monte_carlo_loop"}
    assert named <= set(WORKLOADS)
    assert all(np.prod(WORKLOADS[name].sizes["full"]) == 16 << 20 for name in ("polynomial", "chain", "full_sum"))
    assert all(WORKLOADS[name].sizes["full"] == (4096, 4096) for name in ("softmax", "layer_norm", "column_sum"))


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("system", ["numpy", "jax", "torch", "numexpr"])
def test_peers_agree_with_the_float64_reference(name: str, system: str) -> None:
    workload, adapter = WORKLOADS[name], systems.CPU[system]
    if adapter.refusal(workload, "float32"):
        assert workload.numpy_alone if system == "torch" else system == "numexpr" and workload.numexpr is None
        return
    inputs = workload.inputs("tiny")
    prepared = adapter.prepare(workload, inputs, "float32")
    results = prepared.fetch(prepared.launch())
    reference = workload.reference(inputs)
    integers = [exact.dtype.kind in "iu" for exact in reference]
    assert all(result.dtype == "float32" or integer for result, integer in zip(results, integers, strict=True))
    assert workload.error(results, reference) <= workload.tolerance("float32")


@pytest.mark.parametrize("name", SUITES["science"])
def test_scientific_code_agrees_with_the_float64_reference(name: str) -> None:
    row = measure.measure_cell(WORKLOADS[name], "tiny", [systems.CPU["fuser"]], measure.Settings(rounds=1))[0]
    assert row["failure"] is None and row["correct"], row


@pytest.mark.parametrize("name", ["black_scholes", "lotka_volterra", "newton_roots", "scan_of_eight", "scalar_while"])
def test_numba_loops_agree_with_the_float64_reference(name: str) -> None:
    workload = WORKLOADS[name]
    row = measure.measure_cell(workload, "tiny", [systems.CPU["numba"]], QUICK)[0]
    assert row["correct"] and row["failure"] is None


@pytest.mark.parametrize("dtype", FLOATS)
def test_peers_are_within_the_tolerance_of_each_dtype(dtype: str) -> None:
    chosen = [systems.CPU["torch"], systems.CPU["jax"]]
    rows = measure.measure(
        select(["chain", "softmax", "layer_norm"]), ["tiny"], chosen, measure.Settings(1, dtype), lambda text: None
    )
    assert [(row["workload"], row["system"]) for row in rows if not row["correct"]] == []
    assert {row["result_dtype"] for row in rows} == {dtype}


def test_the_reference_is_right_by_other_means() -> None:
    (x,) = inputs = WORKLOADS["softmax"].inputs("tiny")
    np.testing.assert_allclose(
        WORKLOADS["softmax"].reference(inputs)[0], scipy.special.softmax(x.astype(float), -1), rtol=1e-12
    )
    logits, labels = inputs = WORKLOADS["cross_entropy"].inputs("tiny")
    expected = -scipy.special.log_softmax(logits.astype(float), -1)[np.arange(len(labels)), labels]
    for name in ("cross_entropy", "cross_entropy_one_hot"):
        np.testing.assert_allclose(WORKLOADS[name].reference(inputs)[0], expected, rtol=1e-12)
    d = np.linspace(-5.0, 5.0, 101)
    np.testing.assert_allclose(elementwise.cumulative_normal(np, d), scipy.stats.norm.cdf(d), atol=1e-7)
    bodies = WORKLOADS["nbody"].inputs("tiny")
    forces = WORKLOADS["nbody"].reference(bodies)
    np.testing.assert_allclose([np.sum(bodies[3] * force) for force in forces], 0.0, atol=1e-12)


def test_the_reference_in_blocks_equals_the_reference_at_once() -> None:
    workload = WORKLOADS["layer_norm"]
    inputs = tuple(array.astype(np.float64) for array in workload.inputs("medium"))
    np.testing.assert_allclose(workload.reference(inputs)[0], workload.array(np, *inputs), rtol=1e-13)


def test_systems_without_loops_do_not_write_thousands_of_iterations_out() -> None:
    workload = WORKLOADS["lotka_volterra"]
    refusals = {
        name: systems.CPU[name].refusal(workload, "float32") for name in ("fuser", "torch", "inductor", "accelerate")
    }
    told = "its 1000 iterations would be written out one by one"
    assert refusals == {"fuser": None, "torch": None, "inductor": told, "accelerate": told}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=re.escape("no workload 'sofmax'; the workloads are polynomial, chain")):
        select(["sofmax"])
    with pytest.raises(ValueError, match=re.escape("no system 'xla'; the systems are fuser, accelerate, numpy")):
        systems.select(["xla"])
    with pytest.raises(ValueError, match=re.escape("no suite 'sciences'; the suites are arrays, programs, science")):
        select([], ["sciences"])
    assert [workload.name for workload in select(["norm"])] == ["layer_norm", "rms_norm"]


def test_suites_hold_the_named_workloads() -> None:
    assert (len(SUITES["arrays"]), len(SUITES["programs"])) == (13, 9) and len(SUITES["science"]) >= 15
    assert {name for names in SUITES.values() for name in names} <= set(WORKLOADS)
    chosen = [workload.name for workload in select(["chain"], ["science"])]
    assert chosen == [*SUITES["science"], "chain"]


def test_scientific_code_in_numpy_agrees_with_scipy() -> None:
    def numpy(name: str) -> tuple[Any, Any]:
        inputs = WORKLOADS[name].inputs("tiny", "float64" if "float64" in WORKLOADS[name].dtypes else "float32")
        return inputs, WORKLOADS[name].array(np, *inputs)

    (a,), (q, r) = numpy("gram_schmidt")
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_allclose(q.T @ q, np.eye(a.shape[1]), atol=1e-12)
    (a,), (packed, order) = numpy("lu_pivot")
    np.testing.assert_allclose((np.tril(packed, -1) + np.eye(len(a))) @ np.triu(packed), a[order], atol=1e-12)
    (a,), packed = numpy("lu")
    np.testing.assert_allclose((np.tril(packed, -1) + np.eye(len(a))) @ np.triu(packed), a, atol=1e-12)
    (a,), low = numpy("cholesky")
    np.testing.assert_allclose(low, np.linalg.cholesky(a), atol=1e-12)
    for name in ("forward_substitution", "triangular_solve"):
        (low, right), x = numpy(name)
        np.testing.assert_allclose(low @ x, right, atol=1e-12)
    (r,), y = numpy("durbin")
    toeplitz = scipy.linalg.toeplitz(np.concatenate([[1.0], r[:-1]]))
    np.testing.assert_allclose(toeplitz @ y, -r, atol=1e-12)
    (distance,), path = numpy("floyd_warshall")
    np.testing.assert_allclose(path, scipy.sparse.csgraph.floyd_warshall(distance), rtol=1e-12)
    (rows, columns, entries, x), product = numpy("sparse_product")
    matrix = scipy.sparse.coo_array((entries, (rows, columns)), (len(x), len(x)))
    np.testing.assert_allclose(product, matrix @ x, atol=1e-12)
    (message,), crc = numpy("checksum")
    assert int(crc[0]) == zlib.crc32(message.tobytes())
    (messages,), crcs = numpy("packets")
    assert [int(crc) for crc in crcs] == [zlib.crc32(packet.tobytes()) for packet in messages.T]
    (data,), found = numpy("covariance")
    np.testing.assert_allclose(found, np.cov(data.T), atol=1e-12)
    (data,), found = numpy("correlation")
    np.testing.assert_allclose(found, np.corrcoef(data.T), atol=1e-12)
    (image, weights), filtered = numpy("convolution")
    np.testing.assert_allclose(filtered, scipy.signal.correlate2d(image, weights, "valid"), atol=1e-12)


# measurement


def test_a_wrong_system_is_flagged_and_a_failing_one_is_told_in_words() -> None:
    def off(workload: Any, inputs: Any) -> Any:
        return right(workload, inputs) * np.float32(1.0001)

    def hidden_nan(workload: Any, inputs: Any) -> Any:
        result = right(workload, inputs)
        result.flat[7] = np.nan
        return result

    def wide(workload: Any, inputs: Any) -> Any:
        return right(workload, inputs).astype(np.float64)

    def short(workload: Any, inputs: Any) -> Any:
        return right(workload, inputs)[:-1]

    def broken(workload: Any, inputs: Any) -> Any:
        raise MemoryError("no room\nat all")

    chosen: list[systems.System] = [
        Scripted(function.__name__, function) for function in (right, off, hidden_nan, wide, short, broken)
    ]
    rows = {row["system"]: row for row in measure.measure_cell(WORKLOADS["softmax"], "tiny", chosen, QUICK)}
    assert rows["right"]["correct"]
    assert [rows[name]["correct"] for name in ("off", "hidden_nan", "wide", "short")] == [False] * 4
    assert 5e-5 < rows["off"]["error"] < 1.1e-4 and rows["short"]["error"] == float("inf")
    assert rows["wide"]["result_dtype"] == "float64"
    assert rows["broken"]["failure"] == "MemoryError: no room" and "median_s" not in rows["broken"]


def test_a_result_that_goes_wrong_later_is_flagged() -> None:
    calls: list[int] = []

    def stale(workload: Any, inputs: Any) -> Any:
        calls.append(1)
        return right(workload, inputs) if len(calls) < 5 else np.zeros_like(inputs[0])

    row = measure.measure_cell(WORKLOADS["softmax"], "tiny", [Scripted("stale", stale)], QUICK)[0]
    assert row["correct"] is False and row["error"] > 0.5


def test_mandelbrot_forgives_few_pixels_and_not_many() -> None:
    workload = WORKLOADS["mandelbrot"]
    (count,) = workload.reference(workload.inputs("small"))
    few, many = count.copy(), count.copy()
    few.flat[:100] += 1.0
    many.flat[:1000] += 1.0
    assert workload.error((few,), (count,)) == 0.0
    assert workload.error((many,), (count,)) > workload.tolerance("float32")


def test_rounds_interleave_the_systems_and_rotate_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "WARM_SECONDS", 0.0)
    order: list[str] = []

    def logged(name: str) -> Scripted:
        def function(workload: Any, inputs: Any) -> Any:
            order.append(name)
            time.sleep(measure.SAMPLE_SECONDS)  # so that one call makes a sample
            return right(workload, inputs)

        return Scripted(name, function)

    rows = measure.measure_cell(WORKLOADS["chain"], "tiny", [logged("a"), logged("b")], measure.Settings(rounds=4))
    assert [(row["calls_per_sample"], len(row["samples_s"])) for row in rows] == [(1, 4), (1, 4)]
    assert (
        "".join(order[-18:]) == "aabb" + "bbaa" + "aabb" + "bbaa" + "ab"
    )  # an untimed call, then the sample; a last check
    assert all(row["min_s"] >= measure.SAMPLE_SECONDS for row in rows)


def test_after_the_deadline_rows_say_so() -> None:
    settings = measure.Settings(rounds=3, deadline=time.perf_counter() - 1.0)
    row = measure.measure_cell(WORKLOADS["chain"], "tiny", [systems.CPU["numpy"]], settings)[0]
    assert row["skipped"] == "the time budget was used up" and "median_s" not in row


def test_ideal_bytes_count_each_input_and_output_once() -> None:
    row = measure.measure_cell(WORKLOADS["polynomial"], "tiny", [systems.CPU["numpy"]], QUICK)[0]
    assert row["bytes"] == 3 * 4 * 1000
    row = measure.measure_cell(WORKLOADS["cross_entropy"], "tiny", [systems.CPU["numpy"]], QUICK)[0]
    assert row["bytes"] == 4 * (33 * 65 + 33 + 33)


# the command


@pytest.mark.slow
def test_a_quick_run_writes_its_document_and_compares_with_itself(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    quick = ["polynomial", "full_sum", "--systems", "numpy,jax,numexpr", "--sizes", "tiny", "--quick"]
    assert command.main([*quick, "--json", str(first), "--plot", str(tmp_path)]) == 0
    document = json.loads(first.read_text())
    assert document["schema"] == 1 and document["copy_bytes_per_s"] > 1e8
    assert document["machine"]["cores"] >= 1 and document["machine"]["versions"]["numpy"] == np.__version__
    rows = {(row["workload"], row["system"]): row for row in document["rows"]}
    assert set(rows) == {(name, peer) for name in ("polynomial", "full_sum") for peer in ("numpy", "jax", "numexpr")}
    assert rows["full_sum", "numexpr"]["skipped"] == "no expression form"
    measured = [row for row in rows.values() if not row["skipped"]]
    assert len(measured) == 5 and all(set(row) == ROW_FIELDS and row["correct"] for row in measured)
    for row in measured:
        assert row["min_s"] <= row["q1_s"] <= row["median_s"] <= row["q3_s"] and len(row["samples_s"]) == 5
    assert {path.name for path in tmp_path.glob("*.png")} == {"speed-tiny.png", "bandwidth-tiny.png"}
    assert command.main([*quick, "--json", str(second), "--compare", str(first)]) == 0
    assert command.main([*quick, "--json", str(tmp_path)]) == 0, "a folder takes a file of the usual name"
    assert [json.loads(path.read_text())["schema"] for path in tmp_path.glob("*-cores.json")] == [1]
    printed = capsys.readouterr().out
    assert "against the older run" in printed and "polynomial" in printed


def test_a_wrong_result_fails_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Scripted("numpy", lambda workload, inputs: right(workload, inputs) + np.float32(1.0))
    monkeypatch.setitem(systems.CPU, "numpy", wrong)
    assert command.main(["chain", "--systems", "numpy", "--sizes", "tiny", "--quick", "--json", "-"]) == 1
    assert "chain tiny on numpy is wrong: error" in capsys.readouterr().out


def test_a_failing_peer_is_reported_but_a_failing_fuser_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(workload: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler")

    for name, status in (("numba", 0), ("fuser", 1)):
        monkeypatch.setitem(systems.CPU, name, Scripted(name, broken))
        chosen = ["chain", "--systems", f"numpy,{name}", "--sizes", "tiny", "--quick", "--json", "-"]
        assert command.main(chosen) == status
        assert f"chain tiny on {name} failed: RuntimeError: no compiler" in capsys.readouterr().out


def test_list_names_all_workloads_and_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{name}: " in printed for name in (*WORKLOADS, *systems.CPU))


def test_bad_arguments_end_with_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["chain", "--sizes", "huge"]) == 2
    assert "no size 'huge'; the sizes are tiny, small, medium, full, large" in " ".join(capsys.readouterr().err.split())


# verdicts


def made_up(median: float, spread: float = 0.02, **changes: Any) -> dict[str, Any]:
    """A row with this median and relative interquartile range."""
    row: dict[str, Any] = {
        "workload": "softmax",
        "size": "full",
        "dtype": "float32",
        "device": "cpu",
        "system": "fuser",
    }
    row |= {"median_s": median, "min_s": median * (1 - spread), "correct": True}
    return row | {"q1_s": median * (1 - spread / 2), "q3_s": median * (1 + spread / 2)} | changes


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (made_up(1.0), made_up(0.8), "FASTER"),
        (made_up(0.8), made_up(1.0), "SLOWER"),
        (made_up(1.0), made_up(0.98), "SAME"),  # less than any run repeats
        (made_up(1.0, 0.5), made_up(0.8, 0.5), "SAME"),  # within the spread of both
        (made_up(1.0), made_up(0.8, min_s=1.0), "SAME"),  # only the median moved
        (made_up(1.0), made_up(0.4, 0.5), "FASTER"),
    ],
)
def test_a_difference_counts_beyond_the_noise(old: Any, new: Any, expected: str) -> None:
    assert compare.verdict(old, new) == expected
    entry = compare.compare([old, made_up(1.0, system="jax")], [new, made_up(1.0, workload="chain")])
    assert [(each["workload"], each["verdict"]) for each in entry] == [("softmax", expected)]
    assert entry[0]["ratio"] == pytest.approx(old["median_s"] / new["median_s"])


def test_the_targets_pass_miss_or_were_not_measured() -> None:
    rows = [made_up(1.0, system="jax"), made_up(0.2)]
    rows += [made_up(1.0, system="jax", workload="chain"), made_up(0.2, workload="chain")]
    rows += [made_up(1.0, system="jax", workload="layer_norm"), made_up(0.2, workload="layer_norm", correct=False)]
    rows += [made_up(1.0, system="jax", workload="column_sum"), made_up(1.01, workload="column_sum")]
    rows += [made_up(1.0, system="jax", workload="full_sum"), made_up(1.2, workload="full_sum")]
    rows += [made_up(1.0, system="jax", workload="polynomial", size="small"), made_up(0.1, workload="polynomial")]
    checks = {check["workload"]: check for check in compare.must_reach(rows)}
    assert {name: check["verdict"] for name, check in checks.items()} == {
        **dict.fromkeys((name for name, _ in compare.MUST_REACH), "NOT MEASURED"),
        "chain": "MISS",  # 5 times, of 6
        "softmax": "PASS",
        "layer_norm": "MISS",  # fast and wrong
        "column_sum": "PASS",  # no slower, within the noise
        "full_sum": "MISS",
    }
    assert checks["softmax"]["ratio"] == pytest.approx(5.0)
    assert report.checks_table(list(checks.values())).row_count == len(compare.MUST_REACH)


def test_geometric_means_of_a_suite_name_the_lowest_ratio() -> None:
    rows = [made_up(1.0, system="jax"), made_up(0.25), made_up(1.0, system="jax", workload="chain")]
    rows += [made_up(1.0, workload="chain"), made_up(3.0, system="numpy"), made_up(1.0, workload="nbody")]
    entries = compare.means(rows, {"both": ("softmax", "chain", "nbody"), "none": ("polynomial",)})
    assert [(e["suite"], e["peer"], e["count"], e["where"]) for e in entries] == [
        ("both", "jax", 2, "chain"),
        ("both", "numpy", 1, "softmax"),
    ]
    assert [e["mean"] for e in entries] == pytest.approx([2.0, 12.0]) and entries[0]["lowest"] == 1.0
    rows[1]["correct"] = False
    assert compare.means(rows, {"both": ("softmax", "chain")})[0]["mean"] == 0.0
    assert report.means_table(entries).row_count == 2


# start-up and the machine


def test_startup_figures_come_from_fresh_processes_and_tell_what_failed() -> None:
    seconds = startup._median(startup.IMPORT, "json", 2, warm=False)
    assert 0.0 < seconds < 5.0
    entry = startup._entry("import fuser", "fuser", lambda: startup._median(startup.IMPORT, "no_such_module", 1, False))
    assert entry["failure"] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert entry["verdict"] == "NOT MEASURED" and entry["limit"] == 0.2
    assert startup._entry("import fuser", "fuser", lambda: 0.3)["verdict"] == "MISS"
    assert startup._entry("import fuser", "fuser", lambda: 0.15)["verdict"] == "PASS"


def test_planning_is_measured_for_a_program_of_known_size() -> None:
    scope: dict[str, Any] = {}
    exec(startup.PLANNING.replace("{figure}", "few, count = seconds(20)"), scope)
    assert 0.0 < scope["few"] < 1.0 and scope["count"] == 28  # 14 operations a round, of which there are two


def test_large_programs_are_the_same_function_to_both_and_have_2000_equations() -> None:
    ours, theirs = large.programs(fuser, fnp), large.programs(jax, jax.numpy)
    assert tuple(ours) == tuple(theirs) == large.NAMES
    for name, (function, arguments) in ours.items():
        assert len(fuser.jit(function).trace(*arguments).graph.eqns) >= 2000
        other, values = theirs[name]
        assert len(jax.make_jaxpr(other)(*values).eqns) >= 2000
        for a, b in zip(jax.tree.leaves(arguments), jax.tree.leaves(values)):
            np.testing.assert_array_equal(a, b)


def test_figures_side_by_side_take_jax_for_the_limit(monkeypatch) -> None:
    runs = []

    def median(script: str, system: str, repeats: int, warm: bool) -> float:
        runs.append(system)
        return {"fuser": 1.0, "jax": 2.0}[system]

    monkeypatch.setattr(startup, "_median", median)
    ours, theirs = startup._beside("compile", "pass", 3, ("fuser", "jax"))
    assert runs == ["fuser", "jax"] * 3
    assert (ours["value"], ours["limit"], ours["verdict"]) == (1.0, 2.0, "PASS")
    assert (theirs["value"], theirs["verdict"]) == (2.0, None)


def test_a_machine_has_a_file_name() -> None:
    facts = {"cpu": "Some CPU (R) @ 3 GHz", "cores": 2, "gpu": None}
    assert machine.slug(facts) == "some-cpu-r-3-ghz-2-cores"
    assert machine.slug(facts | {"gpu": "NVIDIA H200"}) == "nvidia-h200"


def test_times_are_printed_with_their_unit() -> None:
    assert [report.seconds(value) for value in (2.0, 0.0345, 4.5e-6, 1.2e-8)] == ["2 s", "34.5 ms", "4.5 µs", "12 ns"]


def test_untimed_calls_come_before_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as other systems' threads spin."""
    monkeypatch.setattr(measure, "WARM_SECONDS", 0.05)
    calls: list[str] = []

    def function(workload: Any, inputs: Any) -> Any:
        calls.append("call")
        time.sleep(0.01)
        return right(workload, inputs)

    [row] = measure.measure_cell(WORKLOADS["chain"], "tiny", [Scripted("a", function)], measure.Settings(rounds=20))
    assert row["calls_per_sample"] == 1 and len(row["samples_s"]) == 20
    assert len(calls) > 20 * 3, "one would be a call before each sample"
