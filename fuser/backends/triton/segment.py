"""Runs of kernels that nothing comes between, joined to one step whose launches need no Python.

In: the steps of an executable. Out: steps of which some are segments: temporaries inside lie in one block, and after the
first call, for which Triton compiles, the native core launches all kernels of a segment, or replays their CUDA graph.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.backends.triton import interpreter
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.launch import Launcher
from fuser.partition.buffers import Block, pack
from fuser.runtime.array import torch_dtype
from fuser.runtime.core import native
from fuser.runtime.executable import Allocation, KernelStep, Step

GRAPH_FROM = 3  # launches from which one replay is cheaper than they are
LARGEST = 64  # parameters of one launch
_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True)
class Place:
    """Where a kernel finds an array: `offset` bytes into one of the segment's tensors."""

    tensor: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def of(self, tensors: Sequence[Any]) -> Any:
        """The array as a tensor: the segment's own, or a part of its block."""
        whole = tensors[self.tensor]
        if self.offset < 0:
            return whole
        size = math.prod(self.shape) * self.dtype.itemsize
        return whole[self.offset : self.offset + size].view(torch_dtype(self.dtype)).view(self.shape)


@dataclass(frozen=True)
class Part:
    """One step of a segment: its launcher, and the places of its arrays, then of its scratch."""

    launcher: Launcher
    arrays: tuple[Place, ...]
    scratch: tuple[Place, ...]


class First:
    """A segment's fallback: launches through Triton and, once it has seen what Triton compiled, prepares the segment."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.segment: Any = None

    def __call__(self, tensors: list[Any]) -> None:
        compiled = []
        for part in self.parts:
            arrays, scratch = ([place.of(tensors) for place in places] for places in (part.arrays, part.scratch))
            compiled += [(part, *made) for made in part.launcher.launch(arrays, scratch)]
        if all(tensor.data_ptr() % 16 == 0 for tensor in tensors):
            self.prepare(compiled)

    def prepare(self, compiled: Sequence[tuple[Part, Launch, Any]]) -> None:
        """Hand the compiled kernels to the native segment, if all of them can be launched plainly."""
        import torch

        launches = [native_launch(part, launch, kernel) for part, launch, kernel in compiled]
        if None not in launches:
            device, keep = torch.cuda.current_device(), tuple(kernel for *_, kernel in compiled)
            functions = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream
            self.segment.prepare(tuple(launches), device, *functions, keep)


def native_launch(part: Part, launch: Launch, kernel: Any) -> tuple[Any, ...] | None:
    """A compiled kernel's launch as the native core takes it; None where only Triton's own launcher knows how."""
    metadata = kernel.metadata
    wanted = {"num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False}
    plain = all(getattr(metadata, name, value) == value for name, value in wanted.items())
    parameters = list(native_parameters(part, launch, kernel.src.signature))
    scratch = (getattr(metadata, name, 0) for name in ("global_scratch_size", "profile_scratch_size"))
    if not plain or any(scratch) or None in parameters or len(parameters) > LARGEST - 2 or kernel.function is None:
        return None
    # Triton's kernels end with two pointers to scratch of the compiler's own, null where they need none.
    parameters += [("i64", 0, 0), ("i64", 0, 0)]
    threads = metadata.num_warps * metadata.target.warp_size
    return kernel.function, launch.grid, threads, metadata.shared, tuple(parameters)


def native_parameters(part: Part, launch: Launch, signature: dict[str, Any]) -> Iterator[tuple[str, int, int] | None]:
    """The parameters that a compiled kernel really has: what Triton specialised on has gone from its signature."""
    places = [*part.arrays, *part.scratch]
    arguments = [places[n] for n in launch.buffers] + [*launch.sizes]
    for argument, kind in zip(arguments, signature.values()):
        if kind == "constexpr":
            continue
        if isinstance(argument, Place) and isinstance(kind, str) and kind.startswith("*"):
            yield "address", argument.tensor, max(argument.offset, 0)
        elif isinstance(argument, int) and kind in ("i32", "i64"):
            yield kind, 0, argument
        else:
            yield None


def joined(steps: Sequence[Step], outputs: Sequence[int]) -> list[Step]:
    """The steps with runs of kernels joined; the same steps where the native core cannot launch."""
    if interpreter.active() or not driver_opened():
        return list(steps)
    result: list[Step] = []
    number = 0
    fresh = max((slot for step in steps for slot in (*step.arguments, *step.writes)), default=0)
    while number < len(steps):
        end = number
        while end < len(steps) and _launches(steps[end]):
            end += 1
        if end > number:
            needed = {*outputs, *(slot for step in steps[end:] for slot in step.arguments)}
            fresh += 1
            result.append(segment(steps[number:end], needed, fresh))  # type: ignore[arg-type]
            number = end
        else:
            result.append(steps[number])
            number += 1
    return result


def segment(steps: Sequence[KernelStep], needed: set[int], fresh: int) -> KernelStep:
    """One step for several; `needed` are the slots that are read after them, `fresh` is a slot for what lies inside."""
    written = {output.slot: output for step in steps for output in step.outputs}
    arguments = tuple(dict.fromkeys(s for step in steps for s in step.arguments if s not in written))
    inner, size = inside(steps, needed)
    kept = [_kept(output, inner) for slot, output in written.items() if slot not in inner]
    if size:
        kept.append(Allocation(fresh, (size,), _BYTE))
    tensors: dict[Any, int] = {slot: n for n, slot in enumerate([*arguments, *(output.slot for output in kept)])}

    def place(slot: int | tuple[int, int], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Place:
        offset = inner.get(slot)
        return (
            Place(tensors[fresh], offset, shape, dtype) if offset is not None else Place(tensors[slot], -1, (), _BYTE)
        )

    parts = []
    for number, step in enumerate(steps):
        assert isinstance(step.function, Launcher)
        places = [
            place(s, written[s].shape, written[s].dtype) if s in written else place(s, (), _BYTE)
            for s in step.arguments
        ]
        places += [place(output.slot, output.shape, output.dtype) for output in step.outputs]
        scratch = [place((number, n), (count,), d) for n, (count, d) in enumerate(step.function.scratch)]
        parts.append(Part(step.function, tuple(places), tuple(scratch)))
    first = First(parts)
    first.segment = native.Segment(len(tensors), first, GRAPH_FROM)
    return KernelStep(" + ".join(step.name for step in steps), first.segment, arguments, tuple(kept))


def inside(steps: Sequence[KernelStep], needed: set[int]) -> tuple[dict[Any, int], int]:
    """Offsets of what nothing outside reads: slots, and scratch arrays as (step, number); and the bytes of their block."""
    last = {slot: number for number, step in enumerate(steps) for slot in (*step.arguments, *step.writes)}
    blocks: dict[Any, Block] = {}
    for number, step in enumerate(steps):
        assert isinstance(step.function, Launcher)
        for output in step.outputs:
            if output.slot not in needed:
                blocks[output.slot] = Block(number, last[output.slot], output.nbytes)
        for n, (count, dtype) in enumerate(step.function.scratch):
            blocks[number, n] = Block(number, number, count * np.dtype(dtype).itemsize)
    offsets, size = pack(list(blocks.values()))
    return dict(zip(blocks, offsets)), size


def _kept(output: Allocation, inner: Collection[Any]) -> Allocation:
    """What memory inside the segment's block cannot take over."""
    return replace(output, reuse=None) if output.reuse in inner else output


@functools.cache
def driver_opened() -> bool:
    """Whether the native core is there and has opened the driver's library of an NVIDIA GPU."""
    import torch

    if native is None or not torch.version.cuda:
        return False
    try:
        native.cuda_open("libcuda.so.1")
    except OSError:
        return False
    return True


def _launches(step: Step) -> bool:
    return isinstance(step, KernelStep) and isinstance(step.function, Launcher)
