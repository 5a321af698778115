"""The drop-in `jax` as a module: what imports give, what is refused, and the two ways to start a program with it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fuser.compat import finder, install_as_jax, names, needs


def python(code: str, *arguments: str) -> str:
    """What a Python of its own prints."""
    command = [sys.executable, *arguments] if arguments else [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_jax_is_fuser_and_the_real_one_is_not_loaded() -> None:
    said = python("""
        import sys
        import fuser
        assert not [m for m in sys.modules if m.startswith("fuser.compat")], "import fuser loads the compat layer"
        from fuser.compat import install_as_jax
        jax = install_as_jax()
        assert install_as_jax() is jax
        import importlib.metadata, importlib.util
        import jax.numpy as jnp, jax.version, jaxlib, jax.scipy.special
        import jax._src.core, jax.extend.core.primitives, jax.interpreters.mlir
        from jax import lax, grad
        from jax._src.tree_util import _registry
        assert jax.__version__ == jaxlib.__version__ == importlib.metadata.version("jax") == "0.10.2"
        assert jax.version.__version_info__ == jax.__version_info__ == (0, 10, 2)
        assert jnp is fuser.numpy and lax is fuser.lax and jax.numpy is jnp and dict in _registry
        assert isinstance(jax._src.core.ShapedArray((2,), jnp.float32), jax.core.ShapedArray)
        assert importlib.util.find_spec("jax.numpy") is not None and "grad" in dir(jax)
        assert float(jax.jit(grad(lambda x: x**3))(2.0)) == 12
        sine, again = lambda x: jnp.sin(x), [lambda x: jnp.sin(x)][0]
        graphs = [jax.make_jaxpr(f)(1.0) for f in (sine,
            again)]
        assert str(graphs[0]) == str(graphs[1]) and "#" not in str(graphs[0]), graphs[0]
        assert "#" in graphs[0].pretty_print(source_info=True)
        from fuser.compat import names
        from fuser.compat.finder import resolve
        for module, renamed in names.RENAMED.items():
            for name, (place, libraries) in renamed.items():
                assert getattr(importlib.import_module(f"jax.{module}".rstrip(".")), name) is resolve(place) and libraries
        real = [m for m in sys.modules.values() if "/site-packages/jax" in (getattr(m, "__file__", None) or "")]
        assert not real, real
        for absent in ("jax.config", "jax.api", "jax.experimental.compute_on", "jaxlib.xla_client"):
            try:
                importlib.import_module(absent)
            except ModuleNotFoundError as error:
                print(error)
        try:
            jax.interpreters.mlir.ir
        except AttributeError as error:
            print(error)
    """)
    assert said.splitlines() == [
        "No module named 'jax.config': `jax` is fuser here (fuser.compat)",
        "No module named 'jax.api': `jax` is fuser here (fuser.compat)",
        "No module named 'jax.experimental.compute_on': `jax` is fuser here (fuser.compat), which does not offer it: it annotates "
        "XLA's HLO; instead: the `backend` argument of jit",
        "No module named 'jaxlib.xla_client': `jax` is fuser here (fuser.compat), which does not offer it: it is XLA's Python "
        "extension; instead: fuser.runtime",
        "jax.interpreters.mlir.ir is not offered: fuser lowers no program to XLA's HLO or MLIR; instead: give the primitive `eval`, "
        "and `lower` in the scalar vocabulary (docs/adding-a-primitive.md)",
    ]


def test_missing_names_are_missed_in_jax() -> None:
    said = python("""
        from fuser.compat import install_as_jax
        try:
            install_as_jax().no_such_name
        except AttributeError as error:
            print(error)
    """)
    assert said == "module 'jax' has no attribute 'no_such_name'\n"


def test_scalar_types_are_named_as_jax_names_them() -> None:
    said = python("""
        from fuser.compat import install_as_jax
        install_as_jax()
        import pickle, jax.numpy as jnp
        print(jnp.float32, [jnp.bfloat16], pickle.loads(pickle.dumps(jnp.int8)) is jnp.int8)
    """)
    assert said == "<class 'jax.numpy.float32'> [<class 'jax.numpy.bfloat16'>] True\n"


def test_modules_of_extend_are_there_once_it_is_imported() -> None:
    """As in JAX, which imports them with it (Haiku's tests of a generator of their own rely on that)."""
    said = python("""
        from fuser.compat import install_as_jax
        install_as_jax()
        import jax.extend as jex
        print(*(getattr(jex, name).__name__.rpartition(".")[2] for name in ("backend", "core", "random", "source_info_util")))
    """)
    assert said.split() == ["backend", "core", "random", "source_info_util"]


def test_installing_is_refused_once_jax_is_there() -> None:
    import jax

    with pytest.raises(ImportError, match=r"jax has been imported already, from .*; call fuser.compat.install_as_jax"):
        install_as_jax()
    assert not any(isinstance(f, finder._Finder) for f in sys.meta_path) and jax.__file__


def test_programs_run_unmodified(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import jax\nNAME = jax.Array.__module__\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside, jax\n"
        "assert __name__ == '__main__'\n"
        "print(beside.NAME, sys.argv[1:], float(jax.numpy.arange(4).sum()))\n"
        "if '--fail' in sys.argv: raise ValueError('no')\n"
        "if '--leave' in sys.argv: sys.exit(3)\n"
    )
    run = [sys.executable, "-m", "fuser", "run", str(script)]
    done = subprocess.run([*run, "--flag", "-m", "x"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "fuser ['--flag', '-m', 'x'] 6.0\n"), done.stderr
    done = subprocess.run([*run, "--fail"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[1].strip().startswith(f'File "{script}", line 4')
    assert done.stderr.endswith("ValueError: no\n") and "runpy" not in done.stderr
    assert subprocess.run([*run, "--leave"], capture_output=True).returncode == 3
    module = subprocess.run(
        [sys.executable, "-m", "fuser", "run", "-m", "script", "a"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (module.returncode, module.stdout) == (0, "fuser ['a'] 6.0\n"), module.stderr
    missing = subprocess.run([*run[:-1], str(tmp_path / "none.py")], capture_output=True, text=True)
    assert missing.returncode == 2 and "there is no script" in missing.stderr


def test_what_a_source_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import ast

    source = """
import jax
import jax.numpy as jnp
from jax import lax as L, config
from jax._src.nowhere import thing
try:
    from jax.later import other
except ImportError:
    other = None
def f(x):
    if hasattr(jax, "newer"):
        return jax.newer(x)
    sharded = hasattr(jax, "older") and isinstance(x, jax.older.Array)
    return jnp.sin(x).shape + L.cond.__name__ + config.jax_enable_x64
"""
    found = dict(needs.asked(ast.parse(textwrap.dedent(source))))
    assert found["jax._src.nowhere.thing"] is False and found["jax.later.other"] is True and found["jax.newer"] is True
    assert found["jax.older"] is True
    assert found["jax.numpy.sin"] is False and "jax.lax.cond" in found and "jax.config" in found
    assert not any(name.startswith("jax.config.") for name in found)


def test_the_table_names_a_library_for_each_name() -> None:
    for table in (names.RENAMED, names.REFUSED):
        for module, entries in table.items():
            assert module in names.MODULES
            for name, (what, libraries) in entries.items():
                assert what and libraries, (module, name)
