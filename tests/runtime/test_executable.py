"""Executables: values, lifetimes, donation, profiling, threads and broken plans."""

import ctypes
import gc
import itertools
import threading
import time

import numpy as np
import pytest

from fuser.runtime import memory, toolchain
from fuser.runtime.executable import (
    Allocation,
    CFunction,
    Executable,
    KernelStep,
    LibraryStep,
    _pointer_of,
    data_pointer,
)

F32 = np.dtype(np.float32)
SIZE = 1 << 18  # elements, so that arrays come from the pool
SOURCE = """
#include <stdint.h>
void axpy(void **buffers, const int64_t *sizes) {
  const float *x = buffers[0], *y = buffers[1];
  float *out = buffers[2];
  for (int64_t i = 0; i < sizes[0]; i++) out[i] = sizes[1] * x[i] + y[i];
}
"""


def double(arrays):
    np.multiply(arrays[0], 2, out=arrays[1])


def kernel(function, arguments, slot, reuse=None, size=SIZE):
    return KernelStep(f"k{slot}", function, arguments, (Allocation(slot, (size,), F32, reuse),))


@pytest.fixture(scope="module")
def axpy():
    library = toolchain.load_shared(toolchain.compile_shared(SOURCE).path)
    return CFunction(library.axpy, (SIZE, 3), keep=library)


def ones():
    return np.ones(SIZE, np.float32)


def test_c_functions_get_buffers_and_sizes(axpy):
    x, y = np.arange(SIZE, dtype=np.float32), ones()
    (out,) = Executable((0, 1), {}, [kernel(axpy, (0, 1), 2)], (2,)).call(x, y)
    np.testing.assert_array_equal(out, 3 * x + 1)
    assert axpy.sizes == (SIZE, 3)


def test_pointers_are_read_right_out_of_any_array():
    base = np.arange(24.0).reshape(4, 6)
    for array in (base, base[2:, 1:], base.T, np.zeros(()), memory.empty((SIZE,), F32), np.zeros((0, 3))):
        assert data_pointer(array) == _pointer_of(array)


def test_library_steps_constants_and_several_outputs():
    steps = [
        LibraryStep("divmod", np.divmod, (0, 1), (2, 3)),
        LibraryStep("add", np.add, (3, 5), (4,)),
        KernelStep("two", lambda a: (np.copyto(a[1], a[0]), np.negative(a[0], out=a[2])), (4,),
                   (Allocation(6, (3,), F32), Allocation(7, (3,), F32))),
    ]  # fmt: skip
    executable = Executable((0, 1), {5: np.float32(10)}, steps, (2, 6, 7, 0, 5))
    x, y = np.array([7, 8, 9], np.float32), np.array([2, 3, 4], np.float32)
    quotient, positive, negative, same, const = executable(x, y)
    np.testing.assert_array_equal(quotient, x // y)
    np.testing.assert_array_equal(positive, x % y + 10)
    np.testing.assert_array_equal(negative, -positive)
    assert same is x and const == 10


def test_temporaries_are_dropped_after_their_last_use():
    chain = [kernel(double, (slot,), slot + 1) for slot in range(6)]
    executable = Executable((0,), {}, chain, (6,))
    assert executable.drops() == [(), (1,), (2,), (3,), (4,), (5,)]
    assert executable.planned_peak() == 2 * 4 * SIZE
    x = ones()
    gc.collect()
    start = memory.memory_stats()["bytes_in_use"]
    memory.reset_peak()
    results = executable.call(x)
    assert memory.memory_stats()["peak_bytes_in_use"] - start == 2 * 4 * SIZE
    assert memory.memory_stats()["bytes_in_use"] - start == 4 * SIZE
    np.testing.assert_array_equal(results[0], 64 * x)


def test_unused_outputs_are_dropped_at_once():
    step = KernelStep("k", lambda a: None, (0,), (Allocation(1, (3,), F32), Allocation(2, (3,), F32)))
    assert Executable((0,), {}, [step], (2,)).drops() == [(1,)]


def test_a_result_takes_over_donated_memory_only_when_told():
    executable = Executable((0,), {}, [kernel(double, (0,), 1, reuse=0)], (1,))
    x = ones()
    assert executable.call(x)[0] is not x
    (out,) = executable.call(x, writable=(0,))
    assert out is x and (x == 2).all()
    other = np.ones(SIZE, np.int32)  # the same bytes, another dtype
    assert executable.call(other, writable=(0,))[0].dtype == F32


def test_profiled_calls_give_the_same_and_time_each_step():
    steps = [kernel(double, (0,), 1), LibraryStep("add", np.add, (1, 0), (2,)), kernel(double, (2,), 3)]
    executable = Executable((0,), {}, steps, (3,))
    ticks = itertools.count()
    results, times = executable.call_profiled([ones()], lambda: float(next(ticks) ** 2))
    assert times == [(0, 1.0), (1, 5.0), (2, 9.0)]
    np.testing.assert_array_equal(results[0], executable.call(ones())[0])


def test_threads_do_not_disturb_each_other(axpy):
    executable = Executable((0, 1), {}, [kernel(axpy, (0, 1), 2), kernel(axpy, (2, 1), 3)], (3,))
    wrong = []

    def work(number):
        x, y = np.full(SIZE, number, np.float32), ones()
        for _ in range(20):
            (out,) = executable.call(x, y)
            if not (out == 9 * number + 4).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_another_allocator():
    made = []

    def allocate(shape, dtype, label):
        made.append((shape, dtype))
        return np.zeros(shape, dtype)

    executable = Executable((0,), {}, [kernel(double, (0,), 1, size=4)], (1,), allocate=allocate)
    assert executable.call(np.ones(4, np.float32))[0].tolist() == [2.0] * 4
    assert made == [((4,), F32)]


@pytest.mark.parametrize(
    "steps, outputs, text",
    [
        ([kernel(double, (7,), 1)], (1,), "step k1 reads slot 7, which nothing has written"),
        ([kernel(double, (0,), 1), kernel(double, (0,), 1)], (1,), "step k1 writes slot 1 a second time"),
        ([kernel(double, (0,), 0)], (0,), "step k0 writes slot 0 a second time"),
        ([], (3,), "slot 3 is an output, and nothing has written it"),
    ],
)
def test_broken_plans_fail_before_they_run(steps, outputs, text):
    with pytest.raises(ValueError) as error:
        Executable((0,), {}, steps, outputs)
    assert str(error.value) == text


def test_wrong_calls():
    executable = Executable((0,), {}, [LibraryStep("split", lambda x: (x, x), (0,), (1, 2, 3))], (1,))
    with pytest.raises(TypeError, match=r"^this executable takes 1 arrays, got 2$"):
        executable.call(ones(), ones())
    with pytest.raises(ValueError, match=r"^step split returned 2 arrays and its plan says 3$"):
        executable.call(ones())


def test_the_text_shows_steps_slots_and_frees():
    steps = [kernel(double, (0,), 1), LibraryStep("sort", np.sort, (1,), (2,)), kernel(double, (2,), 3, reuse=0)]
    assert str(Executable((0,), {}, steps, (3,))).splitlines() == [
        "executable(%0):",
        f"  %1: float32[{SIZE}] = kernel k1(%0)",
        "  %2 = library sort(%1)   frees %1",
        f"  %3: float32[{SIZE}] over %0 = kernel k3(%2)   frees %2",
        "  return %3",
    ]


def test_c_functions_free_the_interpreter():
    library = toolchain.load_shared(
        toolchain.compile_shared(
            "#include <unistd.h>\n#include <stdint.h>\n"
            "void nap(void **buffers, const int64_t *sizes) { usleep(sizes[0]); }\n"
        ).path
    )
    nap = CFunction(library.nap, (300_000,))
    start = time.perf_counter()
    threads = [threading.Thread(target=nap, args=([np.zeros(1)],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - start < 4 * 0.3
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_what_a_step_makes_of_the_callers_tensor_is_apart_from_it():
    torch = pytest.importorskip("torch")
    given = torch.ones(3)
    run = Executable((0,), {}, [LibraryStep("numpy", lambda tensor: tensor.numpy(), (0,), (1,))], (1,))
    (out,) = run.call(given, foreign=(0,))
    given += 1
    np.testing.assert_array_equal(out, np.ones(3))
