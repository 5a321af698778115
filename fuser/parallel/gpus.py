"""The GPUs of a mesh: those of this process, how they reach the others, and a program linked and run on each of them.

In: one device's program and the operands' parts. Out: its results' parts. Each GPU has a program of its own, whose collectives are
operations of its stream (NCCL's transfers, captured in its graph), and a thread that launches it. What devices compute of what they
get is part of their programs, in a fixed order.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import importlib.util
import pathlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuser.backends.triton.backend import Triton
from fuser.backends.triton.memory import on_device
from fuser.config import config
from fuser.errors import DeviceError, UnsupportedError
from fuser.parallel.mesh import Mesh
from fuser.parallel.transport import connections
from fuser.parallel.watch import started, watch
from fuser.runtime import rendezvous
from fuser.runtime.core import native
from fuser.runtime.executable import Executable
from fuser.runtime.processes import processes

LIBRARIES = ("libnccl.so.2",)
Programs = Mapping[int, Executable]  # by device


class Member:
    """One GPU of a mesh, as its program is linked for it."""

    def __init__(self, gpus: Gpus, rank: int) -> None:
        self.gpus, self.rank = gpus, rank

    def communicator(self, names: tuple[Any, ...], groups: Any) -> Any:
        """How it reaches the devices that differ from it along these axes; it waits for them."""
        members = self.gpus.grid.group(self.rank, names, groups)
        # Without the lock: who makes others may wait for what this device is about to send.
        made = self.gpus.made.get(members)
        return (made or self.gpus.communicators(names, groups)[members])[self.rank]

    def place(self, names: tuple[Any, ...], groups: Any) -> int:
        """Which of them it is."""
        return self.gpus.grid.group(self.rank, names, groups).index(self.rank)

    def index(self, names: tuple[Any, ...]) -> int:
        """Where it stands along these axes."""
        return self.gpus.grid.index(self.rank, names)


class Gpus:
    """Those of a mesh that this process has, and the communicators between all of them, made when a program first wants them."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh, self.grid = mesh, rendezvous.Grid(mesh.shape_tuple)
        here = processes().index
        self.local = [rank for rank, device in enumerate(mesh.flat) if device.process_index == here]
        self.ordinals = {rank: mesh.flat[rank].local_hardware_id for rank in self.local}
        self.made: dict[tuple[int, ...], dict[int, Any]] = {}
        self.times = 0  # that all communicators were given up
        self._agreed: set[int] = set()
        self._lock = threading.Lock()

    def communicators(self, names: tuple[Any, ...], groups: Any) -> dict[tuple[int, ...], dict[int, Any]]:
        """By group of devices, of each of its members here the communicator.

        Those of all groups are made at once, in an order that all processes have, so that none waits for one that waits for it.
        """
        with self._lock:
            for members in sorted({self.grid.group(rank, names, groups) for rank in range(self.grid.count)}):
                if members not in self.made and set(members) & set(self.local):
                    self.made[members] = self._communicator(members)
            return self.made

    def _communicator(self, members: tuple[int, ...]) -> dict[int, Any]:
        own = [rank for rank in members if rank in self.ordinals]
        places = tuple((members.index(rank), self.ordinals[rank]) for rank in own)
        open_nccl()
        try:
            made = native.nccl_communicators(
                self._identity(members), len(members), places, float(config.collective_timeout)
            )
        except RuntimeError as error:
            others = sorted({self.mesh.owners[m] for m in members} - {processes().index})
            whom = f"processes {', '.join(map(str, others))}" if others else "GPUs of this process"
            text = (
                f"no connection to {whom}: {str(error).splitlines()[0]}; FUSER_COLLECTIVE_TIMEOUT sets how long to wait"
            )
            found = connections()
            raise (found.fail(text) if found is not None else DeviceError(text)) from None
        return dict(zip(own, made))

    def _identity(self, members: tuple[int, ...]) -> bytes:
        """The bytes by which the members find each other: the first one's process makes them."""
        found = connections()
        if all(rank in self.ordinals for rank in members) or found is None:
            return native.nccl_unique_id()  # type: ignore[no-any-return]
        key = f"fuser/nccl/{self.times}/{'-'.join(str(self.mesh.flat[m].id) for m in members)}/{'-'.join(map(str, members))}"
        if members[0] in self.ordinals:
            found.store.set(key, native.nccl_unique_id())
        found.store.wait([key], datetime.timedelta(seconds=float(config.collective_timeout)))
        return bytes(found.store.get(key))

    def agree(self, peers: Any, what: str) -> None:
        """Meet the other processes before a program's first run: they run the same one. Later runs wait for nobody."""
        if peers.program not in self._agreed:
            everyone, brought = tuple(range(self.mesh.size)), {rank: [np.zeros(1, np.uint8)] for rank in self.local}
            peers.meeting(everyone, what, (("psum", ()),), brought)()
            self._agreed.add(peers.program)

    def give_up(self) -> None:
        """End what is under way between the devices: a device has failed, and others would wait for it."""
        made, self.made = self.made, {}
        for communicator in (c for each in made.values() for c in each.values()):
            native.nccl_abort(communicator)
        self.times += 1

    def living(self) -> Iterator[Any]:
        """The communicators of this process."""
        for made in list(self.made.values()):
            yield from made.values()

    @contextlib.contextmanager
    def using(self, rank: int) -> Iterator[None]:
        """The thread works on a device meanwhile."""
        with on_gpu(self.ordinals[rank]):
            yield


@contextlib.contextmanager
def on_gpu(ordinal: int) -> Iterator[None]:
    """The thread works on this process's GPU of that number meanwhile, torch in it too."""
    import torch

    with torch.cuda.device(ordinal) if torch.cuda.is_available() else contextlib.nullcontext():
        before = native.cuda_use(ordinal)
        try:
            yield
        finally:
            native.cuda_use(before)


def require_driver() -> None:
    """Have the native core open the CUDA driver's library, where there is one."""
    on_device()


@functools.lru_cache(maxsize=64)
def gpus_of(mesh: Mesh) -> Gpus:
    """The GPUs of a mesh."""
    _known.append(Gpus(mesh))
    return _known[-1]


class OnGpus(Triton):
    """The Triton backend for one of the GPUs of a mesh; `link` links for the first one here."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def link(self, plan: Any, sources: Any, loaded: Any) -> Executable:
        return linked(self, gpus_of(self.mesh).local[0], plan, sources, loaded)


def linked(backend: OnGpus, rank: int, plan: Any, sources: Any, loaded: Any) -> Executable:
    """The steps of a program on one of the devices."""
    gpus, own = gpus_of(backend.mesh), Triton()
    own.member, own.asked = Member(gpus, rank), backend.asked
    with gpus.using(rank):
        return own.link(plan, sources, loaded)


@functools.lru_cache(maxsize=64)
def backend_of_gpus(mesh: Mesh) -> OnGpus:
    """The backend that compiles for the GPUs of a mesh. UnsupportedError where they cannot run programs."""
    if native is None or not on_device():
        raise UnsupportedError(
            "a mesh of GPUs needs the native core and the CUDA driver's library, which it has not opened; use devices of "
            'fuser.devices("cpu")'
        )
    return OnGpus(mesh)


def executables(own: Any, mesh: Mesh) -> Programs:
    """One device's program as linked for each device of this process."""
    return _executables(own, gpus_of(mesh), gpus_of(mesh).times)


@functools.lru_cache(maxsize=1024)
def _executables(own: Any, gpus: Gpus, times: int) -> Programs:
    """The same; linked anew once the communicators have been given up, which programs hold."""
    program, backend = own.program, own.traced._backend
    lowering, known = program.lowering, {} if times else {gpus.local[0]: own.executable}
    others = [rank for rank in gpus.local if rank not in known]
    return known | {r: linked(backend, r, lowering.plan, lowering.sources, program.loaded) for r in others}


def run(mesh: Mesh, programs: Programs, operands: Sequence[Sequence[Any]], meets: str, remote: Any) -> list[Any]:
    """For each device the list of its results, None for those of other processes; `operands` are lists of parts.

    Nothing waits for the devices. `meets` says where they wait for one another, nothing where they do not.
    """
    gpus = gpus_of(mesh)
    if remote is not None and meets:
        gpus.agree(remote, meets)
        started(meets)

    def whole(rank: int) -> list[Any]:
        with gpus.using(rank):
            return programs[rank].call(*[o[rank] for o in operands])

    if not meets or len(gpus.local) == mesh.size == 1:
        found: list[Any] = [None] * mesh.size
        for rank in gpus.local:
            found[rank] = whole(rank)
        return found

    def or_give_up(rank: int) -> list[Any]:
        try:
            return whole(rank)
        except BaseException as error:
            failures.append(error)
            gpus.give_up()  # at once: the others' threads may wait for what this device was to send
            raise

    failures: list[BaseException] = []
    try:
        return rendezvous.run(gpus.grid, or_give_up, remote)
    except BaseException as error:
        raise (failures[0] if failures else error) from None


@functools.cache
def open_nccl() -> None:
    """Have the native core open NCCL. UnsupportedError where there is none."""
    reasons = []
    for name in (*LIBRARIES, *_packaged()):
        try:
            native.nccl_open(name)
        except OSError as error:
            reasons.append(str(error))
            continue
        native.nccl_waiting(functools.partial(watch, _living, _give_up))
        atexit.register(_finish)
        return
    raise UnsupportedError(
        f"a mesh of several GPUs needs NCCL 2.18 or later: {'; '.join(reasons)}; install nvidia-nccl-cu12, or a torch with CUDA"
    )


def _packaged() -> list[str]:
    """Where PyPI's package has it, which torch comes with."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return []
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    return [str(pathlib.Path(folder) / "lib" / "libnccl.so.2") for folder in folders]


def _living() -> Iterator[Any]:
    """All communicators of this process."""
    for gpus in _known:
        yield from gpus.living()


def _finish() -> None:
    """What is under way is ended before the process is: others may wait for what this one's devices send."""
    for gpus in _known:
        for rank in gpus.local:
            with contextlib.suppress(Exception), gpus.using(rank):  # the errors of a run that nobody waited for
                native.cuda_synchronize()
        gpus.give_up()


def _give_up() -> None:
    for gpus in _known:
        gpus.give_up()


_known: list[Gpus] = []
