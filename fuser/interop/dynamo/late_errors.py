"""What a program says of the values that it took (an index out of range): on the host at once, on a GPU once the device has come so far.

Nobody waits for a GPU here: a program's truth values are copied to pinned memory behind its kernels, and a later call (of any
program), or the end of the process, raises the error, as torch's own assertions on a device come late.
"""

from __future__ import annotations

import atexit
import collections
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser.runtime.array import Array, on_gpu, to_numpy

MOST_PENDING = 64  # calls that may be unexamined; one more waits for the oldest


class Copied:
    """Truth values on their way from a GPU to the host."""

    def __init__(self, flags: Sequence[torch.Tensor]) -> None:
        self.host = [torch.empty_like(flag, device="cpu", pin_memory=True) for flag in flags]
        for own, flag in zip(self.host, flags):
            own.copy_(flag, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(flags[0].device))

    def known(self) -> bool:
        """Whether the copies have ended."""
        return self._event.query()  # type: ignore[no-any-return]

    def values(self) -> list[bool]:
        """The truth values, once the copies have ended."""
        self._event.synchronize()
        return [bool(own.any()) for own in self.host]


class Pending:
    """Calls whose truth values are on their way, the oldest first; `copied` brings them."""

    def __init__(self, copied: Callable[[Sequence[Any]], Any]) -> None:
        self._copied = copied
        self._calls: collections.deque[tuple[Any, Sequence[Exception]]] = collections.deque()
        self._lock = threading.Lock()  # the backward pass of a GPU runs in a thread of its own

    def add(self, flags: Sequence[Any], errors: Sequence[Exception]) -> None:
        """Remember a call, whose error `examine` raises."""
        self._calls.append((self._copied(flags), errors))

    def examine(self, most: int = MOST_PENDING) -> None:
        """The error of an earlier call, where one is known to be wrong; waits for those beyond `most`."""
        while self._calls:
            with self._lock:
                if not self._calls or not (len(self._calls) > most or self._calls[0][0].known()):
                    return
                copied, errors = self._calls.popleft()
            raise_where(copied.values(), errors, " (in an earlier call)")


def raise_where(flags: Sequence[Any], errors: Sequence[Exception], when: str = "") -> None:
    """The error of the first flag that holds."""
    for flag, error in zip(flags, errors):
        if flag:
            raise type(error)(f"{error}{when}")


PENDING = Pending(Copied)


def examine(flags: Sequence[Any], errors: Sequence[Exception]) -> None:
    """The error whose flag holds: here for flags on the host, in a later call for a GPU's."""
    if not any(map(on_gpu, flags)):
        raise_where([to_numpy(flag).any() for flag in flags], errors)
        return
    tensors = [Array(flag).torch() for flag in flags]
    if not all(tensor.is_cuda for tensor in tensors):  # a driver that stands in for one, or Triton's interpreter
        raise_where([bool(tensor.any()) for tensor in tensors], errors)
    else:
        PENDING.examine()
        PENDING.add(tensors, errors)


def _at_exit() -> None:
    PENDING.examine(most=0)


atexit.register(_at_exit)
