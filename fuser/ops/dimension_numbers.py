"""What is wrong with the dimensions that a broadcast or a scatter is given, in the words that users of JAX search for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fuser.ir.types import ArrayType


def broadcast_fault(x: ArrayType, shape: tuple[int, ...], dims: tuple[int, ...]) -> str:
    """What is wrong with the dimensions, in JAX's words; nothing where they will do."""
    if x.ndim > len(shape):
        return "target broadcast shape must have equal or higher rank to the operand shape"
    if len(dims) != x.ndim:
        return "broadcast_dimensions must have length equal to operand ndim"
    if any(not 0 <= d < len(shape) for d in dims):
        return "broadcast_dimensions must be a subset of output dimensions"
    if any(extent not in (1, shape[d]) for extent, d in zip(x.shape, dims)):
        return (
            "operand dimension sizes must either be 1, or be equal to their corresponding dimensions in the target "
            "broadcast shape"
        )
    if len(set(dims)) != len(dims):
        return "broadcast_dimensions must not contain duplicates"
    return "" if sorted(dims) == list(dims) else "broadcast_dimensions must be strictly increasing"


def scatter_fault(x: ArrayType, indices: ArrayType, updates: ArrayType, numbers: Any) -> str:
    """The first thing that is wrong; nothing where the numbers fit the three types."""
    return next(_faults(x, indices, updates, numbers), "")


def _faults(x: ArrayType, indices: ArrayType, updates: ArrayType, numbers: Any) -> Iterator[str]:
    windows, inserted = numbers.update_window_dims, numbers.inserted_window_dims
    batching, of_indices = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    into, last = numbers.scatter_dims_to_operand_dims, indices.ndim - 1
    rank = last + len(windows)
    if updates.ndim != rank:
        yield f"Updates tensor must be of rank {rank}; got {updates.ndim}."
    yield from _ordered("update_window_dims", windows, updates.ndim)
    yield from _ordered("inserted_window_dims", inserted, x.ndim)
    yield from _ordered("operand_batching_dims", batching, x.ndim)
    yield from _apart("inserted_window_dims", inserted, batching)
    yield from _apart("scatter_dims_to_operand_dims", into, batching)
    yield from _once("scatter_indices_batching_dims", of_indices)
    yield from _inside("scatter_indices_batching_dims", of_indices, indices.ndim)
    if last in of_indices:
        yield f"Scatter op cannot have the index vector dimension as a batching dimension; got {of_indices}."
    yield from _batches(x, indices, numbers)
    size = len(windows) + len(inserted) + len(batching)
    if size != x.ndim:
        yield f"Scatter op has window of size {size}; doesn't match operand of rank {x.ndim}."
    if len(into) != indices.shape[last]:
        yield (
            f"Scatter op has {len(into)} elements in scatter_dims_to_operand_dims and the bound of dimension "
            f"index_vector_dim={last} of indices is {indices.shape[last]}. These two numbers must be equal"
        )
    for place, dim in enumerate(into):
        if not 0 <= dim < x.ndim:
            yield f"Invalid scatter_dims_to_operand_dims mapping; domain is [0, {x.ndim}), got: {place}->{dim}."
    yield from _once("scatter_dims_to_operand_dims", into)
    yield from _bounds(x, indices, updates, numbers)


def _ordered(name: str, dims: Sequence[int], rank: int) -> Iterator[str]:
    if list(dims) != sorted(dims):
        yield f"{name} in scatter op must be sorted; got {dims}"
    yield from _once(name, dims)
    yield from _inside(name, dims, rank)


def _once(name: str, dims: Sequence[int]) -> Iterator[str]:
    if len(set(dims)) != len(dims):
        yield f"{name} in scatter op must not repeat; got: {dims}."


def _inside(name: str, dims: Sequence[int], rank: int) -> Iterator[str]:
    for dim in dims:
        if not 0 <= dim < rank:
            yield f"Invalid {name} set in scatter op; valid range is [0, {rank}); got: {dim}."


def _apart(name: str, dims: Sequence[int], batching: Sequence[int]) -> Iterator[str]:
    if set(dims) & set(batching):
        yield f"{name} and operand_batching_dims in scatter op must be disjoint; got: {dims} and {batching}."


def _batches(x: ArrayType, indices: ArrayType, numbers: Any) -> Iterator[str]:
    """Batching dimensions of the operand and the indices go in pairs of one extent."""
    batching, of_indices = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    if len(batching) != len(of_indices):
        yield (
            "Scatter op requires equal numbers of operand_batching_dims and scatter_indices_batching_dims, got "
            f"{batching} and {of_indices}."
        )
        return
    theirs, own = (tuple(a.shape[d] for d in dims) for a, dims in ((x, batching), (indices, of_indices)))
    if theirs != own:
        yield (
            "Scatter op requires operand batching dimensions and indices batching dimensions to have the same shape, got "
            f"{theirs} and {own}."
        )


def _bounds(x: ArrayType, indices: ArrayType, updates: ArrayType, numbers: Any) -> Iterator[str]:
    """Windows no greater than the operand, and one update for each index."""
    without = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    extents = [e for d, e in enumerate(x.shape) if d not in without]
    for dim, extent in zip(numbers.update_window_dims, extents):
        if updates.shape[dim] > extent:
            yield (
                "Bounds of the window dimensions of updates must not exceed the bounds of the corresponding dimensions of "
                f"operand. For dimension {dim}, updates bound is {updates.shape[dim]}, operand bound is {extent}."
            )
    scattered = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
    for dim, extent in zip(scattered, indices.shape[:-1]):
        if updates.shape[dim] != extent:
            yield (
                "Bounds of the scatter dimensions of updates must be the same as the bounds of the corresponding dimensions "
                f"of scatter indices. For scatter dimension {dim}, updates bound is {updates.shape[dim]}, indices bound is "
                f"{extent}."
            )
