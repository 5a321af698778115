"""Kernels for a GPU judged without one: what the machine code of sm_90 says of time, width and memory.

    python -m bench.static            row kernels of every length, in float32 and bfloat16, and the other forms
    python -m bench.static softmax    those whose name has the word

DRAM time is bytes moved over 4.3 TB/s, the copy rate measured on an H200. Issue time is warps × executed instructions over
132 multiprocessors × 4 schedulers × 1.755 GHz: loops count as often as they run, the slow paths of divisions not at all. Of products
and attention, which tensor cores limit, it says nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.backends.base import KernelSource
from fuser.backends.triton.aot import compile_ahead
from fuser.ir.types import ArrayType, bfloat16
from fuser.partition.group import Kind

COPY_BYTES_A_SECOND = 4.3e12
INSTRUCTIONS_A_SECOND = 132 * 4 * 1.755e9
_INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);")
_BRANCH = re.compile(r"BRA(?:\.\w+)* (?:\S+, )*0x([0-9a-f]+)")

Instruction = tuple[int, str]  # address and text


@dataclass(frozen=True)
class Launch:
    """One launch's machine code."""

    name: str
    registers: int
    spills: int  # bytes of local memory a thread
    load_bits: int  # of the widest access of global memory
    store_bits: int
    barriers: int
    tensor_cores: bool  # whether products are HGMMA or QGMMA, by warp groups
    issue: float  # seconds


@dataclass(frozen=True)
class Report:
    """A program's kernels: bytes that they move beside those that they must, and their launches."""

    moved: int
    ideal: int
    launches: tuple[Launch, ...]
    products: bool = False  # whether there are products of matrices among the kernels

    @property
    def issue(self) -> float:
        return sum(launch.issue for launch in self.launches)

    @property
    def dram(self) -> float:
        return self.moved / COPY_BYTES_A_SECOND


def report(function: Callable[..., Any], *types: ArrayType) -> Report:
    """What a function's generated kernels for sm_90 cost; library steps count with neither bytes nor time."""
    lowered = fuser.jit(function, backend="triton").lower(*types)
    sources = {source.name: source for source in lowered.sources}
    moved, ideal, launches = 0, 0, []
    for group in lowered.plan.groups:
        if (source := sources.get(group.name)) is None:
            continue
        arrays = [v.aval for v in (*group.graph.invars, *dict.fromkeys(group.graph.outvars))]
        product = group.kind is Kind.CONTRACTION  # whose programs find in the second cache what others have read
        touches = [1 if product else _touches(source.text, name) for name in source.params]
        moved += sum(a.nbytes * times for a, times in zip(arrays, touches, strict=True))
        ideal += group.ideal_bytes
        launches += of_source(source, max(a.size for a in arrays))
    products = any(group.kind is Kind.CONTRACTION for group in lowered.plan.groups)
    return Report(moved, ideal, tuple(launches), products)


def of_source(source: KernelSource, elements: int) -> Iterator[Launch]:
    """The launches of one source, whose loops go over `elements` elements all together."""
    for launch, kernel in zip(source.launch["launches"], compile_ahead(source, "cuda", 90), strict=True):
        block = launch.constants.get("ROWS", 1) * launch.constants.get("COLUMNS", launch.constants.get("BLOCK", 1))
        trips = max(1, -(-elements // max(launch.grid * block, 1)))
        yield of_code(launch.function, kernel.asm["cubin"], launch.grid * launch.warps, trips)


def of_code(name: str, cubin: bytes, warps: int, trips: int = 1) -> Launch:
    """What machine code says of one launch of so many warps, whose loops run `trips` times."""
    usage, text = _dumped(cubin)
    instructions = [(int(m[1], 16), m[2]) for line in text.splitlines() if (m := _INSTRUCTION.match(line))]
    return Launch(
        name,
        int(re.search(r"REG:(\d+)", usage)[1]),  # type: ignore[index]
        int(re.search(r"LOCAL:(\d+)", usage)[1]),  # type: ignore[index]
        _widest(instructions, "LDG"),
        _widest(instructions, "STG"),
        sum(text.startswith("BAR") for _, text in instructions),
        any("GMMA" in text for _, text in instructions),
        warps * _executed(instructions, trips) / INSTRUCTIONS_A_SECOND,
    )


def _touches(text: str, param: str) -> int:
    """How often a kernel reads or writes a parameter: the loads and stores in its text."""
    return len(re.findall(rf"tl\.(?:load|store)\(\(?{param}\b", text))


def _dumped(cubin: bytes) -> tuple[str, str]:
    """Resource usage and machine code, by the tool that comes with Triton."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = lambda option: (
            subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout
        )
        return run("--dump-resource-usage"), run("-sass")


def _widest(instructions: list[Instruction], name: str) -> int:
    found = [text for _, text in instructions if re.search(rf"(^|\s){name}\.", text)]
    widths = [re.search(r"\.(128|64|U16|S16|U8|S8)\b", text) for text in found]
    return max((int(w[1].strip("US")) if w else 32 for w in widths), default=0)


def _executed(instructions: list[Instruction], trips: int) -> int:
    """Instructions that a warp executes where each loop runs `trips` times: without padding, called slow paths and the branches that
    lead there."""
    calls = [int(m[1], 16) for _, text in instructions if (m := re.search(r"CALL\.REL\.NOINC 0x([0-9a-f]+)", text))]
    body = [(a, text) for a, text in instructions if a < min(calls, default=1 << 60) and text.strip() != "NOP"]
    slow: set[int] = set()
    for number, (address, text) in enumerate(body):
        target = _target(text)
        near = body[number + 1 : number + 8]
        if target > address and any("CALL" in t and a < target for a, t in near):
            slow |= {a for a, _ in body[number + 1 :] if a < target}
    loops = [(_target(text), address) for address, text in body if 0 <= _target(text) < address]
    once = sum(a not in slow for a, _ in body)
    again = sum(sum(first <= a <= last and a not in slow for a, _ in body) for first, last in loops)
    return once + again * (trips - 1)


def _target(text: str) -> int:
    found = _BRANCH.search(text)
    return int(found[1], 16) if found else -1


# Programs.

ROWS = (64, 100, 256, 1000, 1024, 1025, 2048, 4096, 5120, 8192, 16384)
ELEMENTS = 1 << 25


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    return fuser.nn.dot_product_attention(q, k, v, is_causal=True)


def cases() -> Iterator[tuple[str, Callable[..., Any], tuple[ArrayType, ...]]]:
    """Name, function and types of each program."""
    f32 = np.dtype("float32")
    of = lambda dtype, *shape: ArrayType(shape, dtype)
    for dtype in (f32, bfloat16):
        for columns in ROWS:
            yield f"softmax {dtype.name} {columns}", softmax, (of(dtype, ELEMENTS // columns, columns),)
    for columns in (1 << 16, 1 << 18):
        yield f"softmax float32 {columns}", softmax, (of(f32, ELEMENTS // columns, columns),)
        yield (
            f"logsumexp float32 {columns}",
            lambda x: fuser.nn.logsumexp(x, -1),
            (of(f32, ELEMENTS // columns, columns),),
        )
    yield "layer norm 4096", layer_norm, (of(f32, 4096, 4096),)
    yield "bias, width 1000", lambda x, b: fnp.maximum(x + b, 0), (of(f32, 8192, 1000), of(f32, 1000))
    yield "full sum", lambda x: x.sum(), (of(f32, 1 << 26),)
    for dtype, features in ((bfloat16, 64), (bfloat16, 128), (f32, 64)):
        heads = of(dtype, 8, 4096, 16, features)
        yield f"causal attention {dtype.name} {features}", causal_attention, (heads, heads, heads)
    yield "polynomial", lambda x: (x * x + 1) * x, (of(f32, 1 << 26),)


def main(words: list[str]) -> None:
    print("program                    launches  registers  spills  load/store bits  moved/ideal  issue/DRAM")
    for name, function, types in cases():
        if not all(word in name for word in words):
            continue
        found = report(function, *types)
        registers, spills = max(x.registers for x in found.launches), sum(x.spills for x in found.launches)
        widths = f"{max(x.load_bits for x in found.launches)}/{max(x.store_bits for x in found.launches)}"
        print(
            f"{name:26} {len(found.launches):8} {registers:10} {spills:7} {widths:>16} {found.moved / found.ideal:12.2f}"
            + (f" {found.issue / found.dram:11.2f}" if not found.products else "  products"),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
