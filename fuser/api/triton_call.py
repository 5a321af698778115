"""`triton_call`: a kernel of your own, decorated with `triton.jit`, as a function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.api.shapes import declared_type
from fuser.lax.values import VALUES, as_value
from fuser.ops.triton_call import Kernel, triton_call_p
from fuser.trace import tree
from fuser.trace.core import type_of

Grid = int | tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]]


def triton_call(
    kernel: Any,
    *args: Any,
    grid: Grid,
    out_shape: Any,
    input_output_aliases: dict[int, int] | None = None,
    zeroed_outputs: Sequence[int] = (),
    **meta: Any,
) -> Any:
    """Launch a kernel on `args` and on memory for its results, which it takes as its last pointers; a tree like `out_shape`.

    Arrays among `args` become pointers; Python's numbers stay what they are. `out_shape` has leaves with `shape` and `dtype`.
    `grid` is what stands in `kernel[grid]`: a number of programs, up to three, or a function of the meta parameters. `meta`
    are the kernel's other arguments (constexprs) and options of the compiler (num_warps, num_stages). Autotuners and heuristics
    around the kernel keep their say: on a GPU Triton measures, its interpreter takes the first configuration.
    `input_output_aliases` {array: result}: the kernel gets the result's memory, with the array's elements in it.
    `zeroed_outputs`: the results that are zero before. No derivative; under vmap one launch an element. UnsupportedError when it
    runs without a GPU and without TRITON_INTERPRET=1. TypeError for what is no kernel.
    """
    if not hasattr(kernel, "__getitem__") or not hasattr(kernel, "fn"):
        raise TypeError(f"triton_call takes a function decorated with triton.jit, got a {type(kernel).__name__}")
    arguments: list[tuple[Any] | None] = []
    operands = []
    for arg in args:
        is_array = isinstance(arg, VALUES) or (hasattr(arg, "shape") and hasattr(arg, "dtype") and arg.shape != ())
        arguments.append(None if is_array else (arg,))
        operands += [as_value(arg, "triton_call")] if is_array else []
    declared, structure = tree.flatten(tree.map(declared_type, out_shape))
    aliases = tuple(sorted((input_output_aliases or {}).items()))
    for n, result in aliases:
        if not (0 <= n < len(operands) and 0 <= result < len(declared)):
            raise ValueError(
                f"input_output_aliases {{{n}: {result}}}: there are {len(operands)} arrays and {len(declared)} results"
            )
        found = type_of(operands[n])
        if (found.shape, found.dtype) != (declared[result].shape, declared[result].dtype):
            raise ValueError(f"input_output_aliases {{{n}: {result}}}: {found} is not {declared[result]}")
    launched = (grid,) if isinstance(grid, int) else grid
    called = Kernel(kernel, launched, tuple(arguments), tuple(meta.items()), tuple(zeroed_outputs))
    results = triton_call_p.bind(*operands, kernel=called, result_avals=tuple(declared), input_output_aliases=aliases)
    return tree.unflatten(structure, results)
