"""A GPU that is none: the driver stand-in of runtime/tests in the place of libcuda, with the C backend's twin of each kernel.

`opened()` gives the stand-in's counters and switches. Programs of the Triton backend then run through the whole runtime
(memory, streams, launches, graphs, cuBLASLt) on host memory; what the C backend has no kernel for is evaluated in NumPy.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pathlib
import struct
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuser.api.eager import go_home, open_gpu
from fuser.backends import c
from fuser.backends.base import KernelSource
from fuser.backends.triton import backend as triton_backend
from fuser.backends.triton import interpreter, memory
from fuser.backends.triton.aot import mappable
from fuser.backends.triton.device import code, libraries
from fuser.backends.triton.emitter import Launch
from fuser.ir.evaluate import evaluate
from fuser.parallel import gpus
from fuser.partition.column_sums import column_sums
from fuser.partition.group import FusionGroup, Kind, Refusal
from fuser.runtime import device, toolchain
from fuser.runtime.core import native
from fuser.trace.core import EVALUATION
from tests.cuda_routines import CALLBACK

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "runtime" / "tests"
PARTS = ("cuda", "cuda_graphs", "cuda_libraries", "nccl")  # one text: the others know the first's streams and devices
SOURCES = [FOLDER / f"{part}_stand_in.c" for part in PARTS]
COUNTS = (
    *("launches", "graphs", "instantiated", "updated", "destroyed", "to_device", "to_host", "copies", "sets"),
    *("allocations", "releases", "waits", "host_waits", "products", "calls", "programs", "routines"),
)
SWITCHES = {  # and what they are when a stand-in is opened: the library of an earlier opening is the same one
    **{"execute": 1, "checking": 1, "refuse_launches": 0, "graph_cannot_update": 0},
    **{"version": 12080, "devices": 1, "solver_captures": 1},
}
KINDS = ("kernel", "copy", "set", "release", "after", "graph", "product", "conditional", "exchange", "routine")
_numbers = itertools.count(1)  # of modules, which the stand-in keeps from one opening to the next
MAPPED = -3  # what stands for a tensor map in an image
_MAP_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}  # CUtensorMapDataType of elements of so many bytes
Twin = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))


class Device:
    """The stand-in's counters and switches."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path)
        self.switch = SimpleNamespace(**{name: ctypes.c_int.in_dll(self.library, name) for name in SWITCHES})
        self._counts = (ctypes.c_long * len(COUNTS)).in_dll(self.library, "counts")
        self._fault = (ctypes.c_char * 512).in_dll(self.library, "fault")
        self.memory_limit = ctypes.c_int64.in_dll(self.library, "memory_limit")
        self.set_switches()

    def set_switches(self) -> None:
        """Switches and the limit of memory as they are when a stand-in is opened."""
        for name, value in SWITCHES.items():
            getattr(self.switch, name).value = value
        self.memory_limit.value = 2**62

    def counts(self) -> dict[str, int]:
        """What was asked of the driver since `reset`."""
        return {name: value for name, value in zip(COUNTS, self._counts) if value and name != "programs"}

    @property
    def programs(self) -> int:
        """The programs of all kernels launched since `reset`."""
        return int(self._counts[COUNTS.index("programs")])

    @property
    def fault(self) -> str:
        """What was found wrong since `reset`."""
        return self._fault.value.decode()

    def abandon(self) -> None:
        """Forget what waits to run, as after a fault, whose memory may be gone."""
        self.library.abandon()

    def record(self) -> None:
        """Keep what is enqueued from now on, for `journal`."""
        ctypes.c_int.in_dll(self.library, "journaled").value = 0

    def journal(self) -> list[tuple[int, int, str]]:
        """What was enqueued since `record`: the stream's number, the branch of the graph that is captured there, and what it is."""
        count = ctypes.c_int.in_dll(self.library, "journaled").value
        found = (ctypes.c_int * (3 * count)).in_dll(self.library, "journal") if count else ()
        return [(found[k], found[k + 1], KINDS[found[k + 2]]) for k in range(0, 3 * count, 3)]

    def reset(self) -> None:
        """Count from 0."""
        ctypes.memset(self._counts, 0, ctypes.sizeof(self._counts))
        ctypes.memset(self._fault, 0, 512)


class Twins:
    """Images of kernels for the stand-in: of each source its group's kernel by the C backend."""

    def __init__(self) -> None:
        self.groups: dict[Any, FusionGroup] = {}
        self.images: dict[Any, bytes] = {}
        self.kept: list[Any] = []

    def key(self, source: KernelSource, number: int, passing: code.Passing) -> Any:
        return id(source), number, passing

    def __call__(self, source: KernelSource, number: int, passing: code.Passing) -> code.Image:
        image = self.images.get((id(source), passing))
        if image is None:
            image = self.images[id(source), passing] = self._image(source, passing)
        planned = source.launch["launches"][number]
        launch = _chosen(planned, passing)
        choice = next(n for n, candidate in enumerate(planned.choices) if candidate is launch)
        maps = tuple(
            code.EncodedMap(_MAP_TYPES[source.launch["dtypes"][m.buffer].itemsize], 3, m.block) for m in launch.maps
        )
        return code.Image(image, f"{number}:{launch.function}", 32 * launch.warps, 0, choice, maps=maps)

    def _image(self, source: KernelSource, passing: code.Passing) -> bytes:
        """One module for all launches of a source, of which the last runs the twin."""
        group = self.groups[id(source)]
        address, sizes = self._twin(group, dict(source.launch.get("begins_as", ())))
        read, written = list(group.graph.invars), _written(group)
        words = [next(_numbers), address, len(sizes), *sizes, len(read) + len(written)]
        for number, v in enumerate([*read, *written]):
            words += [v.aval.nbytes, int(number >= len(read))]
        planned = [(n, launch) for n, launch in enumerate(source.launch["launches"]) if launch.grid]
        launches = [(n, _chosen(launch, passing)) for n, launch in planned]
        words.append(len(launches))
        for _, launch in launches:
            params = []
            for tensor_map in launch.maps:
                rank = len(tensor_map.shape)
                params += [(MAPPED, tensor_map.buffer), *rank * [(-2, 0)], *rank * [(-1, 0)]]
            params += [
                (n, read[n].aval.dtype.itemsize if n in passing.values else -(n in passing.loose))
                for n in launch.buffers
            ]
            params += [(-2 if -(2**31) <= size < 2**31 else -1, 0) for size in launch.sizes]
            params += [(-1, 0), (-1, 0)]
            words += [len(params), *(word for param in params for word in param)]
        names = b"".join(f"{n}:{launch.function}".encode() + b"\0" for n, launch in launches)
        return b"fuser-twin".ljust(16, b"\0") + struct.pack(f"<{len(words)}q", *words) + names

    def _twin(self, group: FusionGroup, begins_as: dict[int, int]) -> tuple[int, list[int]]:
        source = self._of_c(group)
        if source is None:
            return self._evaluated(group, begins_as)
        (function,) = c.BACKEND.load([source]).functions
        self.kept.append(function)
        return function.address, list(function.sizes)

    @staticmethod
    def _of_c(group: FusionGroup) -> KernelSource | None:
        """The C backend's kernel of the group on its arrays alone; None where it has none."""
        if (
            group.kind is Kind.CONTRACTION
            or column_sums(group)
            or any(c.BACKEND.supports(eqn) is not None for eqn in group.graph.eqns)
        ):
            return None
        made = c.BACKEND.emit(group)
        return None if isinstance(made, Refusal) or made.launch.get("workspace") else made

    def _evaluated(self, group: FusionGroup, begins_as: dict[int, int]) -> tuple[int, list[int]]:
        """The group by its primitives' eval rules; operands of which results begin as copies are read there."""
        read, written = list(group.graph.invars), _written(group)

        def array(address: int, aval: Any) -> np.ndarray:
            memory = (ctypes.c_char * max(aval.nbytes, 1)).from_address(address)
            return np.frombuffer(memory, aval.dtype, aval.size).reshape(aval.shape)

        def run(buffers: Any, sizes: Any) -> None:
            inputs = [array(buffers[begins_as.get(n, n)], v.aval) for n, v in enumerate(read)]
            results = dict(zip(group.graph.outvars, evaluate(group.graph, inputs)))
            for n, v in enumerate(written, len(read)):
                array(buffers[n], v.aval)[...] = results[v]

        twin = Twin(run)
        self.kept.append(twin)
        return ctypes.cast(twin, ctypes.c_void_p).value or 0, []


def _chosen(launch: Launch, passing: code.Passing) -> Launch:
    """What a GPU that copies blocks by itself launches."""
    return launch if mappable(launch, passing.values, passing.loose) else launch.plain


def _written(group: FusionGroup) -> list[Any]:
    return list(dict.fromkeys(group.graph.outvars))


@contextlib.contextmanager
def meeting_place() -> Iterator[None]:
    """A folder in which the stand-ins of NCCL of several processes meet; who starts the processes may have named it."""
    if "NCCL_STAND_IN_FOLDER" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="nccl-") as folder:
        os.environ["NCCL_STAND_IN_FOLDER"] = folder
        try:
            yield
        finally:
            del os.environ["NCCL_STAND_IN_FOLDER"]


@contextlib.contextmanager
def opened(devices: int = 1) -> Iterator[Device]:
    """The stand-in as the device of the Triton backend, or as several, with NCCL between them."""
    with meeting_place(), _opened(devices) as found:
        yield found


@contextlib.contextmanager
def _opened(devices: int) -> Iterator[Device]:
    found = Device(str(toolchain.compile_shared("\n".join(path.read_text() for path in SOURCES)).path))
    twins, backend = Twins(), triton_backend.Triton
    plain = backend.emit, code.images, memory.driver_opened, interpreter.active
    on_gpu, EVALUATION.on_gpu = EVALUATION.on_gpu, open_gpu

    def emit(self: Any, group: FusionGroup) -> Any:
        source = plain[0](self, group)
        twins.groups[id(source)] = group
        twins.kept.append(source)
        return source

    found.switch.devices.value = devices
    native.cuda_open(found.path, 0, None)
    native.device_refusal(memory.refused)
    ctypes.c_void_p.in_dll(found.library, "routine").value = ctypes.cast(CALLBACK, ctypes.c_void_p).value
    candidates, libraries.candidates = libraries.candidates, lambda name: iter((found.path,))
    libraries_of_nccl, gpus.LIBRARIES = gpus.LIBRARIES, (found.path,)
    numbers, device.local_gpus = device.local_gpus, lambda: list(range(devices))
    for cache in (device.cuda, gpus.open_nccl, gpus.gpus_of, gpus.backend_of_gpus):
        cache.cache_clear()
    backend.emit, code.images, memory.driver_opened = emit, twins, lambda: True  # type: ignore[assignment,method-assign]
    interpreter.active = lambda: False
    code.forget()
    found.reset()
    try:
        yield found
    finally:
        gpus._give_up()
        gpus._known.clear()
        backend.emit, code.images, memory.driver_opened, interpreter.active = plain  # type: ignore[method-assign]
        EVALUATION.on_gpu = on_gpu
        libraries.candidates = candidates
        gpus.LIBRARIES, device.local_gpus = libraries_of_nccl, numbers
        for cache in (device.cuda, gpus.open_nccl, gpus.gpus_of, gpus.backend_of_gpus):
            cache.cache_clear()
        code.forget()


@contextlib.contextmanager
def default() -> Iterator[None]:
    """What runs nowhere else runs on the stand-in, as on a machine with a GPU."""
    before, home = (device.has_driver, device._torch_cuda), EVALUATION.home
    device.has_driver = device._torch_cuda = lambda: True  # type: ignore[assignment]
    EVALUATION.home = go_home
    try:
        yield
    finally:
        (device.has_driver, device._torch_cuda), EVALUATION.home = before, home  # type: ignore[assignment]
