"""torch.compile(backend="fuser") on a GPU, by the driver stand-in: programs run on what it takes for a device, between CPU tensors."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from fuser.config import config  # noqa: E402
from fuser.interop.dynamo import backend, late_errors, program  # noqa: E402
from fuser.interop.dynamo.decompositions import decompositions  # noqa: E402
from fuser.interop.dynamo.divide import Division, divided  # noqa: E402
from fuser.interop.dynamo.program import Program  # noqa: E402
from fuser.runtime.core import native  # noqa: E402
from tests import cuda_stand_in  # noqa: E402
from tests.interop.dynamo.agreement import agree  # noqa: E402

F, nn = torch.nn.functional, torch.nn
needs_core = pytest.mark.skipif(native is None, reason="needs the native core")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[cuda_stand_in.Device]:
    """The stand-in, to which graphs of CPU tensors go."""
    monkeypatch.setitem(backend._BACKENDS, "cpu", "triton")
    with cuda_stand_in.opened() as found:
        yield found
        assert found.fault == ""
        torch._dynamo.reset()


class Words(nn.Module):
    """Checked indices, views of results, a result of two names, a permuted one, and 16-bit floats."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.linear, self.norm = nn.Embedding(11, 16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, tokens: Any) -> Any:
        h = self.norm(F.gelu(self.linear(self.words(tokens))))
        scores = h @ h.transpose(1, 2)
        return h.transpose(0, 1), scores.bfloat16() * 2, h + 0, h[0].expand(3, *h.shape[1:])


@needs_core
def test_a_model_trains_and_infers(device: cuda_stand_in.Device, programs: list[Program]) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, 11, (2, 6))
    agree(Words(), tokens, tolerance=2e-2)
    assert {program.backend.name for program in programs} == {"triton"}
    assert device.counts()["launches"] > 0
    agree(lambda x: (x.sum(), x.t() * 2, x[1:0], x), torch.randn(3, 4), gradients=False)


@needs_core
def test_indices_out_of_range_are_an_error(device: cuda_stand_in.Device) -> None:
    compiled = torch.compile(lambda x, i: x[i] * 2, backend="fuser")
    x = torch.randn(5, 3)
    torch.testing.assert_close(compiled(x, torch.tensor([0, -1])), x[[0, -1]] * 2)
    with pytest.raises(IndexError, match="index out of range in a dimension of 5"):
        compiled(x, torch.tensor([0, 5]))


@needs_core
def test_numbers_on_the_host_stand_among_tensors_of_a_gpu(device: cuda_stand_in.Device) -> None:
    """Fake tensors of a GPU are traced; the graph then runs on tensors of the host."""

    def mixed(x: Any, rate: Any, many: Any) -> Any:
        return torch.where(x > 0, x * rate, torch.tensor(0.5)), many + 1, (x * 2).cpu()

    with FakeTensorMode() as mode:
        fakes = torch.empty(3, 4, device="cuda"), torch.empty(()), torch.empty(3)
    with mode:
        graph = make_fx(mixed, decomposition_table=decompositions(), tracing_mode="real")(*fakes)
    assert backend._device(graph) == "cuda"
    division = Division(graph.graph, "cuda", {})
    reasons = {str(node.target): division.reason(node) for node in division.torch}
    assert "on cpu" in reasons["aten.add.Tensor"] and "aten.mul.Tensor" not in reasons
    assert {str(node.target) for node in division.fused} >= {"aten.mul.Tensor", "aten.where.self"}
    found = divided(graph, "cuda", "triton")
    assert sum(node.op == "call_module" for node in found.graph.nodes) >= 1


def test_dropout_on_a_gpu_is_torchs_own_and_ordered() -> None:
    def dropped(x: Any) -> Any:
        drop = torch.ops.aten.native_dropout.default  # what F.dropout is there
        return drop(x, 0.5, True)[0] + drop(x * 2, 0.25, True)[0]

    with FakeTensorMode():
        graph = make_fx(dropped, decomposition_table=decompositions())(torch.empty(3, 4, device="cuda"))
    division = Division(graph.graph, "cuda", {})
    drawn = [node for node in division.torch if "native_dropout" in str(node.target)]
    assert len(drawn) == 2 and division.torch[drawn[0]] <= division.torch[drawn[1]]


class Late:
    """Truth values that are known when the test says so."""

    arrived = False

    def __init__(self, flags: Any) -> None:
        self.flags = flags

    def known(self) -> bool:
        return self.arrived

    def values(self) -> Any:
        return self.flags


def test_a_gpus_index_error_is_raised_by_a_later_call_and_nobody_waits() -> None:
    pending = late_errors.Pending(Late)
    pending.add([False, True], [IndexError("a"), IndexError("b")])
    pending.examine()
    Late.arrived = True
    with pytest.raises(IndexError, match=r"b \(in an earlier call\)"):
        pending.examine()
    Late.arrived = False
    pending.examine()
    for n in range(5):
        pending.add([n == 1], [IndexError(f"call {n}")])
    with pytest.raises(IndexError, match="call 1"):
        pending.examine(most=3)  # more than that wait
    pending.examine(most=3)
    pending.examine(most=0)


def test_the_backward_graph_has_the_settings_of_the_forward_one(programs: list[Program]) -> None:
    """A GPU's is compiled in a thread of autograd's, which has no settings of its own."""

    def plans(backward: Any) -> list[int]:
        torch._dynamo.reset()
        programs.clear()
        with config.using(fuel=0):
            found = torch.compile(lambda x: (x.sin() * x.exp()).tanh().sum(), backend="fuser")(
                torch.ones(8, requires_grad=True)
            )
        backward(found)
        return [len(lowering.plan.groups) for p in programs for lowering in p.lowerings.values()]

    def elsewhere(found: Any) -> None:
        thread = threading.Thread(target=found.backward)
        thread.start()
        thread.join()

    with config.using(fuel=0):
        wanted = plans(lambda found: found.backward())
    assert plans(elsewhere) == wanted and wanted[-1] > 1


def test_a_capture_of_the_users_is_refused() -> None:
    captures = [False, True]
    run = program._not_captured(lambda *tensors: list(tensors), lambda: captures.pop(0))
    assert run(1) == [1]
    with pytest.raises(RuntimeError, match=r"while torch.cuda.graph captures, and its memory is not the graph's"):
        run(1)


class Described(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        *(("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32)),
        *(("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)),
        *(("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)),
    )


Describe = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Described))


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI, of which programs' arguments take `describe`."""

    _fields_ = (
        *(("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p)),
        *(("own", ctypes.c_void_p), ("give", ctypes.c_void_p), ("describe", Describe), ("stream", ctypes.c_void_p)),
    )


@needs_core
def test_tensors_of_a_gpu_are_arguments_without_python(device: cuda_stand_in.Device) -> None:
    """What torch would say of CUDA tensors, said by the test of the stand-in's memory."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    memory = native.device_upload(values)
    shape, strides = (ctypes.c_int64 * 2)(4, 3), (ctypes.c_int64 * 2)(1, 4)  # a transposed tensor
    place = {"device": 0, "offset": 0}

    @Describe
    def describe(tensor: Any, out: Any) -> int:
        out[0] = Described(
            *(memory.address, (ctypes.c_int32 * 2)(2, place["device"]), 2, 2, 32, 1),
            *(ctypes.addressof(shape), ctypes.addressof(strides), place["offset"]),
        )
        return 0

    exchange = Exchange((ctypes.c_uint32 * 2)(1, 3), describe=describe)
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    name = b"dlpack_exchange_api"
    owner = object()

    def taken(on_device: bool = True) -> Any:
        return native.tensor_view(np.dtype(np.float32), (3, 4), (1, 0), lambda tensor: None, on_device, owner)

    native.adopt_tensors(capsule(ctypes.addressof(exchange), name, None))
    try:
        found = taken()
        assert found.address == memory.address and found.shape == (3, 4)
        assert np.array_equal(native.device_download(found), values)
        assert taken(on_device=False) is None  # a program on the host copies it
        place["offset"] = 4  # where no kernel reads
        assert taken() is None
        place.update(device=1, offset=0)  # a program there says so
        assert taken() is None
    finally:
        native.adopt_tensors(torch.Tensor.__dlpack_c_exchange_api__)
