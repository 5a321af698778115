"""What this machine can reach: copy bandwidth and float32 arithmetic, the two lines of a roofline.

In: nothing. Out: bytes per second and FLOP per second, measured in about half a second with a small C program (with
NumPy where there is no compiler) and kept in the disk cache for a day per machine.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable

import numpy as np

from fuser.errors import ToolchainError
from fuser.runtime import memory, toolchain
from fuser.runtime.cache import default_cache
from fuser.runtime.device import CPU, Device, cpu_count, cpu_name, last_level_cache

_DAY = 86400.0  # seconds
_BUDGET = 0.3  # seconds that one measurement repeats for
_LARGEST_COPY = 128 << 20  # bytes of each of the two arrays

# Both loops use every processor that OpenMP was given. The chains of `arithmetic` are independent, so that latency does not bound them.
_SOURCE = """
#include <stdint.h>
#define CHAINS 256
#ifdef __FP_FAST_FMAF
#define MULTIPLY_ADD __builtin_fmaf
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif
void copy(const float *source, float *target, int64_t count) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < count; i++) target[i] = source[i];
}
void arithmetic(float *out, int64_t rounds, int threads) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < threads; t++) {
    float chains[CHAINS];
    for (int k = 0; k < CHAINS; k++) chains[k] = out[k];
    for (int64_t r = 0; r < rounds; r++)
#pragma omp simd
      for (int k = 0; k < CHAINS; k++) chains[k] = MULTIPLY_ADD(chains[k], 0.999f, 0.001f);
    float sum = 0;
    for (int k = 0; k < CHAINS; k++) sum += chains[k];
    out[CHAINS + t] = sum;
  }
}
"""
_CHAINS = 256


def copy_bandwidth(device: Device = CPU) -> float:
    """Bytes read plus bytes written per second by a copy between arrays that no cache holds."""
    if device.platform == "cuda":
        return _remembered(f"copy bandwidth {device.kind} {device.id}", lambda: _cuda_copy(device))
    return _remembered("copy bandwidth", _cpu_copy)


def peak_flops(device: Device = CPU) -> float:
    """float32 operations per second of independent multiply-adds, each counted as two."""
    if device.platform == "cuda":
        return _remembered(f"peak flops {device.kind} {device.id}", lambda: _cuda_flops(device))
    return _remembered("peak flops", _cpu_flops)


def _remembered(what: str, measure: Callable[[], float]) -> float:
    """The figure of the last day on this machine, or a new one."""
    key = f"{what}; {platform.node()}; {cpu_name()}; {cpu_count()}; {_SOURCE}"
    known = default_cache().get_json(key)
    if isinstance(known, list) and len(known) == 2 and 0 <= time.time() - known[1] < _DAY:
        return float(known[0])
    value = measure()
    default_cache().remove(key)
    default_cache().put_json(key, [value, time.time()])
    return value


def _cpu_copy() -> float:
    size = min(2 * last_level_cache(), _LARGEST_COPY, memory.available_memory() // 8)
    dtype = np.dtype(np.float32)
    source, target = (memory.empty((size // 4,), dtype) for _ in range(2))
    source.fill(1)
    target.fill(0)
    library = _library()
    if library is None:
        return 2 * source.nbytes / _best(lambda: np.copyto(target, source))
    arguments = (_pointer(source), _pointer(target), ctypes.c_int64(source.size))
    return 2 * source.nbytes / _best(lambda: library.copy(*arguments))


def _cpu_flops() -> float:
    library = _library()
    if library is None:
        a = np.ones((512, 512), np.float32)
        return 2 * 512**3 / _best(lambda: a @ a)
    threads, rounds = cpu_count(), 400_000  # about a millisecond: far above the cost of starting the threads
    out = np.ones(_CHAINS + threads, np.float32)
    arguments = (_pointer(out), ctypes.c_int64(rounds), ctypes.c_int(threads))
    return 2 * _CHAINS * rounds * threads / _best(lambda: library.arithmetic(*arguments))


def _cuda_copy(device: Device) -> float:
    import torch

    source = torch.ones(64 << 20, dtype=torch.float32, device=f"cuda:{device.id}")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best_cuda(lambda: target.copy_(source))


def _cuda_flops(device: Device) -> float:
    """Of a large float32 matrix product, the arithmetic that reaches closest to the data sheet's figure."""
    import torch

    a = torch.ones(4096, 4096, dtype=torch.float32, device=f"cuda:{device.id}")
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return 2 * 4096**3 / _best_cuda(lambda: a @ a)
    finally:
        torch.set_float32_matmul_precision(precision)


def _library() -> ctypes.CDLL | None:
    try:
        return toolchain.load_shared(toolchain.compile_shared(_SOURCE).path)
    except ToolchainError:
        return None


def _pointer(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest run within the budget: other processes only ever add time."""
    run()
    deadline = time.perf_counter() + _BUDGET
    best = float("inf")
    while True:
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > deadline:
            return best


def _best_cuda(run: Callable[[], object]) -> float:
    from fuser.runtime.profiler import measure_cuda

    return measure_cuda(run, repeats=20, warmup=5).minimum
