"""The processes of a program that meet over torch.distributed, as torchrun starts them: begun, and waited for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence


def start(
    count: int, command: Sequence[str], variables: dict[str, str], gpus: bool = False
) -> list[subprocess.Popen[str]]:
    """`count` processes of Python that know their ranks; with `gpus` each sees GPUs that no other sees."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **common, **variables, "RANK": str(rank)}
            | ({"CUDA_VISIBLE_DEVICES": str(rank)} if gpus else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def finish(processes: list[subprocess.Popen[str]], within: float = 600) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each; none is left behind."""
    deadline, found = time.monotonic() + within, []
    try:
        for process in processes:
            out, err = process.communicate(timeout=max(deadline - time.monotonic(), 1))
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return found
