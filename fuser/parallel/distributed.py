"""`fuser.distributed`: several processes that run one program together, over torch.distributed.

`initialize` says who they are; after it `devices()` are those of all processes, a mesh may name all of them, and jit,
shard_map and collectives over such a mesh meet the other processes. Every process runs the same program.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
from typing import Any

from fuser.config import config, environment
from fuser.errors import UnsupportedError
from fuser.parallel.transport import Connections, connect, connections
from fuser.runtime.processes import Processes, processes, set_processes


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    initialization_timeout: float = 300,
    collective_timeout: float | None = None,
) -> None:
    """Join the processes that run this program.

    `coordinator_address` is "host:port" of process 0, `process_id` the number of this process below `num_processes`; what
    is left out is taken from torchrun's environment (MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK). A process that does not
    come to a collective within `collective_timeout` seconds (60, FUSER_COLLECTIVE_TIMEOUT) is an error on all others.
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
    set_processes(Processes(index, counts))
    connect(Connections(group, store))
    atexit.register(shutdown)


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
