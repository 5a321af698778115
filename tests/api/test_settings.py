"""Settings by JAX's names: what they change, for how long, and in which thread; beside JAX where it says the same."""

from __future__ import annotations

import logging
import operator
import subprocess
import sys
import threading
from typing import Any

import jax
import numpy as np
import pytest

import fuser
from fuser import numpy as fnp

X = np.array([1.0, 0.0, -1.0], np.float32)


def test_names_of_jax_and_values() -> None:
    fuser.config.update("jax_numpy_rank_promotion", "warn")
    assert fuser.config.jax_numpy_rank_promotion == "warn" == fuser.numpy_rank_promotion.value
    fuser.config.update("jax_numpy_rank_promotion", "allow")
    with pytest.raises(ValueError, match="one of 'allow', 'warn', 'raise'"):
        fuser.config.update("numpy_rank_promotion", "never")
    with pytest.raises(AttributeError, match="no setting"):
        fuser.config.update("jax_no_such_setting", 1)
    with fuser.enable_x64(True):
        assert fnp.arange(2.0).dtype == np.float64
        other: list[Any] = []
        thread = threading.Thread(target=lambda: other.append(fuser.config.enable_x64))
        thread.start()
        thread.join()
        assert other == [False]
    assert fnp.arange(2.0).dtype == np.float32


def test_a_setting_is_read_by_its_name() -> None:
    with fuser.enable_x64(True):
        assert fuser.config.read("jax_enable_x64") is True
    assert fuser.config.read("jax_enable_x64") is jax.config.read("jax_enable_x64")


@pytest.mark.parametrize(
    "way", ["parse_flags_with_absl()", "config_with_absl(); from absl import app; app.run(lambda rest: show())"]
)
def test_settings_are_flags_of_absls_command_line(way: str) -> None:
    pytest.importorskip("absl")
    code = f"import fuser\nshow = lambda: print(fuser.config.enable_x64, fuser.config.log_compiles)\nfuser.config.{way}; show()"
    command = [sys.executable, "-c", code, "--jax_enable_x64", "--jax_log_compiles=false"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[0] == "True False"


def test_traceback_filtering_of_jax() -> None:
    old = fuser.config.traceback
    try:
        for value, wanted in (("off", "full"), ("remove_frames", "short")):
            fuser.config.update("jax_traceback_filtering", value)
            assert fuser.config.traceback == wanted
        assert fuser.config.jax_traceback_filtering == "auto"
        with pytest.raises(ValueError, match="traceback_filtering is one of 'auto'"):
            fuser.config.update("jax_traceback_filtering", "some")
    finally:
        fuser.config.update("traceback", old)


def test_disable_jit() -> None:
    seen = []

    @fuser.jit
    def function(x: Any) -> Any:
        seen.append(type(x))
        return x * 2

    function(X)
    function(X)
    with fuser.disable_jit():
        np.testing.assert_array_equal(function(X), X * 2)
        function(fnp.asarray(X))
        with fuser.disable_jit(disable=False):
            function(X)
    function(X)
    assert len(seen) == 3 and seen[1] is np.ndarray


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    "name, function", [("nan", lambda x: fnp.log(x - 1) + 1), ("inf", lambda x: fnp.divide(1.0, x))]
)
def test_debug_values(jitted: bool, name: str, function: Any) -> None:
    run = fuser.jit(function) if jitted else function
    assert run(X).shape == (3,)
    with getattr(fuser, f"debug_{name}s")(True):
        operation = {"nan": "log", "inf": "div"}[name]
        with pytest.raises(
            FloatingPointError, match=rf"invalid value \({name}\) encountered in {operation} .*test_settings"
        ):
            run(X)
        assert run(np.full(3, 2.0, np.float32)).shape == (3,)
    assert run(X).shape == (3,)


def test_rank_promotion() -> None:
    wide, line = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    for module, library in ((fuser, fnp), (jax, jax.numpy)):
        with module.numpy_rank_promotion("raise"):
            with pytest.raises(ValueError, match="Operands could not be broadcast together for add"):
                library.add(wide, line)
            assert library.add(wide, 1.0).shape == (2, 3)
        with module.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="automatic rank promotion for add"):
            library.add(wide, line)
        library.add(wide, line)
    function = fuser.jit(lambda x, y: x + y)
    function(wide, line)
    with fuser.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank_promotion"):
        function(wide, line)  # though it is compiled already


PAIRS = [
    (np.ones(2, np.float32), 1), (np.ones(2, np.float32), 1.0), (np.ones(2, np.int32), 1.0), (np.ones(2, np.int32), True),
    (np.ones(2, np.float32), np.ones(2, np.int32)), (np.ones(2, np.float32), 1j), (np.ones(2, np.complex64), 1.0), (1, 2.0),
    (np.ones(2, bool), 1), (np.ones(2, np.int8), np.ones(2, np.int8)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_strict_promotion(number: int) -> None:
    results = []
    for module, library in ((fuser, fnp), (jax, jax.numpy)):
        with module.numpy_dtype_promotion("strict"):
            try:
                found = library.add(*map(library.asarray, PAIRS[number][:1]), PAIRS[number][1])
                results.append((found.dtype, found.weak_type))
            except ValueError as error:
                assert "promotion path" in str(error)
                results.append(None)
    assert results[0] == results[1]


def test_scopes_and_caches(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        with fuser.named_scope("layer"):
            y = fnp.sin(x)
        with fuser.ensure_compile_time_eval():
            assert float(fnp.sum(fnp.ones(3))) == 3
        return fuser.named_call(lambda v: v + 1, name="last")(y)

    graph = fuser.jit(function).trace(X).graph
    assert [eqn.source.via for eqn in graph.eqns] == [("layer",), ("last",)]
    with pytest.raises(TypeError, match="must be a string"):
        fuser.named_scope(1)
    jitted = fuser.jit(lambda x: x * 3)
    with fuser.log_compiles(True), caplog.at_level(logging.WARNING, "fuser"):
        jitted(X)
        jitted(X)
        fuser.clear_caches()
        assert jitted._cache_size() == 0
        jitted(X)
    assert len([r for r in caplog.records if "Compiling jit(<lambda>)" in r.message]) == 2
    assert "numpy" in (fuser.print_environment_info(return_string=True) or "")
    assert fuser.float0 == jax.float0 or fuser.float0.itemsize == 0


def test_default_precision_of_products() -> None:
    eye = np.eye(3, dtype=np.float32)
    with fuser.default_matmul_precision("highest"):
        [eqn] = fuser.jit(lambda a: a @ a).trace(eye).graph.eqns
    assert eqn.params["precision"] == "highest"
    for module in (fuser, jax):
        with pytest.raises(ValueError, match=r"'BF16_BF16_F32_X9'.*got .?bad"), module.default_matmul_precision("bad"):
            pass


def test_stages_of_compilations_are_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[str, str]] = []

    def listener(event: str, seconds: float, fun_name: str = "") -> None:
        assert 0 <= seconds < 60
        heard.append((event.rpartition("/")[2], fun_name))

    def doubled(x):
        return x * 2

    fuser.monitoring.register_event_duration_secs_listener(listener)
    try:
        jitted = fuser.jit(doubled)
        with caplog.at_level(logging.DEBUG, "fuser"):
            jitted(X)
            jitted(X)
    finally:
        fuser.monitoring.unregister_event_duration_listener(listener)
    stages = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")
    assert heard == [(stage, "doubled") for stage in stages]
    words = [r.getMessage().rpartition(" in ")[0] or r.getMessage() for r in caplog.records if r.levelname == "DEBUG"]
    assert words == [
        "Finished tracing doubled for jit",
        f"Compiling jit(doubled) with argument types f32[{X.size}]",
        "Finished lowering doubled",
        "Finished XLA compilation of jit(doubled)",
    ]


def test_sums_of_halves_can_be_forbidden() -> None:
    for module in (fuser, jax):
        x = module.numpy.ones((1, 3), "bfloat16")
        with module.allow_f16_reductions(False):
            assert float(module.numpy.sum(x)) == 3
            assert module.lax.reduce_sum(x, [0]).shape == (3,)
            with pytest.raises(ValueError, match="not allowed"):
                module.lax.reduce_sum(x, [1])
        assert float(module.lax.reduce_sum(x, [1])[0]) == 3


LOOKED_AT = {
    "scan": lambda m: m.lax.scan(lambda c, x: (c - x, m.numpy.log(c)), 2.0, m.numpy.ones(4)),
    "while": lambda m: m.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, m.numpy.log(c[1] - 1)), (0, 2.0)),
    "cond": lambda m: m.lax.cond(True, m.numpy.log, lambda x: x, -1.0),
    "log": lambda m: m.grad(m.jit(lambda x: m.numpy.log(x) * x))(-1.0),
    "pure_callback": lambda m: m.pure_callback(np.log, m.ShapeDtypeStruct((), np.float32), -1.0),
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_debug_nans_looks_at_what_runs_compiled_outside_of_jit(name: str) -> None:
    for module in (fuser, jax):
        with module.debug_nans(True), pytest.raises(FloatingPointError, match=rf"\(nan\) encountered in {name}"):
            LOOKED_AT[name](module)
    LOOKED_AT[name](fuser)


def test_strict_promotion_of_functions_that_need_no_common_dtype() -> None:
    for module in (fuser, jax):
        x, n = module.numpy.ones(3), module.numpy.arange(3)
        with module.numpy_dtype_promotion("strict"):
            for function in (operator.pow, module.numpy.power, module.numpy.logical_and):
                with pytest.raises(Exception, match="no available implicit dtype promotion path"):
                    function(x, n)
            assert module.numpy.power(x, 2).tolist() == [1, 1, 1]
            assert module.numpy.logical_or(x, 0).tolist() == [True] * 3
