"""What machine code says of a kernel before it has run: registers, spills, occupancy, widths of accesses, and a predicted time.

In: the sources of a plan, a GPU that need not be there. Out: a `Report` of each launch. Memory time is bytes moved over the rate of a copy;
the time of instructions is warps × executed ones over what all schedulers issue, or × cycles of their busiest unit, loops as often as they run and
the slow paths of divisions not at all; products have the time of their arithmetic on matrix units. The longest of them is the limiter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.triton.aot import disassembled, fitted, resource_usage
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.launch import warps as warps_on
from fuser.backends.triton.matmul import extents
from fuser.backends.triton.product_cost import START, choose
from fuser.backends.triton.target import MACHINES, WARP, Machine
from fuser.errors import ToolchainError
from fuser.ir.primitive import Fusion
from fuser.ops.attention import attention_p
from fuser.partition.group import FusionGroup, Kind

SECTOR = 32  # bytes that memory hands out at once
MOST_BLOCKS = 32  # that a multiprocessor runs at once
Instruction = tuple[int, str]  # address and text
_SASS = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);")
_MATRIX = re.compile(r"\b(?:[BDHIQ]G?MMA|UTC\w*MMA)\b")  # HFMA2.MMA moves a constant
_SASS_BRANCH = re.compile(r"BRA(?:\.\w+)* (?:\S+, )*0x([0-9a-f]+)")


@dataclass(frozen=True)
class Code:
    """One kernel's machine code."""

    registers: int  # a thread
    spills: int  # bytes of stack a thread
    shared: int  # bytes a block
    load_bits: int  # of the widest access of global memory
    store_bits: int
    barriers: int
    matrix_units: bool  # whether products run on them (HGMMA, HMMA, UTCHMMA, MFMA)
    executed: int  # instructions of a warp
    busy: int  # cycles of a scheduler that its busiest unit takes for a warp
    tensor_maps: bool = False  # whether blocks come from memory by copies of the device's own (UTMALDG)


@dataclass(frozen=True)
class LaunchReport:
    """One launch: its code, the part of a multiprocessor's threads that run at once, and seconds of issuing instructions and of the unit that is
    busiest with them."""

    name: str
    code: Code
    grid: int
    warps: int
    occupancy: float
    issue: float
    busy: float


@dataclass(frozen=True)
class Report:
    """One kernel of a plan: bytes that it moves beside those that any must, its launches, and seconds of each resource."""

    name: str
    moved: int
    ideal: int
    launches: tuple[LaunchReport, ...]
    times: dict[str, float]

    @property
    def limiter(self) -> str:
        """What takes longest: memory, issue, products or launch."""
        return max(self.times, key=self.times.__getitem__)

    @property
    def seconds(self) -> float:
        """The predicted time of the kernel, its launches included."""
        return self.times["launch"] + max(t for name, t in self.times.items() if name != "launch")


def report(group: FusionGroup, source: KernelSource, machine: Machine) -> Report:
    """What a group's kernel costs on a machine. ToolchainError where it does not compile."""
    arrays = [v.aval for v in (*group.graph.invars, *dict.fromkeys(group.graph.outvars))]
    product = group.kind is Kind.CONTRACTION  # whose programs find in the second cache what others have read
    together = group.kind is Kind.HORIZONTAL  # whose parts' texts have names of their own
    text = _without_alternatives(source)
    touches: list[float] = [1 if product or together else _touches(text, name) for name in source.params]
    most = _most_read(group)
    rows = SECTOR * math.prod(axis.extent for axis in group.parallel)
    for number in (n for launch in source.launch["launches"] for n in launch.once_a_row):
        touches[number] -= min(1, touches[number]) * (1 - min(1, rows / max(arrays[number].nbytes, 1)))
    moved = round(sum(min(a.nbytes, most) * times for a, times in zip(arrays, touches, strict=True)))
    moved += sum(2 * count * np.dtype(dtype).itemsize for count, dtype in source.launch["scratch"])
    launches = tuple(of_source(source, max((a.size for a in arrays), default=1), machine))
    times = {
        "memory": moved / machine.copy,
        "products" if product else "issue": (
            _product_seconds(group, machine) if product else sum(x.busy for x in launches) / max(1, len(group.parts))
        ),
        "launch": machine.launch * len(launches),
    }
    return Report(group.name, moved, min(group.ideal_bytes, moved), launches, times)


def _most_read(group: FusionGroup) -> float:
    """Bytes that one access of all elements touches at most: a gather of few elements reads a sector for each of them."""
    if group.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION) or group.bodies:
        return math.inf
    return SECTOR * math.prod(axis.extent for axis in (*group.parallel, *group.reduced))


def of_source(source: KernelSource, elements: int, machine: Machine) -> Iterator[LaunchReport]:
    """The launches of one source, whose loops go over `elements` elements all together."""
    for planned in source.launch["launches"]:
        try:
            launch, kernel = fitted(source, planned, machine.platform, machine.arch)
        except Exception as error:
            raise ToolchainError(f"Triton cannot compile {source.name} for {machine}: {error}") from error
        sides = ("ROWS", "M_BLOCK", "N_BLOCK", *(["BLOCK"] if "COLUMNS" in launch.constants else []))
        launch = replace(launch, warps=warps_on(launch, machine.platform))
        block = launch.columns * math.prod(launch.constants.get(side, 1) for side in sides)
        trips = max(1, -(-(launch.elements or elements) // max(launch.grid * block, 1)))
        code = of_cuda(kernel, trips) if machine.platform == "cuda" else _of_amd(kernel, trips)
        warps = launch.grid * launch.warps / machine.instructions
        if launch.persistent:
            blocks = machine.units * at_once(
                launch.warps * WARP[machine.platform], code.registers, code.shared, machine
            )
            launch = replace(launch, grid=min(launch.grid, blocks))
        times = warps * code.executed, warps * max(code.executed, code.busy)
        yield LaunchReport(launch.function, code, launch.grid, launch.warps, occupancy(launch, code, machine), *times)


def occupancy(launch: Launch, code: Code, machine: Machine) -> float:
    """The part of a multiprocessor's threads that its registers and shared memory, and the blocks that there are, let run."""
    threads = launch.warps * WARP[machine.platform]
    blocks = at_once(threads, code.registers, code.shared, machine)
    return min(blocks, -(-launch.grid // machine.units)) * threads / machine.threads


def at_once(threads: int, registers: int, shared: int, machine: Machine = MACHINES["cuda:90"]) -> int:
    """Blocks of so many threads, registers a thread and bytes of shared memory that a multiprocessor runs at once."""
    blocks = min(
        MOST_BLOCKS, machine.threads // threads, machine.registers // (-(-max(registers, 1) // 8) * 8 * threads)
    )
    if shared:
        kept = 1024 if machine.platform == "cuda" else 0  # of each block's shared memory by the system
        blocks = min(blocks, machine.shared // (shared + kept))
    return max(1, blocks)


def _product_seconds(group: FusionGroup, machine: Machine) -> float:
    """Of one product the estimate of its tiles; of attention its operations at the stated rate."""
    products = [eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT]
    matrices = len(products) == 1 and products[0].primitive is not attention_p and len(products[0].invars) == 2
    if matrices and len(products[0].params["dimension_numbers"][0][0]) == 1:
        return choose(extents(products[0]), machine).seconds - START
    return group.flops / machine.products(_multiplied(group))


def _multiplied(group: FusionGroup) -> int:
    """Bytes of the widest number that a group's products multiply."""
    products = [eqn for eqn in group.eqns if eqn.primitive.fusion is Fusion.DOT]
    return max(v.aval.dtype.itemsize for eqn in products for v in eqn.invars if v.aval.shape)


def _without_alternatives(source: KernelSource) -> str:
    """A source's text without the functions that are launched instead of others, on some GPUs."""
    launches = source.launch["launches"]
    others = {choice.function for launch in launches for choice in launch.smaller} - {x.function for x in launches}
    parts = re.split(r"(?m)^(?=@triton\.jit)", source.text)
    return "".join(part for part in parts if not any(f"def {name}(" in part for name in others))


def _touches(text: str, param: str) -> int:
    """How often a kernel reads or writes a parameter: the loads and stores in its text, those of a row's later parts apart."""
    accesses = re.findall(rf"tl\.(?:load|store)\(\(?{param}\b.*", text)
    return sum(not re.search(r"_end|_part\d", access) for access in accesses)


# NVIDIA: SASS, by the tool that comes with Triton.


def of_cuda(kernel: Any, trips: int) -> Code:
    """Of Triton's compiled kernel, whose loops run `trips` times."""
    usage, text = resource_usage(kernel.asm["cubin"]), disassembled(kernel.asm["cubin"])
    instructions = [(int(m[1], 16), m[2]) for line in text.splitlines() if (m := _SASS.match(line))]
    number = lambda name: int(found[1]) if (found := re.search(rf"{name}:(\d+)", usage)) else 0
    body = _on_fast_paths(instructions)
    runs = _runs(body, trips, _unrolling(kernel.asm["ptx"], instructions))
    return Code(
        number("REG"),
        number("STACK"),
        kernel.metadata.shared,
        _widest_sass(instructions, "LDG|LDGSTS"),
        _widest_sass(instructions, "STG"),
        sum(text.startswith("BAR") for _, text in instructions),
        any(_MATRIX.search(text) for _, text in instructions),
        sum(runs.values()),
        _busiest(instructions, runs),
        any("UTMALDG" in text for _, text in instructions),
    )


def _widest_sass(instructions: list[Instruction], names: str) -> int:
    found = [m[0] for _, text in instructions if (m := re.search(rf"(?:^|(?<=\s))(?:{names})\.\S*", text))]
    widths = [re.search(r"\.(128|64|U16|S16|U8|S8)\b", name) for name in found]
    return max((int(w[1].strip("US")) if w else 32 for w in widths), default=0)


# Cycles that an instruction of a warp takes of a unit, of which each scheduler has one (CUDA C++ Programming Guide, throughput of arithmetic
# instructions, compute capability 9.0: 128, 64, 32 or 16 results a cycle and multiprocessor).
_UNITS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("FADD", "FMUL", "FFMA"), ("float", 1)),
    **dict.fromkeys(("IMAD", "HADD2", "HMUL2", "HFMA2", "HSETP2"), ("float", 2)),
    **dict.fromkeys(("FMNMX", "FSEL", "FSETP", "FCHK", "ISETP", "LOP3", "SHF", "PRMT", "IADD3", "VIADD", "SEL", "LEA"), ("whole", 2)),
    **dict.fromkeys(("IABS", "IMNMX", "VIMNMX", "PLOP3", "P2R", "R2P", "F2FP", "I2FP", "BMSK", "SGXT"), ("whole", 2)),
    **dict.fromkeys(("MUFU", "POPC", "FLO", "BREV", "F2I", "I2F", "F2F", "FRND"), ("special", 8)),
    **dict.fromkeys(("SHFL", "LDS", "STS", "LDSM", "STSM", "ATOMS", "LDG", "STG", "LDGSTS"), ("memory", 4)),
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP"), ("double", 2)),
}  # fmt: skip


def _busiest(instructions: list[Instruction], runs: dict[int, int]) -> int:
    """Cycles of the unit that a warp's instructions, run so often each, keep busy longest."""
    cycles: dict[str, int] = {}
    for address, text in instructions:
        name = re.sub(r"^@!?U?P\w+ +", "", text).split(".")[0].split()[0]
        if name in _UNITS:
            unit, each = _UNITS[name]
            cycles[unit] = cycles.get(unit, 0) + each * runs.get(address, 0)
    return max(cycles.values(), default=0)


_PER_CALL = 16  # instructions for each call in the slow path of a pack of quotients or roots, at most
Block = list[tuple[int, int]]  # of each instruction its address and where it branches to, −1 where it does not


def _on_fast_paths(instructions: list[Instruction]) -> Block:
    """Without padding, called slow paths and the branches that lead there."""
    calls = [int(m[1], 16) for _, text in instructions if (m := re.search(r"CALL\.REL\.NOINC 0x([0-9a-f]+)", text))]
    body = [(a, text) for a, text in instructions if a < min(calls, default=1 << 60) and text.strip() != "NOP"]
    slow: set[int] = set()
    for number, (_, text) in enumerate(body):
        target = _target(text)
        inside = [(a, t) for a, t in body[number + 1 :] if a < target]
        calls_inside = sum("CALL" in t for _, t in inside)
        if any("CALL" in t for _, t in inside[:7]) or 0 < len(inside) <= _PER_CALL * calls_inside:
            slow |= {a for a, _ in inside}
    return [(address, _target(text)) for address, text in body if address not in slow]


def _target(text: str) -> int:
    found = _SASS_BRANCH.search(text)
    return int(found[1], 16) if found else -1


def _loops(body: Block) -> list[tuple[int, int]]:
    """The first and the last address of each loop."""
    return [(target, address) for address, target in body if 0 <= target < address]


def _unrolling(ptx: str, instructions: list[Instruction]) -> list[int]:
    """Into how many copies the assembler has unrolled each loop, by the loads in it; where that is not to be seen, one."""
    lines = ptx.splitlines()
    labels = {line.split(":")[0].strip(): n for n, line in enumerate(lines) if re.match(r"\s*\$\w+:", line)}
    branches = ((n, re.search(r"\bbra(?:\.uni)?\s+(\$\w+)", line)) for n, line in enumerate(lines))
    written = _loops([(n, labels.get(found[1], -1)) for n, found in branches if found])
    made = _loops([(address, _target(text)) for address, text in instructions if "BRA" in text])
    before = [sum("ld.global" in line for line in lines[first:last]) for first, last in written]
    after = [sum("LDG" in text for a, text in instructions if first <= a <= last) for first, last in made]
    if len(before) != len(after):
        return [1] * len(made)
    return [b // a if a and b % a == 0 else 1 for a, b in zip(before, after, strict=True)]


def _runs(body: Block, trips: int, unrolling: list[int] | None = None) -> dict[int, int]:
    """How often a warp executes each instruction where each loop runs `trips` times, one of several copies of its body so many times fewer."""
    loops = _loops(body)
    copies = unrolling if unrolling is not None and len(unrolling) == len(loops) else [1] * len(loops)
    runs = {address: 1 for address, _ in body}
    for (first, last), count in zip(loops, copies, strict=True):
        for address in (a for a in runs if first <= a <= last):
            runs[address] += -(-trips // count) - 1
    return runs


# AMD: assembly.


def _of_amd(kernel: Any, trips: int) -> Code:
    text = kernel.asm["amdgcn"]
    number = lambda name: int(found[1]) if (found := re.search(rf"\.{name}:\s+(\d+)", text)) else 0
    lines = [line.split(";")[0].strip() for line in text.splitlines()]
    labels = {line[:-1]: address for address, line in enumerate(lines) if line.endswith(":")}
    code = [
        (address, line)
        for address, line in enumerate(lines)
        if re.match(r"[a-z]+_\w+", line) and not line.endswith(":")
    ]
    branch = lambda line: labels.get(line.split()[-1], -1) if line.startswith(("s_cbranch", "s_branch")) else -1
    runs = _runs([(address, branch(line)) for address, line in code], trips)
    return Code(
        number("vgpr_count"),
        number("private_segment_fixed_size"),
        kernel.metadata.shared,
        _widest_amd(text, "load"),
        _widest_amd(text, "store"),
        sum(line.startswith("s_barrier") for _, line in code),
        "mfma" in text,
        sum(runs.values()),
        0,
    )


def _widest_amd(text: str, access: str) -> int:
    sizes = {
        "dwordx4": 128,
        "dwordx3": 96,
        "dwordx2": 64,
        "dword": 32,
        "ushort": 16,
        "short": 16,
        "ubyte": 8,
        "byte": 8,
    }
    found = re.findall(rf"\b(?:global|buffer|flat)_{access}_(\w+)", text)
    return max((bits for name in found for size, bits in sizes.items() if name.startswith(size)), default=0)
