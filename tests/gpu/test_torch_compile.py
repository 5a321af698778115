"""On a real GPU: torch.compile(backend="fuser") against eager torch, its generator, its streams, its graphs, and numbers of the host."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser.torch  # noqa: E402, F401
from fuser.interop.dynamo import late_errors  # noqa: E402
from tests.interop.dynamo.agreement import agree  # noqa: E402

F, nn = torch.nn.functional, torch.nn
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("gpu"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(precision)


class Block(nn.Module):
    """Words, a norm, attention, gated units with dropout, and a convolution with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.qkv, self.norm = nn.Embedding(11, 32), nn.Linear(32, 96), nn.LayerNorm(32)
        self.conv, self.batch = nn.Conv1d(32, 32, 3, padding=1), nn.BatchNorm1d(32)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        y = x + F.dropout(F.gelu(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)), 0.25)
        return self.batch(self.conv(y.transpose(1, 2))), y.transpose(0, 1)


def test_a_model_trains_with_eager_torchs_dropout() -> None:
    torch.manual_seed(0)
    agree(Block().cuda(), torch.randint(0, 11, (4, 16), device="cuda"), tolerance=2e-3)


def test_numbers_of_the_host_and_autocast() -> None:
    def mixed(x: Any, rate: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            product = x @ x.t()
        return torch.where(x > 0, x * rate, torch.tensor(0.5)), product

    x = torch.randn(16, 16, device="cuda", requires_grad=True)
    agree(mixed, x, torch.tensor(0.3), tolerance=2e-2)


def test_indices_out_of_range_are_an_error_of_a_later_call() -> None:
    compiled = torch.compile(lambda x, i: x[i] * 2, backend="fuser")
    x, good = torch.randn(5, 3, device="cuda"), torch.tensor([0, -1], device="cuda")
    torch.testing.assert_close(compiled(x, good), x[good] * 2)
    compiled(x, torch.tensor([0, 5], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match=r"in a dimension of 5 .in an earlier call"):
        compiled(x, good)
    torch.testing.assert_close(compiled(x, good), x[good] * 2)
    late_errors.PENDING.examine(most=0)


def test_programs_run_on_torchs_current_stream() -> None:
    compiled = torch.compile(lambda x: (x @ x).tanh().sum(0), backend="fuser")
    x = torch.randn(2048, 2048, device="cuda") / 50
    wanted = compiled(x).clone()
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        y = x * 1
        for _ in range(4):
            y = y * 1.0
        found = compiled(y)
    torch.cuda.current_stream().wait_stream(other)
    torch.testing.assert_close(found, wanted)


def test_a_capture_of_the_users_is_refused() -> None:
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1).cumsum(-1), backend="fuser")
    x = torch.randn(64, 100, device="cuda")
    with torch.no_grad():
        wanted = compiled(x)
        with (
            pytest.raises(RuntimeError, match=r"while torch.cuda.graph captures"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            compiled(x)
        torch.testing.assert_close(compiled(x), wanted)


def test_memory_that_torch_gives_back_is_not_read_too_late() -> None:
    """Arguments are dropped, and their memory is taken again, before the device has come to the program that reads them."""
    compiled = torch.compile(lambda x: x.sin().sum(0), backend="fuser")
    first = torch.randn(4096, 512, device="cuda")
    wanted = first.sin().sum(0)
    compiled(first)
    for _ in range(20):
        x = first.clone()
        found = compiled(x)
        del x
        torch.full((4096, 512), 7.0, device="cuda")
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
