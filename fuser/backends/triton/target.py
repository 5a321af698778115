"""GPUs as data: what plans count with, and machines that reports of compiled kernels are made for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fuser.ir.target import Level, Target

# A GPU for computing: 3.3 TB/s and 50 MB of cache beside 60 T additions a second; sectors of 32 bytes.
TARGET = Target(
    (Level(30e6, 6e12), Level(math.inf, 3e12)),
    operations=20e12,
    strided=8e-12,
    launch=3e-6,
)


@dataclass(frozen=True)
class Machine:
    """A GPU: `units` multiprocessors, each with so many threads, registers and bytes of shared memory; `copy`: bytes a second that a
    copy reads and writes; `instructions`: those of warps that all units issue in a second; `half`: operations a second of
    products of 16-bit numbers on matrix units, `single`: of float32 without them."""

    name: str
    platform: str
    arch: int | str
    units: int
    threads: int
    registers: int
    shared: int
    copy: float
    instructions: float
    half: float
    single: float
    launch: float = 3e-6

    def products(self, itemsize: int) -> float:
        """Operations a second of products of numbers of so many bytes; of 8 bits twice as many where kernels use them as such."""
        eighth = 2 * self.half if isinstance(self.arch, int) and self.arch >= 90 else self.half
        return eighth if itemsize == 1 else self.half if itemsize == 2 else self.single

    @property
    def tensor_float(self) -> float:
        """Operations a second of products of float32 rounded to TF32: half of those of 16-bit numbers."""
        return self.half / 2

    def __str__(self) -> str:
        return self.name


# What vendors state, but for the copy of an H200, which was measured; a copy of the others is 0.9 of the stated bandwidth.
MACHINES = {
    "cuda:80": Machine(
        "A100 (cuda:80)", "cuda", 80, 108, 2048, 65536, 164 << 10, 1.8e12, 108 * 4 * 1.41e9, 312e12, 19.5e12
    ),
    "cuda:90": Machine(
        "H200 (cuda:90)", "cuda", 90, 132, 2048, 65536, 228 << 10, 4.3e12, 132 * 4 * 1.755e9, 989e12, 67e12
    ),
    "cuda:100": Machine(
        "B200 (cuda:100)", "cuda", 100, 148, 2048, 65536, 228 << 10, 7.2e12, 148 * 4 * 1.85e9, 2250e12, 75e12
    ),
    "hip:gfx942": Machine(
        "MI300X (hip:gfx942)", "hip", "gfx942", 304, 2048, 131072, 64 << 10, 4.8e12, 304 * 2.1e9, 1307e12, 163e12
    ),
}

# A target's platform: the threads of a warp.
WARP = {"cuda": 32, "hip": 64}

# Bytes of shared memory that one block may have, by compute capability (CUDA C++ Programming Guide, technical specifications), and
# on AMD's GPUs; the least of them of others.
_SHARED_OF_BLOCK = {
    75: 64 << 10,
    80: 163 << 10,
    87: 163 << 10,
    90: 227 << 10,
    100: 227 << 10,
    103: 227 << 10,
    "hip": 64 << 10,
}


def shared_of_block(platform: str, arch: int | str) -> int:
    """The bytes of shared memory that a kernel may ask for on a GPU."""
    return _SHARED_OF_BLOCK.get("hip" if platform == "hip" else arch, 99 << 10)
