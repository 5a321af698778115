"""What a user says of a kernel's blocks: BlockSpec, GridSpec, memory spaces, scratch shapes, costs; plain data."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.text import param_type
from fuser.ir.types import ArrayType


class MemorySpace(enum.Enum):
    """Where a block or a scratch buffer lies. What a backend has no such memory for lies where its arrays lie."""

    ANY = "any"
    DEFAULT = "default"
    HOST = "host"
    VMEM = "vmem"
    SMEM = "smem"
    KEY = "key"
    INDEX = "index"
    ERROR = "error"

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        """A scratch buffer of this shape and dtype in this memory."""
        return MemoryRef(tuple(shape), np.dtype(dtype), self)

    def __str__(self) -> str:
        return self.value


@dataclasses.dataclass(frozen=True)
class MemoryRef:
    """A scratch buffer: one for all programs of the grid, which run in order and find in it what the one before left."""

    shape: tuple[int, ...]
    dtype: Any
    memory_space: Any = None

    @property
    def aval(self) -> ArrayType:
        return ArrayType(tuple(self.shape), np.dtype(self.dtype))


class Kind(enum.Enum):
    """What an index map says along a dimension: the number of a block, or the first element; or one that is squeezed out."""

    BLOCKED = "blocked"
    ELEMENT = "element"
    SQUEEZED = "squeezed"


param_type(Kind)


@param_type
class Extent(NamedTuple):
    """A block's extent along a dimension, and how the array is padded there for blocks that begin at any element."""

    size: int
    kind: Kind
    padding: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class _Sized:
    block_size: int


class Blocked(_Sized):
    """`block_size` elements; the index map counts blocks. An int in a block's shape means this."""


@dataclasses.dataclass(frozen=True)
class Element(_Sized):
    """`block_size` elements; the index map gives the first one, in an array that is padded by `padding`."""

    padding: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class Squeezed:
    """One element, in a dimension that the kernel does not see. None in a block's shape means this."""


class BoundedSlice(_Sized):
    """A slice whose size differs from block to block; refused where it is used."""


class Indirect(_Sized):
    """Rows at positions in an array; refused where it is used."""


BlockDim = Blocked | Element | Squeezed | BoundedSlice | Indirect
squeezed = Squeezed()


@dataclasses.dataclass(frozen=True)
class Buffered:
    """How many copies of a block a pipeline keeps; a hint."""

    buffer_count: int = 2
    use_lookahead: bool = False


@dataclasses.dataclass
class BlockSpec:
    """The part of an array that each program of the grid sees.

    `index_map(*program ids)` gives a number a dimension: of the block, in units of `block_shape`. Without a shape it is the
    whole array, without a map the first block.
    """

    block_shape: Sequence[BlockDim | int | None] | None = None
    index_map: Callable[..., Any] | None = None
    pipeline_mode: Buffered | None = None
    memory_space: Any = dataclasses.field(kw_only=True, default=None)


class NoBlockSpec:
    """Stands for specs that were not given: whole arrays."""

    def __repr__(self) -> str:
        return "no_block_spec"


no_block_spec = NoBlockSpec()


@dataclasses.dataclass(frozen=True)
class GridSpec:
    """The grid, the blocks of inputs and outputs, and scratch buffers of a kernel."""

    grid: int | Sequence[int] = ()
    in_specs: Any = no_block_spec
    out_specs: Any = no_block_spec
    scratch_shapes: Any = ()


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """What a kernel costs, where it is known better than from its text."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def to_json(self) -> bytes:
        return repr(dataclasses.asdict(self)).replace("'", '"').encode()


@dataclasses.dataclass(frozen=True)
class CompilerParams:
    """What a backend is told of a kernel. `dimension_semantics` says of each grid dimension "parallel" or "arbitrary": programs
    along a parallel one may run at once, and the interpreter refuses those that write what others read or write. `num_warps` and
    `num_stages` are those of a kernel that becomes a Triton function of its own, which else chooses them by its blocks."""

    dimension_semantics: Sequence[str] | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    vmem_limit_bytes: int | None = None
    serialized_metadata: Any = None


@dataclasses.dataclass(frozen=True)
class InterpretParams:
    """How kernels are interpreted. `detect_races` takes every dimension of the grid for a parallel one; memory that nobody has
    written is filled with nan (the least integer), so that reading it shows."""

    detect_races: bool = False


def extents(block_shape: Sequence[Any] | None, shape: Sequence[int], origin: str) -> tuple[Extent, ...]:
    """A block's extent a dimension. ValueError for another number of them; NotImplementedError for kinds that are not offered."""
    if block_shape is None:
        return tuple(Extent(e, Kind.BLOCKED) for e in shape)
    if len(block_shape) != len(shape):
        raise ValueError(
            f"Block shape for {origin} (= {tuple(block_shape)}) must have the same number of dimensions as the array shape {tuple(shape)}."
        )
    return tuple(map(_extent, block_shape))


def _extent(size: Any) -> Extent:
    if size is None or isinstance(size, Squeezed):
        return Extent(1, Kind.SQUEEZED)
    if isinstance(size, Element):
        return Extent(size.block_size, Kind.ELEMENT, (size.padding[0], size.padding[1]))
    if isinstance(size, (BoundedSlice, Indirect)):
        raise NotImplementedError(
            f"Unsupported block dimension type: {type(size).__name__}; take Blocked, Element or Squeezed"
        )
    if isinstance(size, Blocked):
        return Extent(size.block_size, Kind.BLOCKED)
    if isinstance(size, (int, np.integer)):
        return Extent(int(size), Kind.BLOCKED)
    raise ValueError(f"Invalid block dimension {size!r}: a block's shape has ints, None, Blocked, Element or Squeezed")


def grid_of(grid: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The grid's extents, and the names of its dimensions, None for those without. TypeError for what is no integer."""
    given = (grid,) if isinstance(grid, (int, np.integer)) else tuple(grid)
    names = tuple(e[0] if isinstance(e, tuple) else None for e in given)
    found = [e[1] if isinstance(e, tuple) else e for e in given]
    if not all(isinstance(e, (int, np.integer)) and e >= 0 for e in found):
        raise TypeError(f"the grid of a kernel has integers, got {grid!r}")
    return tuple(map(int, found)), names


def parallel_axes(params: Any, grid: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of the grid that are declared parallel."""
    named: Any = params.get("mosaic", params) if isinstance(params, Mapping) else params
    given = (
        named.get("dimension_semantics") if isinstance(named, Mapping) else getattr(named, "dimension_semantics", None)
    )
    return tuple(n for n, word in enumerate(given or ()) if str(getattr(word, "value", word)).lower() == "parallel")


def launch_asked(params: Any) -> tuple[tuple[str, int], ...]:
    """The options of a GPU's launch that are asked for. ValueError for what is no number of warps or stages."""
    named: Any = params.get("triton", params) if isinstance(params, Mapping) else params
    read = named.get if isinstance(named, Mapping) else lambda name: getattr(named, name, None)
    found = ((name, read(name)) for name in ("num_warps", "num_stages"))
    asked = tuple((name, value) for name, value in found if value is not None)
    if not launch_fits(asked):
        raise ValueError(
            f"compiler_params ask for {', '.join(f'{name}={value!r}' for name, value in asked)}; num_warps is 1, 2, 4, 8, 16 or 32, and "
            "num_stages 1 to 8"
        )
    return asked


def launch_fits(asked: Any) -> bool:
    """Whether these are options that a launch can have."""
    allowed = {"num_warps": (1, 2, 4, 8, 16, 32), "num_stages": range(1, 9)}
    pairs = type(asked) is tuple and all(type(pair) is tuple and len(pair) == 2 for pair in asked)
    return pairs and all(name in allowed and type(value) is int and value in allowed[name] for name, value in asked)
