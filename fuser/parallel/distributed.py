"""`fuser.distributed`: several processes that run one program together, over torch.distributed.

`initialize` says who they are; after it `devices()` are those of all processes, a mesh may name all of them, and jit,
shard_map and collectives over such a mesh meet the other processes. Every process runs the same program.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import socket
from collections.abc import Sequence
from typing import Any

from fuser.config import config, environment
from fuser.errors import UnsupportedError
from fuser.parallel.transport import Connections, connect, connections
from fuser.runtime import device
from fuser.runtime.processes import Processes, processes, set_processes


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: float = 300,
    heartbeat_timeout_seconds: float = 100,
    shutdown_timeout_seconds: float = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
    *,
    collective_timeout: float | None = None,
) -> None:
    """Join the processes that run this program.

    `coordinator_address` is "host:port" of process 0, `process_id` the number of this process below `num_processes`,
    `local_device_ids` the GPUs of this machine that are its own (an equal share where nothing is said); what
    is left out is taken from torchrun's environment (MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK). A process that does not
    come to a collective within `collective_timeout` seconds (60, FUSER_COLLECTIVE_TIMEOUT) is an error on all others.
    What comes after `local_device_ids`, but for the timeouts named here, is of JAX's coordination service and changes nothing.
    ValueError where something is missing, RuntimeError where it is called twice or the others do not come in time.
    """
    if is_initialized():
        raise RuntimeError("fuser.distributed.initialize was called before; call it once, at the start of the program")
    address = coordinator_address or _address()
    count = _number(num_processes, "WORLD_SIZE", "num_processes")
    index = _number(process_id, "RANK", "process_id")
    if address is None or count is None or index is None or not 0 <= index < count:
        raise ValueError(
            f"fuser.distributed.initialize needs coordinator_address, num_processes and a process_id below it, got {address!r}, "
            f"{count} and {index}; give them, or start the program with torchrun, which sets them"
        )
    if collective_timeout is not None:
        config.update("collective_timeout", float(collective_timeout))
    group, store = _group(address, count, index, float(initialization_timeout))
    store.set(f"fuser/devices/{index}", str(config.num_cpu_devices))
    counts = tuple(int(store.get(f"fuser/devices/{n}")) for n in range(count))
    set_processes(Processes(index, counts, _gpus(store, count, index, local_device_ids)))
    connect(Connections(group, store))
    atexit.register(shutdown)


def _gpus(store: Any, count: int, index: int, given: int | Sequence[int] | None) -> tuple[tuple[int, ...], ...]:
    """Of each process the GPUs that are its own; nothing where none has one.

    Those that say nothing, on one machine and with the same GPUs visible, get equal shares of them in their order.
    """
    visible = device.local_gpus()
    own = list(visible) if given is None else [given] if isinstance(given, int) else list(given)
    if not set(own) <= set(visible):
        raise ValueError(f"local_device_ids {own} are to be among the GPUs of this process, {visible}")
    where = [socket.gethostname(), environment("CUDA_VISIBLE_DEVICES"), given is None]
    store.set(f"fuser/gpus/{index}", json.dumps([where, own]))
    told = [json.loads(store.get(f"fuser/gpus/{n}")) for n in range(count)]
    found = []
    for process, (place, gpus) in enumerate(told):
        beside = [n for n, other in enumerate(told) if other == [place, gpus]] if place[-1] else [process]
        share = beside.index(process), len(beside)
        found.append(tuple(gpus[share[0] * len(gpus) // share[1] : (share[0] + 1) * len(gpus) // share[1]]))
    if found[index] and device.has_cuda():
        import torch

        torch.cuda.set_device(found[index][0])  # before the driver's library is opened for it
    return tuple(found) if any(found) else ()


def _address() -> str | None:
    host, port = environment("MASTER_ADDR"), environment("MASTER_PORT")
    return None if host is None or port is None else f"{host}:{port}"


def _number(given: int | None, variable: str, name: str) -> int | None:
    text = environment(variable)
    if given is None and text is not None and not text.isdecimal():
        raise ValueError(f"{variable}={text!r} is no number; unset it, or give {name}")
    return int(text) if given is None and text is not None else given


def _group(address: str, count: int, index: int, timeout: float) -> tuple[Any, Any]:
    """torch's process group over Gloo and its store; UnsupportedError where torch is missing."""
    try:
        import torch.distributed as dist
    except ImportError:
        raise UnsupportedError(
            "fuser.distributed runs over torch.distributed, and torch is not installed; pip install torch, or use the devices of "
            "one process (num_cpu_devices)"
        ) from None
    if not dist.is_available():
        raise UnsupportedError("this build of torch has no torch.distributed; install one that has")
    host, _, port = address.rpartition(":")
    wait = datetime.timedelta(seconds=timeout)
    elastic = environment("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun itself holds the store then
    server = dist.TCPStore(host, int(port), count, index == 0 and not elastic, timeout=wait)
    prefix = f"fuser/{environment('TORCHELASTIC_RESTART_COUNT') or 0}"
    store = dist.PrefixStore(prefix, server)
    store.set_timeout(wait)
    if dist.is_initialized():
        return dist.new_group(backend="gloo", timeout=wait), store
    dist.init_process_group("gloo", store=store, rank=index, world_size=count, timeout=wait)
    return dist.group.WORLD, store


def is_initialized() -> bool:
    """Whether this process has joined others."""
    return connections() is not None


def shutdown() -> None:
    """Leave the other processes; arrays over their devices cannot be used any more."""
    found = connections()
    if found is None:
        return
    if found.failure is not None:
        found.linger()
    found.close()
    connect(None)
    set_processes(Processes())
    if found.failure is None:
        import torch.distributed as dist

        with contextlib.suppress(Exception):
            dist.destroy_process_group(found.group)


def process_count() -> int:
    """How many processes run the program together."""
    return processes().count


def process_index() -> int:
    """The number of this process among them."""
    return processes().index


class State:
    """What this process is among those that run the program, as libraries read it."""

    @property
    def process_id(self) -> int:
        """The number of this process."""
        return process_index()

    @property
    def num_processes(self) -> int:
        """How many there are."""
        return process_count()

    @property
    def client(self) -> None:
        """No service coordinates one process. UnsupportedError where there are several: they meet over torch.distributed."""
        if is_initialized():
            raise UnsupportedError(
                "fuser's processes have no coordination service of JAX's to ask; let process 0 alone store what all of them hold"
            )


global_state = State()
