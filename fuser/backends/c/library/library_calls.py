"""Sorts, top_k, scatters, systems, factorisations, Fourier transforms, incomplete functions: groups that call functions of the C files of runtime/kernels.

In: a LIBRARY group. Out: a function `name(buffers, sizes)` that hands the group's memory on; what the calls need beside
it is one buffer more, of `workspace` bytes. Extents, strides and choices are size arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.c.builder import Builder
from fuser.backends.c.function import FUNCTION, Function, Module, Own, joined
from fuser.backends.c.library import fourier, lapack
from fuser.config import config
from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.primitive import Primitive
from fuser.ir.types import FLOATS, bfloat16, is_complex
from fuser.legalise.library_operands import uniform
from fuser.ops.ffi import call_sizes, ffi_call_p, ffi_effect_p
from fuser.ops.fft import fft_p
from fuser.ops.incomplete import (
    igamma_grad_a_p,
    igamma_p,
    igammac_p,
    random_gamma_grad_p,
    regularized_incomplete_beta_p,
)
from fuser.ops.indexing import GatherScatterMode, as_gather, layout_of
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p, window_sizes
from fuser.ops.sorting import sort_p, top_k_p
from fuser.ops.triangular import triangular_solve_p
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup
from fuser.runtime.device import cpu_count

MOST_THREADS = 16
MANY = 1 << 16  # keys of a row from which sort.c takes all threads for one row
COUNTERS = 16 * 2048 * 8 + 8  # bytes that it then counts digits in
SORTED_BY_INDEX = 1 << 31  # positions fit 32 bits below
SEQUENTIAL = 1 << 14  # updates that one thread reductions in
PARTS = 8  # results of their own where a scatter has few elements
PART_BYTES = 1 << 18  # of such a result, at most
SIDE_BYTES = 256  # of the right sides that triangular_solve.c solves for together
IN_TURN, BY_RANGE, IN_PARTS, DISTINCT = range(4)


def call_blocker(group: FusionGroup) -> str | None:
    """None, or why the group is evaluated by NumPy."""
    eqn = group.graph.eqns[-1]
    primitive = eqn.primitive
    if primitive not in _FORMS:
        return f"{primitive} runs in NumPy"
    if primitive is fft_p and (reason := fourier.fft_blocker(eqn)) is not None:
        return reason
    if primitive is sort_p and any(is_complex(v.aval.dtype) for v in eqn.invars[: eqn.params["num_keys"]]):
        return "complex numbers are sorted in NumPy"
    if primitive is sort_p and eqn.invars[0].aval.shape[eqn.params["dimension"]] >= SORTED_BY_INDEX:
        return "rows of 2**31 elements are sorted in NumPy"
    if (primitive is triangular_solve_p or primitive in lapack.FORMS) and any(0 in v.aval.shape for v in eqn.invars):
        return "it has no elements"
    views = Views(group.graph.eqns)
    if any(views(v).source is None for v in _read(eqn)) or any(
        views(v).source is not None and not views(v).dense for v in eqn.invars
    ):
        return f"an operand of {primitive} must be laid out anew"
    return None


def _read(eqn: Eqn) -> tuple[Operand, ...]:
    """The operands that must lie in memory."""
    if eqn.primitive is sort_p:
        return eqn.invars[: eqn.params["num_keys"]]
    return eqn.invars[1:2] if eqn.primitive in _REDUCTIONS else eqn.invars


def emit_call(group: FusionGroup) -> KernelSource:
    """The function `name(buffers, sizes)` of a group that `call_blocker` lets pass."""
    calls = Calls(group)
    _FORMS[calls.eqn.primitive](calls)
    comments = tuple(dict.fromkeys(str(s) for s in group.sources if s.file))
    function = Function(Own(), tuple(calls.builder.statements), comments=comments)
    names = tuple(f"in{n}" for n in range(len(calls.inputs))) + tuple(f"out{n}" for n in range(len(calls.outputs)))
    launch = {"sizes": tuple(calls.sizes), "functions": tuple(calls.functions), "workspace": calls.workspace}
    return KernelSource(group.name, Module(group.name, (function,)), "c", names, launch)


class Calls:
    """The calls of one group: their text, size arguments, and the functions whose addresses stand among those."""

    def __init__(self, group: FusionGroup) -> None:
        self.eqn: Eqn = group.graph.eqns[-1]
        self.views = Views(group.graph.eqns)
        self.inputs = {v: n for n, v in enumerate(group.graph.invars)}
        results = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        self.outputs = {v: n for n, v in enumerate(results)}
        self.builder = Builder()
        self.sizes: list[int] = []
        self.functions: list[tuple[int, Any]] = []
        self.workspace = 0
        self.threads = min(MOST_THREADS, config.threads or cpu_count())

    def operand(self, operand: Operand) -> str:
        """The address of an operand; 0 if it is no array in memory."""
        source = self.views(operand).source
        return "0" if source is None else f"buffers[{self.inputs[source]}]"

    def result(self, number: int) -> str:
        """The address of a result; 0 if nobody wants it."""
        place = self.outputs.get(self.eqn.outvars[number])
        return "0" if place is None else f"buffers[{len(self.inputs) + place}]"

    def room(self, size: int) -> str:
        """The address of so many bytes more."""
        place, self.workspace = self.workspace, self.workspace + -(-size // 64) * 64
        self.sizes.append(place)
        return f"(char *)buffers[{len(self.inputs) + len(self.outputs)}] + sizes[{len(self.sizes) - 1}]"

    def call(self, function: tuple[Any, ...], pointers: Sequence[str], sizes: Sequence[int | tuple[Any, ...]]) -> None:
        """Write a call; `function` is what `on_demand.address` takes, and so are those among the sizes."""
        first = len(self.sizes)
        found = [(first + n, size) for n, size in enumerate((function, *sizes)) if isinstance(size, tuple)]
        self.functions += found
        self.sizes += [0 if isinstance(size, tuple) else int(size) for size in (function, *sizes)]
        form = f"(({{}})sizes[{first}])((void *[]){{{{{{}}}}}}, sizes + {first + 1});"
        self.builder.do(form, FUNCTION, joined(pointers, ", "))


# Sorting.


def _spans(shape: Sequence[int], dimension: int) -> tuple[int, int, int]:
    """InnerReduction before a dimension, its extent, and the elements after it."""
    return math.prod(shape[:dimension]), shape[dimension], math.prod(shape[dimension + 1 :])


def _sort(calls: Calls) -> None:
    eqn = calls.eqn
    keys, dimension = eqn.params["num_keys"], eqn.params["dimension"]
    operands = eqn.invars
    carried = operands[1].aval.dtype.itemsize if len(operands) == 2 else 0
    if len(operands) == 1 or (keys == 1 and carried in (4, 8)):
        payload = carried if len(operands) == 2 and calls.result(1) != "0" else 0
        pointers = [calls.operand(operands[0]), calls.operand(operands[1]) if payload else "0", calls.result(0)]
        _sort_call(calls, operands[0], dimension, payload, [*pointers, calls.result(1) if payload else "0"], False)
        return
    aval = operands[0].aval
    positions = calls.room(4 * aval.size)
    for number, key in enumerate(reversed(operands[:keys])):
        before = positions if number else "0"
        _sort_call(calls, key, dimension, 4, [calls.operand(key), before, "0", positions], number > 0)
    for number, operand in enumerate(operands):
        if calls.result(number) == "0":
            continue
        sizes = (*_spans(aval.shape, dimension), calls.threads)
        pointers = [calls.operand(operand), positions, calls.result(number)]
        calls.call(("permute", operand.aval.dtype.itemsize), pointers, sizes)


def _sort_call(calls: Calls, key: Operand, dimension: int, payload: int, pointers: list[str], through: bool) -> None:
    outer, n, inner = _spans(key.aval.shape, dimension)
    itemsize = key.aval.dtype.itemsize
    rows = 1 if n > MANY or outer * inner == 1 else calls.threads
    room = 2 * n * rows * _item(itemsize, payload) + (COUNTERS if n > MANY else 0)
    pointers.append(calls.room(room))
    calls.call(("sort", key.aval.dtype, payload), pointers, (outer, n, inner, calls.threads, through))


def _item(key: int, payload: int) -> int:
    """Bytes of a key and its payload side by side, as C lays them out."""
    wide = max(key, payload)
    return 2 * wide if payload else key


def _top_k(calls: Calls) -> None:
    eqn = calls.eqn
    [operand] = eqn.invars
    shape, k = operand.aval.shape, eqn.params["k"]
    axis = eqn.params.get("axis")
    outer, n, inner = _spans(shape, len(shape) - 1 if axis is None else axis)
    room = min(max(4 * k, 2048), n) + 256
    scratch = calls.threads * 2 * room * _item(operand.aval.dtype.itemsize, 4)
    pointers = [calls.operand(operand), calls.result(0), calls.result(1), calls.room(scratch)]
    calls.call(("top_k", operand.aval.dtype), pointers, (outer, n, inner, calls.threads, k, room))


# Scatters.

_REDUCTIONS = {
    scatter_add_p: "add",
    scatter_mul_p: "mul",
    scatter_min_p: "min",
    scatter_max_p: "max",
    scatter_p: "set",
}


def _scatter(calls: Calls) -> None:
    eqn = calls.eqn
    operand, indices, updates = eqn.invars
    reduction = _REDUCTIONS[eqn.primitive]
    mode = GatherScatterMode.from_any(eqn.params["mode"])
    steps, walks, windows = _walks(eqn)
    count = math.prod(indices.aval.shape[:-1]) if updates.aval.size else 0
    itemsize = _wide(operand.aval.dtype, reduction)
    how = _how(eqn, reduction, itemsize)
    elements = operand.aval.size
    wider = itemsize if itemsize != operand.aval.dtype.itemsize else 0
    room = -(-elements // 16) * 16 * wider + (PARTS * elements * itemsize if how == IN_PARTS else 0)
    pointers = [calls.operand(operand), calls.operand(indices), calls.operand(updates), calls.result(0)]
    pointers.append(calls.room(room) if room else "0")
    sizes = [count, elements, mode is GatherScatterMode.CLIP, calls.threads, how, PARTS]
    sizes += [len(steps), len(walks), len(windows) - 1]
    sizes += [*_words(operand, calls.views), *_words(updates, calls.views), _index_type(indices.aval.dtype)]
    for part in (*steps, *walks, *windows):
        sizes += part
    dtype = operand.aval.dtype
    if reduction == "set" and itemsize < 16:  # one function for all of a width
        dtype = np.dtype(f"uint{8 * itemsize}")
    calls.call(("scatter", dtype, reduction), pointers, sizes)


def _index_type(dtype: np.dtype) -> int:
    """The number by which scatter.c knows a type of indices: its bytes, and 16 more without a sign."""
    return dtype.itemsize + (16 if dtype.kind in "bu" else 0)


def _wide(dtype: np.dtype, reduction: str) -> int:
    """Bytes of the type that a reduction computes in: half precision is widened."""
    return 4 if reduction != "set" and dtype in (FLOATS[0], bfloat16) else dtype.itemsize


def _how(eqn: Eqn, reduction: str, itemsize: int) -> int:
    """How the updates are shared out. Nothing here may depend on the number of threads, for parts round differently."""
    operand, _, updates = (v.aval for v in eqn.invars)
    numbers = eqn.params["dimension_numbers"]
    sizes = window_sizes(operand, updates, numbers)
    if updates.size < SEQUENTIAL:
        return IN_TURN
    if eqn.params["unique_indices"]:
        return DISTINCT
    if any(sizes[d] != 1 for d in numbers.scatter_dims_to_operand_dims):
        return IN_TURN  # windows that overlap in part
    few = operand.size * itemsize <= PART_BYTES and updates.size >= 32 * operand.size
    return IN_PARTS if few and reduction != "set" and math.prod(sizes) == 1 else BY_RANGE


def _walks(eqn: Eqn) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Components of starts (step, greatest start, wrap), and the dimensions of updates outside and inside windows (extent,
    step in the updates, step in the operand), neighbours joined where they can be."""
    operand, indices, updates = (v.aval for v in eqn.invars)
    numbers = as_gather(eqn.params["dimension_numbers"])
    layout = layout_of(numbers, operand.ndim, updates.ndim)
    sizes = window_sizes(operand, updates, eqn.params["dimension_numbers"])
    steps, lies = _strides(operand.shape), _strides(updates.shape)
    wraps = eqn.params.get("wraps") or (0,) * len(numbers.start_index_map)
    components: list[tuple[int, ...]] = [
        (steps[d], operand.shape[d] - sizes[d], wrap) for d, wrap in zip(numbers.start_index_map, wraps)
    ]
    batching = {b: steps[d] for d, b in enumerate(layout.batching) if b is not None}
    walks = [(indices.shape[j], lies[d], batching.get(j, 0)) for j, d in enumerate(layout.batch)]
    windows = [(updates.shape[w], lies[w], steps[d]) for d, w in enumerate(layout.window) if w is not None]
    return components, _joined(walks), _joined(windows)


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _joined(dimensions: list[tuple[int, int, int]]) -> list[tuple[int, ...]]:
    result: list[tuple[int, int, int]] = []
    for dimension in dimensions:
        if dimension[0] == 1:
            continue
        if result and all(outer == inner * dimension[0] for outer, inner in zip(result[-1][1:], dimension[1:])):
            dimension = (result.pop()[0] * dimension[0], *dimension[1:])
        result.append(dimension)
    return [*result] or [(1, 1, 1)]


def _words(operand: Operand, views: Views) -> tuple[int, ...]:
    """The bytes of an operand's one value as two size arguments."""
    value = uniform(operand, views)
    data = b"" if value is None else value.tobytes()
    return tuple(int(word) for word in np.frombuffer(data.ljust(16, b"\0"), np.int64))


# Triangular systems.


def _triangular_solve(calls: Calls) -> None:
    """Every case as a lower triangle on the left: transposed by strides, and an upper one from its end."""
    eqn = calls.eqn
    matrix, right = (v.aval for v in eqn.invars)
    if is_complex(matrix.dtype) or lapack.small_systems(matrix, right):
        return lapack.trsm(calls)
    n = matrix.shape[-1]
    left, upper = eqn.params["left_side"], not eqn.params["lower"]
    row, column = n, 1
    if eqn.params["transpose_a"] == left:
        row, column, upper = column, row, not upper
    height, width = right.shape[-2:]
    down, across, sides = (width, 1, width) if left else (1, width, height)
    of_matrix = ((row + column) * (n - 1), n * n, -row, -column) if upper else (0, n * n, row, column)
    first = down * (n - 1) if upper else 0
    of_right = (first, height * width, -down if upper else down, across)
    systems = math.prod(matrix.shape[:-2])
    pointers = [calls.operand(eqn.invars[0]), calls.operand(eqn.invars[1]), calls.result(0)]
    pointers.append(calls.room(calls.threads * n * SIDE_BYTES))
    sizes = [systems, n, sides, *of_matrix, *of_right, eqn.params["unit_diagonal"], calls.threads]
    calls.call(("substitute", matrix.dtype), pointers, sizes)


# Incomplete gamma and beta functions.

# In the order of the functions of incomplete.c.
_INCOMPLETE = (igamma_p, igammac_p, igamma_grad_a_p, random_gamma_grad_p, regularized_incomplete_beta_p)


def _incomplete(calls: Calls) -> None:
    """One operand may be a scalar beside arrays: it is read again for each element."""
    eqn = calls.eqn
    out = eqn.outvars[0].aval
    pointers = [*map(calls.operand, eqn.invars), calls.result(0)]
    sizes = [_INCOMPLETE.index(eqn.primitive), out.size, calls.threads, *(int(v.aval.ndim > 0) for v in eqn.invars)]
    calls.call(("incomplete", out.dtype), pointers, sizes)


# Foreign functions.


def _foreign(calls: Calls) -> None:
    """The operands and the results without the token of an effect; runtime/core/ffi.c reads the sizes."""
    eqn, p = calls.eqn, calls.eqn.params
    operands = eqn.invars[:-1] if p.get("threaded") else eqn.invars
    results = p["result_avals"]
    pointers = [calls.operand(v) for v in operands]
    for number, aval in enumerate(results):
        wanted = calls.result(number)
        pointers.append(calls.room(aval.nbytes) if wanted == "0" else wanted)
    attributes = p["attributes"]
    sizes: list[int | tuple[Any, ...]] = [
        ("foreign", "target", p["target_name"]),
        ("foreign", "attributes", attributes),
    ]
    sizes += [len(attributes), len(operands), len(results), ("foreign", "name", p["target_name"])]
    sizes += call_sizes([v.aval for v in operands], results, p["input_output_aliases"])
    calls.call(("foreign", "run", None), pointers, sizes)


_FORMS: dict[Primitive, Callable[[Calls], None]] = {
    sort_p: _sort,
    top_k_p: _top_k,
    triangular_solve_p: _triangular_solve,
    **dict.fromkeys(_REDUCTIONS, _scatter),
    **lapack.FORMS,
    **dict.fromkeys(_INCOMPLETE, _incomplete),
    fft_p: fourier.transform,
    ffi_call_p: _foreign,
    ffi_effect_p: _foreign,
}
CALLS = frozenset(_FORMS)
IN_PLACE = frozenset(_REDUCTIONS)  # whose functions copy their first operand, unless it is the result
OPTIONAL_RESULTS = frozenset({sort_p, top_k_p, *lapack.FORMS})  # whose functions take 0 for the address of a result
