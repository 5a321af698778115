"""What a workload is: one array function, its inputs at each size, and how right a result has to be.

`array(np, *inputs)` is written once against a NumPy-like namespace and serves NumPy, JAX, fuser and (where `torch` is
None) torch; gradients, loops and keys are in `program`. `array` on float64 inputs is the reference. Ideal bytes are each input read once and each output
written once, so they need no formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Dims = tuple[int, ...]

# "tiny" is for tests; "large" is for GPUs, whose last-level cache holds much of a "full" array.
SIZES = ("tiny", "small", "medium", "full", "large")
VECTOR = {"tiny": (1_000,), "small": (1 << 16,), "medium": (1 << 20,), "full": (1 << 24,), "large": (1 << 26,)}
MATRIX = {"tiny": (33, 65), "small": (256, 256), "medium": (1024, 1024), "full": (4096, 4096), "large": (8192, 8192)}

FLOATS = ("float32", "float64", "float16", "bfloat16")

# Largest error of one ordinary element, relative to |reference| + floor; a workload's `slack` multiplies it.
TOLERANCE = {"float64": 1e-12, "float32": 5e-6, "float16": 5e-3, "bfloat16": 4e-2}


@dataclass(frozen=True)
class Workload:
    """One named computation. `floor` is the size of an output that counts as ordinary, for the relative error."""

    name: str
    summary: str
    sizes: Mapping[str, Dims]
    make: Callable[..., tuple[np.ndarray, ...]]  # (generator, *dims) -> float64 or integer inputs
    array: Callable[..., Any]  # (np, *inputs) -> one array or a tuple of arrays
    flops: Callable[..., int]  # (*dims) -> operations, a transcendental function counted as one
    torch: Callable[..., Any] | None = None  # (*inputs); None: array(torch, *inputs)
    program: Callable[..., Any] | None = (
        None  # (library, *inputs), for jax and fuser; None: array(library.numpy, *inputs)
    )
    numba: Callable[[], Callable[..., Any]] | None = None  # () -> a compiled function of the inputs
    numexpr: Callable[..., Any] | None = None  # (evaluate, *inputs)
    rows: int = 0  # the first inputs that the reference may cut into blocks along axis 0
    dtypes: tuple[str, ...] = FLOATS
    floor: float = 1.0
    slack: float = 1.0
    random: bool = False  # each system draws numbers of its own, so results agree as far as chance allows
    numpy_alone: bool = (
        False  # `array` is for NumPy alone: it assigns in place, or calls what torch and traced arrays lack
    )
    iterations: int = 0  # of a loop, which systems without loops of their own would write out as they trace
    outliers: float = 0.0  # the fraction of elements that may differ (where a comparison decides a step)

    def inputs(self, size: str, dtype: str = "float32") -> tuple[np.ndarray, ...]:
        """The inputs at a size: the same for every system and every run; floats rounded to `dtype`."""
        made = self.make(np.random.default_rng(20), *self.sizes[size])
        kind = numpy_dtype(dtype)
        return tuple(array.astype(kind) if array.dtype.kind == "f" else array for array in made)

    def reference(self, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The outputs in float64 for these (already rounded) inputs, block by block where the rows are independent."""
        exact = [array.astype(np.float64) if is_float(array) else array for array in inputs]
        block = max(1, (1 << 18) // max(1, exact[0][0].size)) if self.rows else len(exact[0])
        parts: list[tuple[np.ndarray, ...]] = []
        with np.errstate(all="ignore"):
            for start in range(0, len(exact[0]), block):
                cut = [array[start : start + block] if i < self.rows else array for i, array in enumerate(exact)]
                parts.append(outputs(self.array(np, *cut)))
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def run(self, library: Any, inputs: tuple[Any, ...]) -> Any:
        """The workload by a library with JAX's names."""
        return self.program(library, *inputs) if self.program else self.array(library.numpy, *inputs)

    def tolerance(self, dtype: str) -> float:
        """The largest `error` of a right result."""
        return TOLERANCE[dtype] * self.slack

    def error(self, results: tuple[np.ndarray, ...], reference: tuple[np.ndarray, ...]) -> float:
        """max |result - reference| / (|reference| + floor), the worst `outliers` left out; inf if shapes or nans differ."""
        if len(results) != len(reference):
            return float("inf")
        return max(self._error(got, exact) for got, exact in zip(results, reference, strict=True))

    def _error(self, got: np.ndarray, exact: np.ndarray) -> float:
        if got.shape != exact.shape:
            return float("inf")
        worst: list[float] = []
        off, allowed = 0, self.outliers * exact.size
        flat_got, flat_exact = got.reshape(-1), exact.reshape(-1)
        for start in range(0, exact.size, 1 << 20):
            part = flat_exact[start : start + (1 << 20)]
            error = np.abs(flat_got[start : start + (1 << 20)].astype(np.float64) - part) / (np.abs(part) + self.floor)
            error = np.where(np.isfinite(error), error, np.inf)
            if self.outliers:
                off += int(np.count_nonzero(error > 0))
            worst.append(float(error.max(initial=0.0)))
        return 0.0 if self.outliers and off <= allowed else max(worst, default=0.0)


def outputs(result: Any) -> tuple[Any, ...]:
    """A function's result as a tuple of arrays."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def is_float(array: np.ndarray) -> bool:
    """Whether an array holds floats; bfloat16 is a kind of its own in NumPy."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a name, bfloat16 included."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def ideal_bytes(inputs: tuple[np.ndarray, ...], results: tuple[np.ndarray, ...], dtype: str) -> int:
    """Bytes that must move: each input read once, each output written once in `dtype`."""
    item = numpy_dtype(dtype).itemsize
    return sum(array.nbytes for array in inputs) + sum(array.size * item for array in results)
