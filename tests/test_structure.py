"""The shape of the source: the import order of the design, and files and functions that fit a head."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def trees() -> dict[pathlib.Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in FILES}


def misplaced_imports(path: pathlib.Path, tree: ast.Module) -> Iterator[str]:
    """What the order says against the imports of a file."""
    own, name = part(list(path.relative_to(ROOT).with_suffix("").parts)), path.relative_to(ROOT)
    if own not in LEVEL:
        yield f"{own} has no place in the import order; give it one here"
        return
    for other in sorted(imported(tree)):
        if other not in LEVEL:
            yield f"{name} imports fuser.{other}, which has no place in the import order"
        elif LEVEL[other] > LEVEL[own]:
            yield f"{name} imports fuser.{other}, which stands right of {own}"
        elif own in API and LEVEL[other] > LEVEL["ops"] and other not in API:
            yield f"{name} imports fuser.{other}; API calls operations only"


def oversized(path: pathlib.Path, tree: ast.Module) -> Iterator[str]:
    """What is too long in a file, or says not what it is."""
    name, lines = path.relative_to(ROOT), path.read_text().count("\n")
    if not ast.get_docstring(tree):
        yield f"{name} does not say what it is"
    if lines > MOST_LINES:
        yield f"{name} has {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > MOST_LINES_OF_A_FUNCTION:
                yield f"{node.name} in {name} has {length} lines"


def test_imports_go_to_the_left(trees: dict[pathlib.Path, ast.Module]) -> None:
    assert [said for path, tree in trees.items() for said in misplaced_imports(path, tree)] == []


def test_files_and_functions_fit(trees: dict[pathlib.Path, ast.Module]) -> None:
    assert [said for path, tree in trees.items() for said in oversized(path, tree)] == []


def test_only_config_reads_the_environment(trees: dict[pathlib.Path, ast.Module]) -> None:
    for path, tree in trees.items():
        if path.name == "config.py":
            continue
        for node in ast.walk(tree):
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
