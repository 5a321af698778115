"""The shape of the source: the import order of the design, and files and functions that fit a head."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.whole
ROOT = pathlib.Path(__file__).parent.parent / "fuser"
FILES = sorted(ROOT.rglob("*.py"))
# An arrow goes only to the left; what stands together may import each other.
ORDER = (
    {"config", "jax_settings", "errors", "absl_flags", "importing"},
    {"runtime"},
    {"ir"},
    {"trace", "frames"},
    {"ops"},
    {"passes"},
    {"legalise", "partition"},
    {"kernel"},
    {"backends"},
    {"debug.dump"},
    {"compile"},
    {
        "dtypes",
        "lax",
        "numpy",
        "nn",
        "scipy",
        "random",
        "ref",
        "pallas",
        "tree",
        "tree_util",
        "tree_prefix",
        "flatten_util",
        "typing",
        "dlpack",
        "gaps",
        "core",
        "api_util",
        "experimental",
        "extend",
        "interpreters",
        "example_libraries",
        "image",
        "monitoring",
        "profiler",
        "test_util",
        "transforms",
        "api",
        "stages",
    },
    {"parallel", "interop", "report", "sharding", "distributed", "torch"},
    {"debug", "export", "ffi", "oryx", "takeaway"},
    {"ad", "ad_checkpoint", "custom_batching", "custom_derivatives"},
    {"compat"},
    {"__init__", "__main__", "cli"},
)
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
# What the public API by family may import: operations and what stands left of them, and each other.
API = {
    "dtypes",
    "lax",
    "numpy",
    "nn",
    "scipy",
    "random",
    "ref",
    "transforms",
    "image",
    "gaps",
}  # gaps: what is not there
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 600, 70


def part(module: list[str]) -> str:
    """The name in `ORDER` of a module given by its path inside the package."""
    return "debug.dump" if module[:2] == ["debug", "dump"] else module[0]


def imported(tree: ast.AST) -> set[str]:
    """The parts of fuser that a module imports when it is loaded; imports inside functions wait until they run."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        stack.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            found |= {part(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("fuser.")}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            module = (node.module or "").split(".")
            if module[0] == "fuser":
                found |= {part([*module[1:], alias.name]) for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_to_the_left(path: pathlib.Path) -> None:
    own = part(list(path.relative_to(ROOT).with_suffix("").parts))
    assert own in LEVEL, f"{own} has no place in the import order; give it one here"
    for other in imported(ast.parse(path.read_text())):
        assert other in LEVEL, f"{path.name} imports fuser.{other}, which has no place in the import order"
        assert LEVEL[other] <= LEVEL[own], (
            f"{path.relative_to(ROOT)} imports fuser.{other}, which stands right of {own}"
        )
        if own in API:
            assert LEVEL[other] <= LEVEL["ops"] or other in API, (
                f"{path.relative_to(ROOT)} imports fuser.{other}; API calls operations only"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_fit(path: pathlib.Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), f"{path.name} does not say what it is"
    assert text.count("\n") <= MOST_LINES, f"{path.name} has {text.count(chr(10))} lines"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MOST_LINES_OF_A_FUNCTION, f"{node.name} in {path.name} has {length} lines"


def test_only_config_reads_the_environment() -> None:
    for path in FILES:
        if path.name == "config.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                assert not (
                    isinstance(node.value, ast.Name) and node.value.id == "os" and isinstance(node.ctx, ast.Load)
                ), f"{path.relative_to(ROOT)} line {node.lineno} reads os.{node.attr}; ask fuser.config"


def test_there_is_no_drawer_for_everything() -> None:
    assert not [p.name for p in FILES if p.stem in ("utils", "util", "helpers", "common", "misc")]


def test_the_compiler_is_loaded_with_the_first_program() -> None:
    code = """
import sys, fuser
late = ("fuser.passes", "fuser.partition", "fuser.kernel", "fuser.legalise", "fuser.compile", "fuser.backends.", "fuser.parallel.run", "torch", "triton", "jax")
print([m for m in sys.modules if m.startswith(late)])
fuser.jit(lambda x: x + 1)(fuser.numpy.ones(3))
print("fuser.compile" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split("\n")[:2] == ["[]", "True"]
