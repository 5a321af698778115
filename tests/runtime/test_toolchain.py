"""The C compiler: found or missed, words passed on, libraries cached by all that they depend on."""

import ctypes
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from fuser.config import config
from fuser.errors import ToolchainError
from fuser.runtime import compilers, toolchain
from fuser.runtime.cache import default_cache
from fuser.runtime.device import cpu_count
from fuser.runtime.linking import without_libraries

ADD = "int add(int a, int b) { return a + b; }\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.using(cache=True, cache_dir=str(tmp_path / "cache")):
        yield


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_library_is_compiled_once_and_works():
    first, second = toolchain.compile_shared(ADD), toolchain.compile_shared(ADD)
    assert (first.cached, second.cached) == (False, True)
    assert first.path == second.path
    assert first.seconds > 0 and second.seconds == 0
    assert toolchain.load_shared(second.path).add(3, 4) == 7


def test_a_damaged_library_is_compiled_again():
    path = toolchain.compile_shared(ADD).path
    path.write_bytes(path.read_bytes()[:-1])
    again = toolchain.compile_shared(ADD)
    assert not again.cached
    assert toolchain.load_shared(again.path).add(1, 2) == 3


def test_the_key_depends_on_text_flags_compiler_and_processor(monkeypatch, tmp_path):
    compiler = toolchain.find_compiler()
    other = script(tmp_path / "othercc", 'echo "other compiler 1.0"')
    keys = {toolchain.library_key([ADD], compiler), toolchain.library_key([ADD + " "], compiler)}
    keys.add(toolchain.library_key([ADD], other))
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "FLAGS", (*toolchain.FLAGS, "-g"))
        keys.add(toolchain.library_key([ADD], compiler))
    monkeypatch.setattr(toolchain, "processor", lambda: "another processor")
    keys.add(toolchain.library_key([ADD], compiler))
    assert len(keys) == 5


def test_the_compiler_is_asked_its_version_once_until_it_changes(tmp_path):
    log = tmp_path / "log"
    path = script(tmp_path / "mycc", f'echo asked >> {log}; echo "mycc 1.0"; echo more')
    assert toolchain.compiler_version(path) == "mycc 1.0"
    toolchain._version.cache_clear()  # as a new process has it
    assert toolchain.compiler_version(path) == "mycc 1.0"
    assert log.read_text() == "asked\n"
    script(tmp_path / "mycc", f'echo asked >> {log}; echo "mycc 2.0.1"')
    assert toolchain.compiler_version(path) == "mycc 2.0.1"


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as error:
        toolchain.compile_shared(ADD)
    assert str(error.value) == (
        "no C compiler was found (looked for cc, gcc, clang on PATH); install one: "
        '"apt-get install gcc" (Debian, Ubuntu), "dnf install gcc" (Fedora), "xcode-select --install" (macOS); '
        "or set FUSER_BACKEND=reference to run in NumPy"
    )


def test_the_first_compiler_on_the_path_is_taken(monkeypatch, tmp_path):
    clang = script(tmp_path / "clang", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find_compiler() == clang
    gcc = script(tmp_path / "gcc", "exit 1")
    assert toolchain.find_compiler() == gcc


def test_the_setting_chooses_the_compiler(tmp_path):
    mine = script(tmp_path / "mine", "exit 1")
    with config.using(cc=mine):
        assert toolchain.find_compiler() == mine
    with config.using(cc="no-such-compiler"), pytest.raises(ToolchainError) as error:
        toolchain.find_compiler()
    assert str(error.value) == (
        "FUSER_CC names 'no-such-compiler', which is no program on PATH; correct it, or unset it to let fuser look "
        "for cc, gcc, clang"
    )


def test_a_compiler_that_cannot_run(tmp_path):
    broken = script(tmp_path / "broken", 'echo "broken: not today" >&2; exit 3')
    with config.using(cc=broken), pytest.raises(ToolchainError) as error:
        toolchain.compile_shared(ADD)
    assert str(error.value) == (
        f"the C compiler {broken} cannot be run: broken: not today (exit status 3); set FUSER_CC to another one"
    )


def test_refused_text_is_kept_and_the_compiler_heard(tmp_path):
    says = 'if [ "$1" = --version ]; then echo "moody 1.0"; else echo "moody: I refuse" >&2; exit 4; fi'
    moody = script(tmp_path / "moody", says)
    with config.using(cc=moody), pytest.raises(ToolchainError) as error:
        toolchain.compile_shared(ADD)
    kept = next(entry.path for entry in default_cache().entries() if entry.path.suffix == ".c")
    assert kept.read_text() == ADD
    assert str(error.value) == (
        f"the C compiler {moody} refused generated code (exit status 4), which is kept in {kept}; it says:\n"
        "moody: I refuse"
    )


VERSION = 'if [ "$1" = --version ]; then echo "moody 1.0"; exit 0; fi;'
ENDS = {
    "exit 5": "failed without a word (exit status 5); run it by hand, or set FUSER_CC to another one; the command was: ",
    "kill -9 $$": "was killed by signal 9 (SIGKILL), usually because memory ran out: free some, or raise the limit",
    "kill -11 $$": "was killed by signal 11 (SIGSEGV); set FUSER_CC to use another compiler",
    "echo half; kill -15 $$": "was killed by signal 15 (SIGTERM); set FUSER_CC to use another compiler, or "
    "FUSER_BACKEND=reference to run in NumPy; it said:\nhalf\nthe command was: ",
    "exit 0": "reported success (exit status 0) and wrote no library; it may be a wrapper that does nothing: set FUSER_CC",
    "echo 'on stdout'; exit 1": "refused generated code (exit status 1), which is kept in ",
    "printf 'b\\377d' >&2; exit 1": "it says:\nb\ufffdd",
    "echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1": "(a part of it was killed, usually because "
    "memory ran out: ",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("texts", [(ADD,), (ADD, "int two(void) { return 2; }\n")], ids=["one", "several"])
def test_a_compiler_that_fails_in_any_way_is_explained(tmp_path, end, texts):
    moody = script(tmp_path / "moody", f"{VERSION} {end}")
    with config.using(cc=moody), pytest.raises(ToolchainError) as error:
        toolchain.compile_shared(*texts)
    text = str(error.value)
    assert text.startswith(f"the C compiler {moody} ") and ENDS[end] in text, text
    assert "fuser-cc-" not in text  # what is gone by then
    assert not [entry for entry in default_cache().entries() if entry.path.suffix == ".so"]


@pytest.mark.parametrize("end", ["exit 7", "kill -9 $$"])
def test_a_compiler_that_does_not_say_its_version(tmp_path, end):
    silent = script(tmp_path / "silent", end)
    with config.using(cc=silent), pytest.raises(ToolchainError) as error:
        toolchain.compile_shared(ADD)
    ended = "exit status 7" if "7" in end else "killed by signal 9"
    assert str(error.value) == (
        f"the C compiler {silent} cannot be run: it says nothing ({ended}); set FUSER_CC to another one"
    )


INTERRUPTED = """
import os, pathlib, signal, subprocess, sys, threading, time
import numpy as np
import fuser, fuser.numpy as fnp
signal.signal(signal.SIGINT, signal.default_int_handler)
slow = pathlib.Path(sys.argv[1]) / "slow"
def compiler(wait):
    # As gcc does, it starts another program, which holds its output open.
    slow.write_text(f'#!/bin/sh\\nif [ "$1" != --version ] && [ -e {sys.argv[1]}/wait ]; then sleep 45; fi\\nexec gcc "$@"\\n')
    slow.chmod(0o755)
compiler(True)
fuser.config.cc = str(slow)
flag = pathlib.Path(sys.argv[1]) / "wait"
f = fuser.jit(lambda x: fnp.sin(x).sum() + 7)
product = fuser.jit(lambda x: (fnp.sin(x).sum() + 8, fnp.outer(x, x).astype(np.int32) @ np.ones((5, 5), np.int32)))
x = np.ones(5, np.float32)
float(fuser.jit(lambda x: x + 1)(1.0))  # the compiler's version is known from here on
flag.touch()
for function in (f, product):
    sender = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    sender.start()
    started = time.perf_counter()
    try:
        function(x)
        print("ended")
    except KeyboardInterrupt:
        print("interrupted", time.perf_counter() - started < 2)
flag.unlink()
left = subprocess.run(["ps", "-o", "ppid,stat,args", "-g", str(os.getsid(0))], capture_output=True, text=True).stdout
print([line for line in left.splitlines() if line.endswith(" sleep 45") or line.split()[:1] == [str(os.getpid())] and "defunct" in line])
print([p.name for p in pathlib.Path(os.environ["TMPDIR"]).glob("fuser-cc-*")])
print(float(f(x)) > 7)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_an_interrupt_stops_the_compilers_at_once(tmp_path):
    (tmp_path / "tmp").mkdir()
    places = {"FUSER_CACHE_DIR": str(tmp_path / "own"), "TMPDIR": str(tmp_path / "tmp")}
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        cwd=pathlib.Path(toolchain.__file__).parents[2],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        start_new_session=True,
    )
    assert result.stdout.splitlines() == [*["interrupted True"] * 2, "[]", "[]", "True"], result.stderr


def test_the_real_compiler_names_the_line_in_the_kept_source():
    with pytest.raises(ToolchainError) as error:
        toolchain.compile_shared("int good;\nint bad = missing_name;\n")
    kept = next(entry.path for entry in default_cache().entries() if entry.path.suffix == ".c")
    assert f"{kept}:2:11: error:" in str(error.value) and "missing_name" in str(error.value)
    assert not [entry for entry in default_cache().entries() if entry.path.suffix == ".so"]


def test_threads_compile_the_same_and_different_texts():
    results = []
    directory = config.cache_dir

    def work(number):
        text = f"int f(void) {{ return {number % 2}; }}\n"
        with config.using(cache_dir=directory):
            results.append((number % 2, toolchain.load_shared(toolchain.compile_shared(text).path).f()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(0, 0)] * 3 + [(1, 1)] * 3
    assert len([entry for entry in default_cache().entries() if entry.path.suffix == ".so"]) == 2


def test_processes_compile_the_same_text():
    code = f"from fuser.runtime import toolchain as t\nprint(t.load_shared(t.compile_shared({ADD!r}).path).add(20, 22))"
    environment = {**os.environ, "FUSER_CACHE_DIR": config.cache_dir}
    root = pathlib.Path(toolchain.__file__).parents[2]
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, cwd=root)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["42\n"] * 3


def test_products_and_sums_round_apart():
    """Or the last bit of a result would depend on what it was fused with."""
    library = toolchain.load_shared(
        toolchain.compile_shared(
            "void run(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] * x[i] - 1.0f; }\n"
        ).path
    )
    x = np.random.default_rng(0).normal(1, 1e-3, 1000).astype(np.float32)
    y = np.empty_like(x)
    library.run(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size))
    np.testing.assert_array_equal(y, x * x - np.float32(1))


def test_a_library_that_is_none(tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(b"not a library")
    with pytest.raises(ToolchainError, match=r"^a compiled library cannot be loaded: .*x\.so"):
        toolchain.load_shared(path)


def test_edited_text_takes_the_place_of_the_generated_one(tmp_path):
    (tmp_path / "softmax.c").write_text("edited")
    with config.using(override=str(tmp_path)):
        assert toolchain.overridden("softmax", "generated") == "edited"
        assert toolchain.overridden("other", "generated") == "generated"
    assert toolchain.overridden("softmax", "generated") == "generated"


PARALLEL = f"""
#include <stdint.h>
{toolchain.THREADS}
void run(void **buffers, const int64_t *sizes) {{
  float *x = buffers[0];
#pragma omp parallel for num_threads(fuser_threads)
  for (int64_t i = 0; i < sizes[0]; i++) x[i] += 1;
}}
"""
FORKED = f"""
import os, signal, numpy as np
from fuser.runtime import compilers, toolchain
from fuser.runtime.executable import CFunction
run = CFunction(toolchain.load_shared(toolchain.compile_shared({PARALLEL!r}).path).run, (100_000,))
x = np.zeros(100_000, np.float32)
run([x])
child = os.fork()
if child == 0:
    signal.alarm(20)
    run([x])
    os._exit(0 if (x == 2).all() else 1)
assert os.waitpid(child, 0)[1] == 0
run([x])
assert (x == 2).all()
assert "GOMP_SPINCOUNT" not in os.environ
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("policy", ["", "passive"])
def test_kernels_run_in_forked_children(policy):
    environment = {**os.environ, "FUSER_CACHE_DIR": config.cache_dir, "OMP_NUM_THREADS": "2"}
    if policy:
        environment["OMP_WAIT_POLICY"] = policy
    root = pathlib.Path(toolchain.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", FORKED], cwd=root, env=environment, check=False).returncode == 0


COUNTED = f"""
#include <omp.h>
{toolchain.THREADS}
int threads(void) {{
  int count = 0;
#pragma omp parallel num_threads(fuser_threads)
#pragma omp atomic
  ++count;
  return count;
}}
"""


@pytest.fixture
def threads():
    before = config.threads
    yield
    config.update("threads", before)


def test_the_number_of_threads_changes_at_run_time(threads):
    library = toolchain.load_shared(toolchain.compile_shared(COUNTED).path)
    for count in (3, 1, 2):
        config.update("threads", count)
        assert library.threads() == count
    config.update("threads", 0)
    assert library.threads() == toolchain.thread_count()


@pytest.mark.parametrize("wrong", [-1, "2", 1.5])
def test_a_number_of_threads_that_is_none(threads, wrong):
    before = config.threads
    message = f"threads is the number of threads that kernels may use, or 0 for all processors; got {wrong!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        config.update("threads", wrong)
    assert config.threads == before
    with (
        pytest.raises(AttributeError, match=r"threads is a setting of the whole process; use config.update\('threads'"),
        config.using(threads=1),
    ):
        pass


@pytest.mark.parametrize(
    "settings, expected",
    [({}, None), ({"OMP_NUM_THREADS": "3"}, 3), ({"OMP_NUM_THREADS": "3", "FUSER_THREADS": "5"}, 5)],
)
def test_kernels_use_the_threads_that_they_are_given(settings, expected):
    code = (
        "from fuser.runtime import toolchain as t\n"
        "text = 'int omp_get_max_threads(void); int threads(void) { return omp_get_max_threads(); }'\n"
        "text += t.THREADS.replace('1', '0')\n"
        "library = t.load_shared(t.compile_shared(text).path)\n"
        "print(library.threads()); assert library.threads() == t.ctypes.c_int.in_dll(library, 'fuser_threads').value\n"
        "import subprocess; print(subprocess.run(['sh', '-c', 'echo $OMP_NUM_THREADS'], text=True, capture_output=True).stdout)"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "FUSER_THREADS")}
    environment = {**clean, "FUSER_CACHE_DIR": config.cache_dir, **settings}
    root = pathlib.Path(toolchain.__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True)
    threads, *inherited = result.stdout.split()
    assert int(threads) == (expected or cpu_count())
    assert inherited == ([settings["OMP_NUM_THREADS"]] if settings else [])


@pytest.mark.parametrize(
    ("said", "tuned"),
    [
        ("-march=cooperlake -mavx512f -mtune=generic", ("-mtune=cooperlake",)),
        ("-march=icelake-server -mtune=icelake-server", ()),
        ("-march=x86-64 -mtune=generic", ()),
        ("-target-cpu znver3", ()),
    ],
)
def test_a_processor_that_the_compiler_does_not_know_is_tuned_for_as_the_nearest(tmp_path, said, tuned):
    assert toolchain.tuning(script(tmp_path / "cc", f"echo 'cc1 -E {said} -' >&2; echo compiler 1.0")) == tuned


@pytest.mark.skipif(os.name != "posix", reason="needs a shell's true")
def test_compilers_start_while_another_thread_changes_the_environment(tmp_path):
    """As loading OpenMP does: a child that took this process's own environment then could not be started (EFAULT)."""
    ended = threading.Event()

    def change():
        for number in itertools.count():
            if ended.is_set():
                return
            os.putenv(f"FUSER_TEST_{number % 50}", "x" * (number % 300))
            os.unsetenv(f"FUSER_TEST_{(number + 7) % 50}")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(60):
            compilers.run([[shutil.which("true")]], [""], lambda source: "", str(tmp_path))
    finally:
        ended.set()
        thread.join()


NEEDS = "double lgamma(double); double f(double x) { return lgamma(x); }\n"
CLEARS = "void *memset(void *, int, unsigned long); void f(double *x, long n) { memset(x, 0, 8 * n); }\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other linkers are the compiler's own matter")
@pytest.mark.parametrize(("text", "needed"), [(ADD, False), (CLEARS, False), (NEEDS, True)])
def test_libraries_are_linked_where_something_of_theirs_is_called(text, needed):
    path = toolchain.compile_shared(text).path
    said = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    assert ("NEEDED" in said) == needed
    library = toolchain.load_shared(path)
    if text is NEEDS:
        library.f.restype, library.f.argtypes = ctypes.c_double, [ctypes.c_double]
        assert library.f(5.0) == pytest.approx(np.log(24))
    if text is CLEARS:
        numbers = np.ones(3)
        library.f(numbers.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(2))
        assert numbers.tolist() == [0, 0, 1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other linkers are the compiler's own matter")
def test_a_name_that_another_object_keeps_to_itself_is_not_found_there(tmp_path):
    texts = {
        "a": "static int g(void) { return 1; } int h(void) { return g(); }",
        "b": "int g(void); int f(void) { return g(); }",
    }
    objects = []
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text)
        objects.append(str(tmp_path / f"{name}.o"))
        subprocess.run(
            [toolchain.find_compiler(), "-O0", "-fPIC", "-c", "-o", objects[-1], tmp_path / f"{name}.c"], check=True
        )
    assert without_libraries("ld", objects[:1], "t.so") is not None
    assert without_libraries("ld", objects, "t.so") is None
    (tmp_path / "odd.o").write_bytes(b"\xcf\xfa\xed\xfe another format")
    assert without_libraries("ld", [objects[0], str(tmp_path / "odd.o")], "t.so") is None
