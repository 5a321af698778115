"""Compiled graphs in torch's cache on disk: what is kept, what is not, and that a graph from there computes the same."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fuser.numpy as fnp  # noqa: E402
import fuser.torch  # noqa: E402
from fuser.config import config  # noqa: E402
from fuser.interop.dynamo.program import Program  # noqa: E402
from fuser.interop.dynamo.rules import TABLE  # noqa: E402


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Torch's cache, empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.utils.counters.clear()
    with torch._functorch.config.patch(enable_autograd_cache=True):
        yield tmp_path / "aotautograd"


class Mixed(nn.Module):
    """Parts that torch runs, random numbers, a buffer that changes, views, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.linear = nn.Embedding(20, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)

    def forward(self, words: Any) -> Any:
        h = nn.functional.dropout(self.norm(self.embedding(words)), 0.3, self.training)
        whole = torch.linalg.matrix_exp(0.1 * self.linear.weight) + torch.tensor([1.0, 2, 3, 4, 5, 6])
        return nn.functional.gelu(self.linear(h) @ whole), h.t()


def step(function: Callable[..., Any], model: nn.Module) -> list[Any]:
    """Results, gradients and buffers of a training step."""
    torch.manual_seed(1)
    found, turned = function(torch.arange(12) % 7)
    (found.square().sum() + turned.sum()).backward()
    return [found.detach(), turned.detach(), *[p.grad for p in model.parameters()], *model.buffers()]


def made() -> nn.Module:
    torch.manual_seed(0)
    return Mixed().train()


def again(**settings: Any) -> list[Any]:
    """The step of the model compiled anew."""
    torch._dynamo.reset()
    model = made()
    with config.using(**settings):
        return step(torch.compile(model, backend="fuser"), model)


def counted(what: str) -> int:
    return int(torch._dynamo.utils.counters["aot_autograd"][f"autograd_cache_{what}"])


def _others(module: Any, inputs: Any) -> Any:
    """Another backend that keeps graphs whole in the same cache."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import boxed_nop_preserve_node_meta

    return aot_autograd(fw_compiler=boxed_nop_preserve_node_meta)(module, inputs)


torch._dynamo.register_backend(_others, name="whole_graphs")


def test_a_graph_that_was_compiled_before_is_only_read(programs: list[Program]) -> None:
    model = made()
    wanted = step(model, model)
    first = again()
    torch.testing.assert_close(first, wanted, rtol=1e-3, atol=1e-3)
    assert programs and counted("saved") == 1
    del programs[:]
    torch.testing.assert_close(again(), first, rtol=0, atol=0)
    assert not programs and counted("hit") == 1


def test_settings_are_part_of_the_key(programs: list[Program]) -> None:
    wanted = again()
    del programs[:]
    torch.testing.assert_close(again(fuel=0), wanted)
    assert programs and counted("hit") == 0 and counted("saved") == 2
    torch._dynamo.reset()
    model = made()
    torch.testing.assert_close(step(torch.compile(model, backend="whole_graphs"), model), wanted, rtol=1e-3, atol=1e-3)
    assert counted("hit") == 0


def test_a_damaged_entry_is_a_miss(folder: pathlib.Path, programs: list[Program]) -> None:
    wanted = again()
    del programs[:]
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-100])
    torch.testing.assert_close(again(), wanted)
    assert programs and counted("hit") == 0


def test_operators_of_the_users_are_not_kept() -> None:
    """What they compute may be another function in the next process."""

    @fuser.torch.operator("fuser_tests::changing")
    def changing(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def around(x: Any) -> Any:
        return changing(x) + 1

    x = torch.ones(3)
    assert torch.compile(around, backend="fuser")(x).eq(3).all()
    TABLE["fuser_tests.changing.default"] = lambda dtype, x: fnp.negative(x)
    torch._dynamo.reset()
    assert torch.compile(around, backend="fuser")(x).eq(0).all()
    assert counted("saved") == 0


def test_graphs_of_symbolic_sizes_are_not_kept(folder: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    function = torch.compile(lambda x: torch.tanh(x).sum(0), backend="fuser", dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(function(x), torch.tanh(x).sum(0))
    assert counted("saved") == 0 and not [r for r in caplog.records if r.levelname == "WARNING"]
