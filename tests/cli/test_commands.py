"""explain, report, cache and doctor, as text and as JSON; the errors, word for word."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

import fuser
from fuser.config import config
from fuser.report import from_json
from fuser.runtime import core
from fuser.runtime.cache import default_cache

ROOT = pathlib.Path(fuser.__file__).parents[1]


# ---- explain


def test_explain_names_steps_and_lines(command: Any, model: pathlib.Path) -> None:
    result = command("explain", f"{model}:softmax")
    assert (result.status, result.errors) == (0, "")
    assert "became 1 kernel on c" in result.text
    assert "model.py:11 (softmax)  e = jnp.exp(x - x.max(axis=-1, keepdims=True))" in result.text


def test_explain_as_json(command: Any, model: pathlib.Path) -> None:
    document = command("explain", f"{model}:project", "--args", "f32[4,5], f32[5,3]", "--json", "--kernels").document
    assert document["command"] == "explain"
    assert (document["name"], document["backend"]) == ("project", "c")
    assert (document["arguments"], document["results"]) == (["f32[4,5]", "f32[5,3]"], ["f32[4,3]"])
    assert [step["kind"] for step in document["steps"]] == ["elementwise", "contraction"]
    assert document["steps"][0]["lines"] == [
        {"where": "model.py:18 (project)", "text": "return jnp.tanh(x) @ weights", "ops": ["tanh"]}
    ]
    assert document["bytes"] == 4 * (20 + 20 + 20 + 15 + 12)
    assert [(r["first"], r["second"]) for r in document["refused"]] == [
        ("tanh (model.py:18)", "dot_general (model.py:18)")
    ]
    assert [kernel["language"] for kernel in document["kernels"]] == ["c", "c"]


def test_explain_finds_arguments_in_the_file(command: Any, model: pathlib.Path) -> None:
    model.write_text(model.read_text() + "\nexample_args = {'x': np.zeros(7, np.float32)}\n")
    assert command("explain", f"{model}:softmax", "--json").document["arguments"] == ["f32[8,16]"]
    assert command("explain", f"{model}:shifted", "--json").document["arguments"] == ["f32[7]"]


def test_explain_of_an_attribute(command: Any, model: pathlib.Path) -> None:
    assert command("explain", f"{model}:Model.scale", "--args", "f32[3]", "--json").document["name"] == "scale"


def test_the_file_imports_its_neighbours(command: Any, model: pathlib.Path) -> None:
    (model.parent / "neighbour_of_model.py").write_text("FACTOR = 2\n")
    model.write_text("from neighbour_of_model import FACTOR\n\ndef twice(x):\n    return x * FACTOR\n")
    assert command("explain", f"{model}:twice", "--args", "f32[3]").status == 0


# ---- wrong usage


# ---- bisect


def test_bisect_of_a_right_program(command: Any, model: pathlib.Path) -> None:
    result = command("bisect", f"{model}:project", "--args", "f32[4,5], f32[5,3]")
    assert (result.status, result.errors) == (0, "")
    assert "project agrees with the reference on the given arguments" in result.text


def test_bisect_names_the_merge(command: Any, model: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser import backends
    from tests.debug.test_bisect import Miscompiling

    get = backends.get
    monkeypatch.setattr(backends, "get", lambda name: Miscompiling() if name == "c" else get(name))
    model.write_text(model.read_text() + "\ndef roots(x):\n    return jnp.sqrt(jnp.exp(x)), jnp.sqrt(x)\n")
    document = command("bisect", f"{model}:roots", "--args", "f32[7]", "--json").document
    assert not document["agrees"] and document["given_arguments"]
    assert document["merge"] > 0 and "fabsf(" in document["kernel"]


@pytest.mark.parametrize(
    ("target", "args", "message"),
    [
        ("{model}", None, "'{model}' names no function; write FILE:FUNCTION, as in model.py:softmax"),
        ("nowhere.py:f", None, "there is no file nowhere.py; write FILE:FUNCTION, as in model.py:softmax"),
        (
            "{model}:relu",
            None,
            "model.py has no function 'relu'; its functions are softmax, softmax_args, project, shifted, branching, Model",
        ),
        (
            "{model}:SCALE",
            None,
            "SCALE of model.py is of type int, not a function; "
            "its functions are softmax, softmax_args, project, shifted, branching, Model",
        ),
        (
            "{model}:project",
            None,
            'project needs example arguments: pass --args "f32[1024,1024], 3.0", or define project_args() in model.py, '
            "which returns a tuple of arguments",
        ),
        (
            "{model}:project",
            "f32[3,3]",
            "project(x, weights) cannot take these arguments: missing a required argument: 'weights'; "
            'pass --args "f32[1024,1024], 3.0", or define project_args() in model.py, which returns a tuple of arguments',
        ),
    ],
)
@pytest.mark.parametrize("name", ["explain", "report"])
def test_usage_errors(
    command: Any, model: pathlib.Path, name: str, target: str, args: str | None, message: str
) -> None:
    result = command(name, target.format(model=model), *(["--args", args] if args else []))
    assert result.status == 2
    assert result.text == ""
    assert result.errors == f"error: {message.format(model=model)}\n"


def test_errors_as_json(command: Any, model: pathlib.Path) -> None:
    result = command("explain", f"{model}:relu", "--json")
    assert (result.status, result.errors) == (2, "")
    assert result.document["error"]["type"] == "UsageError"
    assert result.document["error"]["message"].startswith("model.py has no function 'relu'")


def test_a_function_that_cannot_be_traced(command: Any, model: pathlib.Path) -> None:
    result = command("explain", f"{model}:branching", "--args", "f32[3]")
    assert result.status == 1
    assert result.errors == (
        "error: TracerBoolConversionError: Attempted boolean conversion of a traced bool[], which has no value yet, so `if` cannot read it (model.py:24); "
        "use fuser.lax.cond, or fuser.numpy.where\n"
    )


def test_a_file_that_fails(command: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "broken_model.py"
    path.write_text("x = 1\ny = x / 0\n")
    result = command("explain", f"{path}:f")
    assert (result.status, result.errors) == (1, "error: ZeroDivisionError: division by zero (broken_model.py:2)\n")
    path.write_text("raise SystemExit(3)\n")
    result = command("explain", f"{path}:f")
    assert result.status == 2
    assert result.errors == (
        'error: broken_model.py exits when it is imported (status 3); put its main program under if __name__ == "__main__":\n'
    )


def test_unknown_commands_are_usage_errors(command: Any) -> None:
    assert command("frobnicate").status == 2
    assert command("cache", "polish").status == 2
    assert command().status == 2


# ---- report


def test_report_prints_and_writes(command: Any, model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    page, trace, text = (tmp_path / name for name in ("out.html", "out.json", "out.txt"))
    result = command("report", f"{model}:softmax", "--html", page, "--trace", trace, "--text", text)
    assert (result.status, result.errors) == (0, "")
    assert "softmax: profile" in result.text
    assert result.text.splitlines()[-3:] == [f"wrote {path}" for path in (page, trace, text)]
    assert page.read_text().startswith("<!doctype html>")
    assert "softmax: profile" in text.read_text()
    assert {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]} == {"M", "X"}


def test_report_as_json_is_a_profile(command: Any, model: pathlib.Path) -> None:
    result = command("report", f"{model}:softmax", "--json")
    document = result.document
    assert (document["command"], document["written"]) == ("report", {})
    profile = from_json(result.text)
    assert (profile.name, len(profile.kernels)) == ("softmax", 1)


def test_report_of_a_numpy_function(command: Any, model: pathlib.Path) -> None:
    model.write_text("import numpy as np\n\ndef gelu(x, order):\n    return x * np.tanh(x**order)\n")
    profile = from_json(command("report", f"{model}:gelu", "--args", "f64[100], 3", "--json").text)
    assert [node.type for node in profile.graph.nodes if node.label == "x"] == ["f64[100]"]


def test_report_into_no_directory(command: Any, model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    result = command("report", f"{model}:softmax", "--html", tmp_path / "missing" / "out.html")
    assert result.status == 2
    assert result.errors == f"error: there is no directory {tmp_path / 'missing'} to write out.html in\n"


# ---- cache


def test_cache_list_size_clear(command: Any, model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    with config.using(cache_dir=str(folder)):
        assert command("cache", "size", "--json").document == {
            "command": "cache", "action": "size", "directory": str(folder),
            "count": 0, "bytes": 0, "limit_bytes": config.cache_limit,
        }  # fmt: skip
        default_cache().put("one", ".so", b"1234")
        default_cache().put_json("two", [1.0])
        listed = command("cache", "list", "--json").document["entries"]
        assert {(entry["kind"], entry["bytes"]) for entry in listed} == {("library", 4), ("figures", 5)}
        assert all(pathlib.Path(entry["path"]).is_file() for entry in listed)
        assert command("cache", "list").text.splitlines()[-1] == f"2 entries in {folder}"
        assert command("cache", "size").text == f"2 entries, 9 B of at most 1.07 GB, in {folder}\n"
        assert command("cache", "clear").text == f"removed 2 entries, 9 B, from {folder}\n"
        assert command("cache", "clear", "--json").document["removed"] == 0
        assert default_cache().entries() == []


# ---- doctor


def test_doctor_finds_this_machine_fit(command: Any) -> None:
    result = command("doctor", "--json")
    findings = {finding["name"]: finding for finding in result.document["findings"]}
    assert result.document["ok"] is True and result.status == 0, findings
    wanted = {"fuser", "numpy", "processor", "C compiler", "OpenMP", "GPU", "torch", "triton", "jax"}
    assert wanted | {"disk cache", "settings", "first program"} <= set(findings)
    assert findings["first program"]["found"] == "compiled, ran and agreed with NumPy (backend c)"
    assert findings["native core"]["found"] == "calls run in C" or core.native is None


def test_doctor_says_why_calls_run_in_python(tmp_path: pathlib.Path) -> None:
    result = _run("doctor", "--json", FUSER_CACHE_DIR=str(tmp_path), FUSER_BACKEND="reference", FUSER_NATIVE="0")
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert findings["native core"] == {
        "name": "native core",
        "state": "absent",
        "found": "calls run in Python, which is slower: FUSER_NATIVE is off",
        "remedy": "unset FUSER_NATIVE",
    }


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FUSER_")}
    return subprocess.run(
        [sys.executable, "-m", "fuser", *arguments],
        capture_output=True, text=True, cwd=ROOT, env={**kept, **environment}, check=False,
    )  # fmt: skip


def test_doctor_without_a_compiler(tmp_path: pathlib.Path) -> None:
    result = _run("doctor", "--json", PATH="", FUSER_CACHE_DIR=str(tmp_path), FUSER_BACKEND="c")
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert result.returncode == 1
    assert findings["C compiler"] == {
        "name": "C compiler",
        "state": "problem",
        "found": "no C compiler was found (looked for cc, gcc, clang on PATH)",
        "remedy": 'install one: "apt-get install gcc" (Debian, Ubuntu), "dnf install gcc" (Fedora), '
        '"xcode-select --install" (macOS); or set FUSER_BACKEND=reference to run in NumPy',
    }
    assert findings["first program"]["state"] == "problem"
    assert findings["numpy"]["state"] == findings["disk cache"]["state"] == "ok"


def test_doctor_with_the_reference_backend_needs_no_compiler(tmp_path: pathlib.Path) -> None:
    result = _run("doctor", PATH="", FUSER_CACHE_DIR=str(tmp_path), FUSER_BACKEND="reference")
    assert result.returncode == 0, result.stdout
    assert "settings      FUSER_BACKEND=reference, " in result.stdout
    assert "\x1b" not in result.stdout and result.stderr == ""


def test_doctor_names_misspelt_settings(tmp_path: pathlib.Path) -> None:
    result = _run("doctor", FUSER_CACHE_DIR=str(tmp_path), FUSER_BACKEND="reference", FUSER_THREDS="1")
    assert result.returncode == 1
    assert "FUSER_THREDS is no setting of fuser's, and does nothing" in result.stdout
    assert "settings: unset it, or write FUSER_THREADS" in result.stdout


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("FUSER_THREADS", "many", "FUSER_THREADS='many' is not an integer; unset it or correct it"),
        ("FUSER_COLLECTIVE_TIMEOUT", "long", "FUSER_COLLECTIVE_TIMEOUT='long' is not a number; unset it or correct it"),
        (
            "FUSER_CACHE",
            "maybe",
            "FUSER_CACHE='maybe' is not 1, true, yes, on, 0, false, no or off; unset it or correct it",
        ),
        (
            "FUSER_LEGACY_PRNG_KEY",
            "no",
            "FUSER_LEGACY_PRNG_KEY: legacy_prng_key is one of 'allow', 'warn', 'error', got 'no'; unset it or correct it",
        ),
    ],
)
def test_settings_that_cannot_be_read(variable: str, value: str, words: str) -> None:
    result = _run("--version", **{variable: value})
    assert result.returncode == 1 and words in result.stderr


def test_doctor_with_an_unsafe_cache_directory(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    result = _run("doctor", FUSER_CACHE_DIR=str(folder), FUSER_BACKEND="reference")
    assert result.returncode == 1
    assert f"the cache directory {folder} is not used: others may write to it" in result.stdout
    assert "disk cache: set FUSER_CACHE_DIR to a directory of your own" in result.stdout


def test_version_and_help() -> None:
    assert _run("--version").stdout == f"fuser {fuser.__version__}\n"
    text = _run("--help").stdout
    assert all(name in text for name in ("demo", "explain", "report", "cache", "doctor"))
