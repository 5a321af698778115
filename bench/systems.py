"""The systems under test, one adapter each: NumPy, JAX, torch eager, torch.compile, numba, numexpr and fuser.

`SYSTEMS[name].unavailable()` says in words why a system is missing here, `.refusal(workload, dtype)` why it sits one
workload out, and `.prepare(workload, inputs, dtype)` places the inputs and returns a `Prepared` call. Every system
gets all cores and its users' ordinary code; float32 matrix products stay float32 everywhere (no TF32).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.workload import Workload, numpy_dtype, outputs

Inputs = tuple[np.ndarray, ...]

# torch.compile at its best: tuned matrix products, and launches without Python in between
BEST_ON_CPU = {"options": {"max_autotune": True, "cpp_wrapper": True}}
BEST_ON_GPU = {"mode": "max-autotune"}
NO_BFLOAT16 = "NumPy promotes bfloat16 to float32 beside a Python number, and sums it in bfloat16"
NUMPY_ALONE = "the function assigns in place, or calls what only NumPy has"
WRITTEN_OUT = "its {} iterations would be written out one by one"
CACHES = ("FUSER_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
OURS = ("fuser", "accelerate")


@dataclass(frozen=True)
class Prepared:
    """`launch()` starts one run on placed inputs, `wait(result)` ends when it is complete, `fetch` brings it to NumPy."""

    launch: Callable[[], Any]
    wait: Callable[[Any], Any]
    fetch: Callable[[Any], tuple[np.ndarray, ...]]


class System:
    """One adapter. `queues` says that launches line up on a device, so one wait may end many of them."""

    name = ""
    summary = ""
    packages: tuple[str, ...] = ()
    device = "cpu"
    queues = False

    def unavailable(self) -> str | None:
        """None, or the reason that this system cannot run on this machine."""
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        return f"{', '.join(missing)} not installed" if missing else None

    def refusal(self, workload: Workload, dtype: str) -> str | None:
        """None, or the reason that this system does not run this workload."""
        return None

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        """Place the inputs; nothing is compiled before the first `launch`."""
        raise NotImplementedError


@contextlib.contextmanager
def fresh_caches() -> Iterator[None]:
    """Compilers' disk caches start empty and go away afterwards, so that every first call is a cold one."""
    with tempfile.TemporaryDirectory(prefix="bench-caches-") as folder:
        before = {name: os.environ.get(name) for name in CACHES}
        os.environ.update({name: os.path.join(folder, name) for name in CACHES})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _no_wait(result: Any) -> None:
    return None


def _to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(value) for value in outputs(result))


class NumPy(System):
    name, summary, packages = "numpy", "NumPy, one operation after the other", ("numpy",)

    def refusal(self, workload: Workload, dtype: str) -> str | None:
        return NO_BFLOAT16 if dtype == "bfloat16" else None

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        def launch() -> Any:
            with np.errstate(all="ignore"):
                return workload.array(np, *inputs)

        return Prepared(launch, _no_wait, _to_numpy)


class Jax(System):
    name, summary, packages = "jax", "jax.jit, XLA", ("jax", "jaxlib")

    def unavailable(self) -> str | None:
        reason = super().unavailable()
        if reason:
            return reason
        if self.device == "cpu":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where libtpu is installed jax looks for a TPU first
            return None
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.4")  # jax takes 75 % of the GPU's memory otherwise
        import jax

        try:
            return None if jax.devices("gpu") else "jax sees no GPU"
        except RuntimeError:
            return "jax is installed without GPU support"

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        import jax

        jax.config.update("jax_enable_x64", dtype == "float64")
        jax.config.update("jax_default_matmul_precision", "highest")
        placed = jax.device_put(inputs, jax.devices(self.device)[0])
        compiled = jax.jit(lambda *arrays: workload.run(jax, arrays))
        return Prepared(lambda: compiled(*placed), jax.block_until_ready, _to_numpy)


class JaxGpu(Jax):
    device, queues = "gpu", True


class Torch(System):
    name, summary, packages = "torch", "torch eager", ("torch",)
    options: dict[str, Any] | None = None  # for torch.compile; None: eager

    def refusal(self, workload: Workload, dtype: str) -> str | None:
        if workload.numpy_alone and workload.torch is None:
            return NUMPY_ALONE
        compiled = self.options is not None and workload.iterations > 0
        return WRITTEN_OUT.format(workload.iterations) if compiled else None

    def unavailable(self) -> str | None:
        reason = super().unavailable()
        if reason or self.device == "cpu":
            return reason
        import torch

        return None if torch.cuda.is_available() else "torch sees no GPU"

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        import torch

        torch.set_num_threads(cores())
        place = "cuda" if self.device == "gpu" else "cpu"
        placed = tuple(_tensor(array, dtype, place) for array in inputs)
        function = workload.torch or (lambda *tensors: workload.array(torch, *tensors))
        if self.options is not None:
            _forget_limits()
            function = torch.compile(function, dynamic=False, **self.options)
        wait = (lambda result: torch.cuda.synchronize()) if self.device == "gpu" else _no_wait
        return Prepared(lambda: function(*placed), wait, _tensors_to_numpy)


def _tensor(array: np.ndarray, dtype: str, place: str) -> Any:
    """A tensor of an input; labels become int64, the only kind that torch's losses take."""
    import torch

    if array.dtype.kind == "i":
        return torch.from_numpy(array.astype(np.int64)).to(place)
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(place)
    return torch.from_numpy(array).to(place)


def _tensors_to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    import torch

    def one(tensor: Any) -> np.ndarray:
        tensor = tensor.detach().cpu().contiguous()
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
        return tensor.numpy()

    return tuple(one(tensor) for tensor in outputs(result))


def _forget_limits() -> None:
    """One process compiles each function for many sizes, each on its own; torch would stop after eight."""
    import torch._dynamo

    for limit in ("recompile_limit", "accumulated_recompile_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 1 << 16)


class TorchGpu(Torch):
    device, queues = "gpu", True


class Inductor(Torch):
    name, summary, options = "inductor", "torch.compile, its defaults", {}


class InductorMax(Torch):
    name, summary = "inductor-max", "torch.compile with max_autotune and cpp_wrapper"
    options = BEST_ON_CPU


class InductorGpu(TorchGpu):
    name, summary, options = "inductor", "torch.compile, its defaults", {}


class InductorMaxGpu(TorchGpu):
    name, summary = "inductor-max", "torch.compile, mode max-autotune (with CUDA graphs)"
    options = BEST_ON_GPU

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        import torch

        prepared = super().prepare(workload, inputs, dtype)

        def launch() -> Any:
            torch.compiler.cudagraph_mark_step_begin()
            return prepared.launch()

        return Prepared(launch, prepared.wait, prepared.fetch)


class Numba(System):
    name, summary, packages = "numba", "numba.njit(parallel=True), loops by hand", ("numba",)

    def refusal(self, workload: Workload, dtype: str) -> str | None:
        if workload.numba is None:
            return "no loop version"
        return None if dtype == "float32" else "the loops are written for float32"

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        import numba

        assert workload.numba is not None
        numba.set_num_threads(min(cores(), numba.get_num_threads()))
        compiled = workload.numba()
        return Prepared(lambda: compiled(*inputs), _no_wait, lambda result: _typed(result, dtype))


def _typed(result: Any, dtype: str) -> tuple[np.ndarray, ...]:
    """numba returns scalars as Python numbers, which have no dtype of their own."""
    return tuple(np.asarray(value, dtype if isinstance(value, float) else None) for value in outputs(result))


class Numexpr(System):
    name, summary, packages = "numexpr", "numexpr.evaluate", ("numexpr",)

    def refusal(self, workload: Workload, dtype: str) -> str | None:
        if workload.numexpr is None:
            return "no expression form"
        return None if dtype in ("float32", "float64") else f"numexpr has no {dtype}"

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        os.environ.setdefault("NUMEXPR_MAX_THREADS", str(cores()))
        import numexpr

        assert workload.numexpr is not None
        numexpr.set_num_threads(min(cores(), numexpr.MAX_THREADS))
        kind = np.dtype(dtype).type
        call = workload.numexpr

        def evaluate(expression: str, **names: Any) -> np.ndarray:
            typed = {name: kind(value) if isinstance(value, float) else value for name, value in names.items()}
            return numexpr.evaluate(expression, local_dict=typed, global_dict={})

        return Prepared(lambda: call(evaluate, *inputs), _no_wait, _to_numpy)


class Fuser(System):
    name, summary, packages = "fuser", "fuser.jit", ("fuser",)

    def unavailable(self) -> str | None:
        reason = super().unavailable() or _import_reason("fuser.numpy")
        if reason is None and not hasattr(importlib.import_module("fuser"), "jit"):
            reason = "fuser has no jit"
        if reason or self.device == "cpu":
            return reason
        return TorchGpu().unavailable() or _import_reason("triton")

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        fuser, fnp = importlib.import_module("fuser"), importlib.import_module("fuser.numpy")
        self._configure(fuser, dtype)
        compiled = fuser.jit(lambda *arrays: workload.run(fuser, arrays))
        placed = tuple(self._placed(fuser, fnp.asarray(array)) for array in inputs)
        return Prepared(lambda: compiled(*placed), _wait_all, _to_numpy)

    def _placed(self, fuser: Any, array: Any) -> Any:
        """An input where the system's programs run."""
        return array

    def _configure(self, fuser: Any, dtype: str) -> None:
        config = importlib.import_module("fuser.config").config
        config.update("enable_x64", dtype == "float64")
        if not config.backend and self.device == "cpu":
            config.update("backend", "c")


class FuserGpu(Fuser):
    device, queues = "gpu", True

    def _placed(self, fuser: Any, array: Any) -> Any:
        return fuser.device_put(array, fuser.devices("cuda")[0])


class Accelerate(Fuser):
    """The other front door: the NumPy function as it stands, NumPy arrays in and out."""

    name, summary = "accelerate", "fuser.accelerate on the plain NumPy function"

    def unavailable(self) -> str | None:
        reason = super().unavailable()
        if reason is None and not hasattr(importlib.import_module("fuser"), "accelerate"):
            reason = "fuser has no accelerate"
        return reason

    def refusal(self, workload: Workload, dtype: str) -> str | None:
        if workload.random:
            return "it draws random numbers as it runs"
        if workload.numpy_alone:
            return NUMPY_ALONE
        if workload.iterations:
            return WRITTEN_OUT.format(workload.iterations)
        return NO_BFLOAT16 if dtype == "bfloat16" else None

    def prepare(self, workload: Workload, inputs: Inputs, dtype: str) -> Prepared:
        fuser = importlib.import_module("fuser")
        self._configure(fuser, dtype)
        compiled = fuser.accelerate(lambda *arrays: workload.array(np, *arrays))
        return Prepared(lambda: compiled(*inputs), _no_wait, _to_numpy)


def _import_reason(module: str) -> str | None:
    """None, or why a module does not import."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{module} does not import: {type(error).__name__}: {error}"
    return None


def _wait_all(result: Any) -> None:
    for value in outputs(result):
        value.block_until_ready()


CPU: dict[str, System] = {
    system.name: system
    for system in (Fuser(), Accelerate(), NumPy(), Jax(), Torch(), Inductor(), InductorMax(), Numba(), Numexpr())
}
GPU: dict[str, System] = {
    system.name: system for system in (FuserGpu(), JaxGpu(), TorchGpu(), InductorGpu(), InductorMaxGpu())
}
LEFT_OUT = ("inductor-max",)  # minutes of compilation; named in --systems it takes part


def select(names: list[str], gpu: bool = False) -> list[System]:
    """The named systems ("all" for every one), or the usual ones. Raises ValueError for an unknown name."""
    table = GPU if gpu else CPU
    if names == ["all"]:
        return list(table.values())
    for name in names:
        if name not in table:
            raise ValueError(f"no system {name!r}; the systems are {', '.join(table)}")
    return [table[name] for name in names or table if names or name not in LEFT_OUT]
