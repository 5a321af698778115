"""`python -m bench.inductor [WORD ...]`: TorchInductor's kernels for the functions of `bench.kernel_pairs`, without a GPU, a line of JSON each.

Inductor is told of an H200 that is not there: fake tensors on "cuda", a driver that only names its architecture, and the generated program taken
before it would run. Its kernels are compiled by Triton for sm_90 and counted as fuser's are (`machine_code`): bytes are those of each array times
the loads and stores of it in the text, the time of a kernel the longer of memory and issue, the fastest of the configurations that inductor would
try. Products that it calls count as the estimate of cuBLASLt. The process is of no other use afterwards: torch's functions are replaced.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import pathlib
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

from bench.kernel_pairs import PAIRS, torch_forms
from fuser.backends.triton import machine_code
from fuser.backends.triton.product_cost import Extents, library_seconds
from fuser.backends.triton.target import MACHINES
from fuser.config import extend_environment

MACHINE = MACHINES["cuda:90"]
CONFIGURATIONS = 4  # of those that inductor would try
_PROPERTIES = types.SimpleNamespace(
    name=MACHINE.name, major=9, minor=0, multi_processor_count=MACHINE.units, total_memory=141 << 30, warp_size=32,
    regs_per_multiprocessor=MACHINE.registers, max_threads_per_multi_processor=MACHINE.threads, max_threads_per_block=1024,
    shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10, shared_memory_per_multiprocessor=MACHINE.shared,
    L2_cache_size=60 << 20, gcnArchName="", clock_rate=1_980_000, memory_clock_rate=3_201_000, memory_bus_width=6144,
)  # fmt: skip


class Found(Exception):
    """Carries the generated program out of inductor."""


class Driver:
    """A Triton driver that names a GPU and runs nothing."""

    binary_ext = "cubin"
    utils = types.SimpleNamespace(
        get_device_properties=lambda _: {"max_shared_mem": 227 << 10, "multiprocessor_count": MACHINE.units, "warpSize": 32, "max_num_regs": 65536}
    )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def is_active(self) -> bool:
        return True


def pretend() -> Any:
    """torch, which takes the machine for one with an H200."""
    import torch
    import torch._dynamo.device_interface as interfaces
    import torch._dynamo.utils
    import torch._inductor.compile_fx
    import triton
    from torch._inductor.runtime import triton_helpers

    @contextlib.contextmanager
    def nothing() -> Iterator[None]:
        yield

    cuda = torch.cuda
    answers = {
        "get_device_properties": _PROPERTIES, "is_available": True, "get_device_capability": (9, 0), "current_device": 0,
        "device_count": 1, "synchronize": None, "is_bf16_supported": True, "_lazy_init": None, "is_initialized": True,
        "set_rng_state": None, "_exchange_device": 0, "_maybe_exchange_device": 0, "set_device": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    cuda.get_rng_state = lambda *_: torch.zeros(16, dtype=torch.uint8)
    torch.version.cuda = "13.0"
    for name in ("getDevice", "getCurrentRawStream", "exchangeDevice", "maybeExchangeDevice", "setDevice"):
        setattr(torch._C, f"_cuda_{name}", lambda *_: 0)
    interface = interfaces.CudaInterface
    for name in ("current_device", "device_count", "get_device_properties", "synchronize", "is_bf16_supported"):
        setattr(interface, name, staticmethod(getattr(cuda, name)))
    interface.Worker.get_device_properties = staticmethod(lambda *_: _PROPERTIES)
    interface.get_raw_stream = staticmethod(lambda *_: 0)
    interface.get_compute_capability = staticmethod(lambda *_: 90)
    torch._inductor.compile_fx.preserve_rng_state = torch._dynamo.utils.preserve_rng_state = nothing
    triton_helpers.set_driver_to_gpu = lambda: None
    triton.runtime.driver.set_active(Driver())
    return torch


def program(torch: Any, function: Any, arguments: Any) -> str:
    """The program that inductor generates."""
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.config as settings
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten(arguments)

    def flat(*tensors: Any) -> Any:
        found = function(*_pytree.tree_unflatten(tensors, structure))
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    graph = make_fx(flat, decomposition_table=select_decomp_table(), tracing_mode="real")(*leaves)
    made: list[str] = []

    def caught(self: Any) -> Any:
        code = self.codegen()[0]
        made.append(code if isinstance(code, str) else code.value)
        raise Found

    original, GraphLowering.compile_to_module = GraphLowering.compile_to_module, caught
    try:
        with settings.patch(fx_graph_cache=False, compile_threads=1), contextlib.suppress(Exception):
            compile_fx.compile_fx_inner(graph, leaves)
    finally:
        GraphLowering.compile_to_module = original
    return made[0]


_KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", re.DOTALL)
_BUFFER = re.compile(r"(\w+) = empty_strided_cuda\(\((.*?)\), \(.*?\), torch\.(\w+)\)")
_ARGUMENT = re.compile(r"assert_size_stride\((\w+), \((.*?)\), \(")
_LIBRARY = re.compile(r"extern_kernels\.(\w+)\(([^\n]*)\)")


def counted(torch: Any, text: str, types_of: list[Any]) -> dict[str, Any]:
    """Launches, bytes and modelled seconds of a generated program."""
    sizes = _arrays(torch, text, types_of)
    kernels = []
    for name, source in _KERNEL.findall(text):
        calls = re.findall(rf"{name}\.run\((.*?), stream=", text)
        kernels += [_kernel(name, source, call.split(", "), sizes) for call in calls]
    cleared = {"bytes": 0, "issue": 0.0, "registers": 0, "seconds": MACHINE.launch}  # scratch that must begin as zeros
    kernels += [{"name": name, **cleared} for name in re.findall(r"(\w+)\.zero_\(\)", text)]
    kernels += [_product(name, call, sizes) for name, call in _LIBRARY.findall(text)]
    return {
        "launches": len(kernels),
        "bytes": sum(kernel["bytes"] for kernel in kernels),
        "seconds": sum(kernel["seconds"] for kernel in kernels),
        "kernels": kernels,
    }


def _arrays(torch: Any, text: str, types_of: list[Any]) -> dict[str, tuple[tuple[int, ...], int]]:
    """Shapes and bytes of an element of all arrays of a program by their names."""
    numbers = lambda words: tuple(int(n) for n in words.split(",") if n.strip())
    names = list(dict.fromkeys(name for name, _ in _ARGUMENT.findall(text) if name.startswith("arg")))
    found = {name: (t.shape, t.dtype.itemsize) for name, t in zip(sorted(names, key=_number), types_of)}
    for name, shape, dtype in _BUFFER.findall(text):
        found[name] = numbers(shape), getattr(torch, dtype).itemsize
    for new, old in re.findall(r"(buf\d+) = (\w+); del \w+  # reuse", text):
        found[new] = found[old]
    for new, old, shape in re.findall(r"(\w+) = reinterpret_tensor\((\w+), \((.*?)\),", text):
        found.setdefault(new, (numbers(shape), found[old][1]))
    return found


def _number(name: str) -> int:
    return int(re.findall(r"\d+", name)[0])


def _kernel(name: str, source: str, call: list[str], sizes: dict[str, Any]) -> dict[str, Any]:
    """One launch of a generated kernel: bytes by its text, and the least time of its configurations."""
    params = re.findall(rf"def {name}\((.*?)\)", source)[0].split(", ")
    bound = dict(zip((p.split(":")[0] for p in params), call, strict=False))
    moved = 0
    for param, argument in bound.items():
        if "ptr" in param and argument in sizes:
            shape, itemsize = sizes[argument]
            moved += math.prod(shape) * itemsize * len(re.findall(rf"tl\.(?:load|store|atomic_add)\({param}\b", source))
    best = min(_times(name, source, bound), default=(0.0, 0))
    return {
        "name": name,
        "bytes": moved,
        "issue": best[0],
        "registers": best[1],
        "seconds": MACHINE.launch + max(best[0], moved / MACHINE.copy),
    }


def _times(name: str, source: str, bound: dict[str, str]) -> Iterator[tuple[float, int]]:
    """Seconds of issue and registers, of each configuration."""
    from torch._inductor.runtime import triton_heuristics

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        heuristics = getattr(module, name)
        original = triton_heuristics.triton.compile

        def caught(*args: Any, **kwargs: Any) -> Any:
            raise Found(original(*args, **kwargs))

        triton_heuristics.triton.compile = caught
        try:
            for configuration in heuristics.configs[:CONFIGURATIONS]:
                try:
                    heuristics._precompile_config(configuration)
                except Found as found:
                    yield _issue(found.args[0], configuration, source, bound)
        finally:
            triton_heuristics.triton.compile = original


def _issue(kernel: Any, configuration: Any, source: str, bound: dict[str, str]) -> tuple[float, int]:
    blocks = configuration.kwargs
    extent = lambda axis: (
        int(found[1]) if (found := re.search(rf"\b{axis} = (\d+)", source)) else int(bound.get(axis, 1))
    )
    grid = 1
    for axis, block in (("xnumel", "XBLOCK"), ("ynumel", "YBLOCK")):
        grid *= -(-extent(axis) // blocks.get(block, 1)) if block in blocks else 1
    grid *= blocks.get("RSPLIT", 1)
    trips = -(-extent("r0_numel") // blocks["R0_BLOCK"]) if "R0_BLOCK" in blocks else 1
    code = machine_code.of_cuda(kernel, trips)
    return grid * configuration.num_warps * max(code.executed, code.busy) / MACHINE.instructions, code.registers


def _product(name: str, call: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """A product that inductor leaves to cuBLAS."""
    known = [sizes[word] for word in re.findall(r"\b(?:arg|buf)\w+", call) if word in sizes]
    (a, itemsize), (b, _), (out, width) = [k for k in known if len(k[0]) > 1][:3]
    batch = math.prod(out[:-2])
    k = math.prod(a) // (batch * out[-2])
    seconds = library_seconds(Extents(batch, out[-2], out[-1], k, itemsize, width))
    moved = (math.prod(a) + math.prod(b)) * itemsize + math.prod(out) * width
    return {"name": name, "bytes": moved, "issue": 0.0, "registers": 0, "seconds": seconds}


def main(words: list[str]) -> None:
    extend_environment({"TORCHINDUCTOR_COMPILE_THREADS": "1"})
    torch = pretend()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils import _pytree

    for name, (_, form, arguments) in PAIRS.items():
        if not all(word in name for word in words):
            continue
        flat = _pytree.tree_leaves(arguments)
        tensor = lambda t: torch.empty(t.shape, dtype=getattr(torch, t.dtype.name), device="cuda")
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                given = _pytree.tree_map(tensor, arguments)
                from torch._inductor.virtualized import V

                with V.set_fake_mode(mode):
                    text = program(torch, torch_forms(torch)[form], given)
            row = counted(torch, text, flat)
        except Exception as error:
            row = {"failure": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps({"name": name, **row}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
