"""What the interop uses of torch beyond its public API: named in one module, and no operator of it is needed that a release lacks."""

from __future__ import annotations

import ast
import pathlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fuser  # noqa: E402
import fuser.torch  # noqa: E402
from fuser.interop.dynamo import decompositions, internals, preserved  # noqa: E402
from fuser.interop.dynamo.rules import TABLE  # noqa: E402
from tests.interop.dynamo.agreement import agree  # noqa: E402

PACKAGE = pathlib.Path(fuser.__file__).parent
# Where a private name of torch's stands outside of the module: what `import fuser.torch` and accelerated functions need without
# Dynamo's compiler, and the stream that backends may not ask the interop for.
ELSEWHERE = {
    ("torch.py", "torch._dynamo.backends.registry"),
    ("interop/torch/tensors.py", "torch._subclasses"),
    ("backends/triton/memory.py", "torch._C._cuda_getCurrentRawStream"),
    ("backends/triton/memory.py", "torch._C"),
}
# aten's operators that releases from 2.11 on lack, of those that 2.15 has.
LACKED = {
    "2.11": (
        *("_cudnn_attention_forward_no_dropout_inplace", "_flash_attention_forward_no_dropout_inplace", "_foreach_clone"),
        *("_foreach_mm", "_philox_key_fold_in", "_philox_key_split", "_philox_normal", "_philox_randint"),
        *("_philox_uniform", "_scaled_addmm", "_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward", "dim", "get_device"),
        *("inductor_rand_eager_offset", "inductor_rand_eager_offsets", "is_contiguous", "linalg_matrix_sqrth", "linalg_polar"),
        *("numel", "shallow_copy_data_", "storage_offset"),
    ),
    "2.12": (
        *("_cudnn_attention_forward_no_dropout_inplace", "_foreach_mm", "_philox_randint", "_scaled_addmm"),
        *("linalg_matrix_sqrth", "linalg_polar", "shallow_copy_data_"),
    ),
}  # fmt: skip


class Without:
    """aten without some operators."""

    def __init__(self, names: Any) -> None:
        self.names = names

    def __getattr__(self, name: str) -> Any:
        if self.names is None or name in self.names:
            raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
        return getattr(torch.ops.aten, name)


def private_names(path: pathlib.Path) -> set[str]:
    """Modules and attributes of torch's that begin with an underscore, or are functorch's, or operators by their attribute."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
            names += [f"{node.module}.{a.name}" for a in node.names if a.name.startswith("_")]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if (
                first == "functorch"
                or (first == "torch" and any(p.startswith("_") and p[1] != "_" for p in rest))
                or name.startswith(("torch.ops.aten.", "aten."))
            ):
                found.add(name)
    return found


def test_private_names_stand_in_one_module() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        if path != pathlib.Path(internals.__file__)
        for name in private_names(path)
    }
    assert {(path, name) for path, name in found if (path, name) not in ELSEWHERE} == set()
    assert len(private_names(pathlib.Path(internals.__file__))) > 10


def emptied(monkeypatch: pytest.MonkeyPatch, names: Any) -> None:
    monkeypatch.setattr(internals, "_aten", Without(names))
    decompositions.decompositions.cache_clear()


@pytest.fixture(autouse=True)
def _again() -> Any:
    yield
    decompositions.decompositions.cache_clear()


@pytest.mark.parametrize("release", LACKED)
def test_a_release_without_newer_operators_compiles(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emptied(monkeypatch, LACKED[release])
    table = decompositions.decompositions()
    assert ("_foreach_clone" in LACKED[release]) == (getattr(torch.ops.aten, "_foreach_clone", None) is None or
        torch.ops.aten._foreach_clone.default not in table)  # fmt: skip
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.LayerNorm(6))
    agree(model, torch.randn(3, 4, requires_grad=True))
    image = torch.randn(1, 2, 3, 3, requires_grad=True)
    agree(lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), image)


def test_each_operator_may_be_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A future release may drop any that is asked for by name."""
    emptied(monkeypatch, None)
    assert decompositions.decompositions() and preserved.operators() == [] and preserved.undecomposed() == []


def test_rules_name_operators_without_asking_for_them() -> None:
    assert all(isinstance(name, str) for name in TABLE)
