"""The TPU backend: what its kernels take, their text, and whole programs through jax.jit.

XLA compiles a program with its kernels inside as one, so everything is text until then, control flow and library steps
too. Results stay on the TPU as jax.Arrays, which later calls take as they are; NumPy fetches them where it asks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import HOST_LIBRARIES, HostMemory, KernelSource, Loaded, unsupported
from fuser.backends.link import as_one
from fuser.backends.tpu.arrays import refusal
from fuser.backends.tpu.host_calls import Failures, functions, keys_of, words_of
from fuser.backends.tpu.program import compiled, emitted, program
from fuser.backends.tpu.target import TARGET
from fuser.backends.tpu.tiling import Refused
from fuser.config import config
from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Var
from fuser.ir.primitive import Fusion, Movement
from fuser.ir.types import BOOL, KEY, bfloat16, short_dtype
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.philox import rng_bit_generator_p
from fuser.ops.reduce_window import reduce_window_max_p, reduce_window_min_p, reduce_window_sum_p
from fuser.partition.group import FusionGroup, FusionLimits, Plan, Refusal
from fuser.runtime.array import to_numpy
from fuser.runtime.executable import Executable

VMEM = 32 << 20  # bytes for the blocks of one kernel, of the 64 to 128 MiB that a core has
IN_KERNELS = (BOOL, bfloat16, *map(np.dtype, ("float32", "int32", "uint32")))
BOOL_REDUCTIONS = ("and", "or", "max", "min")
REDUCTIONS = ("sum", "max", "min", "argmax", "argmin")
WIDE = frozenset([rng_bit_generator_p])  # made of integers of 64 bits, which a TPU lacks: refused by name
NATIVES = frozenset(
    [conv_general_dilated_p, reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p]
)  # XLA's own
INSTALL = "pip install 'fuser[tpu]' installs jax and libtpu"


class TPUMemory(HostMemory):
    """Results stay on the TPU as jax.Arrays; what comes from elsewhere is copied there by the program's call."""

    platform = "tpu"

    @staticmethod
    def constant(value: Any) -> Any:
        value = to_numpy(value)
        return value if value.dtype == KEY else _apart(value)

    @staticmethod
    def place(value: Any) -> Any:
        import jax

        return value if isinstance(value, jax.Array) else HostMemory.place(value)


class TPU:
    """Pallas on the TPU."""

    name = "tpu"
    memory = TPUMemory()
    asked = NOTHING_ASKED
    limits = FusionLimits(
        control=True,
        dots=True,
        whole=True,
        vmem=VMEM,
        max_ops=300,
        natives=NATIVES | WIDE | HOST_LIBRARIES,
        target=TARGET,
    )

    def supports(self, eqn: Eqn) -> str | None:
        for var in (*eqn.invars, *eqn.outvars):
            reason = refusal(var.aval)
            if reason is not None:
                return reason
        if eqn.primitive.fusion is Fusion.DOT:
            return None
        return unsupported(eqn, "is XLA's") or _outside(eqn)

    def emit(self, group: FusionGroup) -> KernelSource | Refusal:
        try:
            found = emitted(group, self.limits.vmem)
        except Refused as refusal:
            return Refusal(f"XLA compiles it: {refusal}")
        launch = {"grid": found.grid, "vmem": found.vmem, "bytes": found.moved}
        params = tuple(f"in{n}" for n in range(len(group.graph.invars)))
        schedules = {group.name: Schedule(grid=found.grid)} if found.pallas else {}
        return KernelSource(
            group.name, found, "pallas" if found.pallas else "jax", params, launch, found.note, schedules
        )

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        """Nothing is compiled here: XLA compiles the whole program at its first call."""
        require_jax()
        return Loaded(tuple(_nothing for _ in sources))

    def link(self, plan: Plan, sources: Sequence[KernelSource], loaded: Loaded) -> Executable:
        return as_one(plan, _compiled(plan), self.memory)


def _compiled(plan: Plan) -> Callable[..., list[Any]]:
    """The program as one function of its inputs and constants, which XLA compiles at its first call."""
    import jax

    interpret = _interprets()
    whole, failures = program(plan), Failures()
    hosted = functions(whole.host_calls, failures)
    of_jax = jax.jit(compiled(whole.text, interpret, hosted=hosted))
    function = _awaited(of_jax, failures) if hosted else of_jax
    results = [v.aval for v in plan.outputs]
    keys = [v.aval.dtype == KEY for v in (*plan.graph.invars, *plan.graph.constvars)]
    # On the CPU JAX reads ndarrays where they lie, and so a result that is an argument would change with it.
    moved = _apart if interpret else _itself

    def run(*arrays: Any) -> list[Any]:
        given = [words_of(a) if key else moved(a) for a, key in zip(arrays, keys)]
        return [keys_of(r, t.shape) if t.dtype == KEY else r for r, t in zip(function(*given), results)]

    return run


def _outside(eqn: Eqn) -> str | None:
    """Why an equation that has a form in kernels is left to XLA on a TPU, or None."""
    fusion, movement = eqn.primitive.fusion, eqn.primitive.movement
    for var in (*eqn.invars, *eqn.outvars):
        if var.aval.dtype not in (*IN_KERNELS, KEY):
            return f"Mosaic computes in 32 bits, and {short_dtype(var.aval.dtype)} is XLA's"
    first_start = {Movement.SLICE: 1, Movement.UPDATE: 2}.get(movement) if movement else None
    if first_start is not None and any(isinstance(v, Var) for v in eqn.invars[first_start:]):
        return "a TPU's registers are not read at computed indices"
    if movement is Movement.GATHER and not _one_of_a_row(eqn):
        return "a TPU's registers gather no single elements"
    if fusion is Fusion.REDUCE:
        reduction, _ = eqn.primitive.rule("lower")(**eqn.params)
        wide = eqn.invars[0].aval.dtype
        if reduction not in (REDUCTIONS if wide != BOOL else BOOL_REDUCTIONS):
            return f"Mosaic has no reduction by {reduction}"
    if fusion is Fusion.SCAN and eqn.outvars[0].aval.dtype.kind in "bu":
        return f"Mosaic does not shift lanes of {short_dtype(eqn.outvars[0].aval.dtype)}"
    return None


def _one_of_a_row(eqn: Eqn) -> bool:
    """Whether a gather takes one element of each row, which can be searched for: the last dimension is indexed alone."""
    numbers, last = eqn.params["dimension_numbers"], eqn.invars[0].aval.ndim - 1
    each = tuple(numbers.operand_batching_dims) == tuple(range(last)) and tuple(numbers.start_index_map) == (last,)
    return each and last > 0 and set(eqn.params["slice_sizes"]) == {1}


def require_jax() -> None:
    """UnsupportedError, with what to do, where JAX is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise UnsupportedError(f"the tpu backend needs jax, which is not installed; {INSTALL}")


def _interprets() -> bool:
    """Whether kernels run in Pallas' interpreter; UnsupportedError where there is no TPU either."""
    import jax

    if config.tpu_interpret:
        return True
    if jax.default_backend() != "tpu":
        raise UnsupportedError(
            f"the tpu backend needs a TPU, and JAX sees none ({jax.default_backend()}); set FUSER_BACKEND=c, "
            "or FUSER_TPU_INTERPRET=1 to run kernels slowly in Pallas' interpreter"
        )
    return False


def _apart(value: Any) -> Any:
    """An ndarray as a jax.Array in memory of its own; what is one already, as it is."""
    import jax

    return jax.device_put(value, may_alias=False) if isinstance(value, np.ndarray) else value


def _itself(value: Any) -> Any:
    return value


def _awaited(function: Callable[..., Any], failures: Failures) -> Callable[..., Any]:
    """The program, which has ended when its call returns; what its functions on the host raise is raised as it was."""
    import jax

    def run(*arrays: Any) -> Any:
        try:
            return jax.block_until_ready(function(*arrays))
        except Exception as error:
            raise failures.raised(error) from None

    return run


def _nothing(arrays: list[Any]) -> None:
    raise UnsupportedError("the tpu backend's kernels run inside a whole program")
