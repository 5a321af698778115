"""The pool: reuse, lifetimes of views, threads, limits and what the user reads when memory runs out."""

import gc
import os
import pathlib
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from fuser.config import config
from fuser.errors import OutOfMemoryError
from fuser.runtime import memory

F32 = np.dtype(np.float32)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty_pool():
    gc.collect()
    memory.trim()
    memory.reset_peak()
    yield
    memory.trim()


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "shape", [(), (0,), (3, 0, 2), (5,), (300, 100), (16384,), (1 << 19,), (1 << 20,), (700, 1001)]
)
@pytest.mark.parametrize(
    "dtype", [np.float32, np.int8, np.bool_, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_arrays_are_contiguous_writable_and_hold_what_is_written(shape, dtype):
    array = memory.empty(shape, np.dtype(dtype))
    assert array.shape == shape and array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.writeable
    values = np.arange(array.size).reshape(shape).astype(dtype)
    array[...] = values
    np.testing.assert_array_equal(array.view(np.uint8) if shape else array, values.view(np.uint8) if shape else values)


@pytest.mark.parametrize("size", [memory.SMALL, 100_000, MIB, 2 * MIB, 2 * MIB + 1, 40 * MIB])
def test_blocks_are_aligned(size):
    alignment = memory.HUGE_PAGE if memory.block_size(size) >= memory.HUGE_PAGE else 64
    assert address(memory.empty((size,), np.dtype(np.uint8))) % alignment == 0


def test_block_sizes_waste_at_most_a_quarter():
    for size in [*range(memory.SMALL, 4 * MIB, 4097), *range(4 * MIB, 200 * MIB, 333_333)]:
        block = memory.block_size(size)
        assert size <= block <= size * 1.25 + memory.HUGE_PAGE * (size > memory.HUGE_PAGE)
        assert memory.block_size(block) == block


def test_a_dead_array_leaves_its_block_to_the_next():
    array = memory.empty((MIB,), F32)
    place, reuses = address(array), memory.memory_stats()["reuses"]
    del array
    assert memory.memory_stats()["pool_bytes"] == 4 * MIB
    array = memory.empty((2, MIB // 2), F32)
    assert address(array) == place
    assert memory.memory_stats()["reuses"] == reuses + 1
    assert memory.memory_stats()["pool_bytes"] == 0


@pytest.mark.parametrize(
    "make", [lambda x: x[5:9], lambda x: x.reshape(4, -1).T[1:], lambda x: x.view(np.int8), lambda x: memoryview(x)]
)
def test_a_view_keeps_the_block(make):
    array = memory.empty((MIB,), F32)
    before = memory.memory_stats()["bytes_in_use"]
    view = make(array)
    del array
    gc.collect()
    assert memory.memory_stats()["bytes_in_use"] == before
    del view
    assert memory.memory_stats()["bytes_in_use"] == before - 4 * MIB


def test_statistics_count_blocks_and_the_peak():
    start = memory.memory_stats()
    first, second = memory.empty((MIB,), F32), memory.empty((2 * MIB,), F32)
    del first
    stats = memory.memory_stats()
    assert stats["bytes_in_use"] - start["bytes_in_use"] == 8 * MIB
    assert stats["peak_bytes_in_use"] - start["bytes_in_use"] == 12 * MIB
    assert stats["allocations"] - start["allocations"] == 2
    memory.reset_peak()
    assert memory.memory_stats()["peak_bytes_in_use"] == stats["bytes_in_use"]
    assert memory.trim() == 4 * MIB
    assert memory.memory_stats()["pool_bytes"] == 0
    del second


def test_printing_and_copying_do_not_return_a_block_twice():
    array = memory.empty((MIB,), F32)
    array.fill(1)
    before = memory.memory_stats()
    str(array), repr(array.base), array.base[3:5], array.base.copy(), array.base.view(), np.array(array)
    assert memory.memory_stats()["pool_bytes"] == before["pool_bytes"]
    assert memory.memory_stats()["bytes_in_use"] == before["bytes_in_use"]


def test_the_limit_is_an_error_that_says_what_to_do():
    in_use = memory.memory_stats()["bytes_in_use"]
    assert in_use == 0
    with config.using(memory_limit=16 * MIB):
        kept = memory.empty((2 * MIB,), F32)
        with pytest.raises(OutOfMemoryError) as error:
            memory.empty((1024, 3072), F32)
    assert str(error.value) == (
        "no memory for float32[1024,3072] (12 MiB): 8 MiB in use by arrays, and the limit is 16 MiB "
        "(FUSER_MEMORY_LIMIT); free arrays (del x, or x.delete()), donate inputs (donate_argnums), or work on smaller "
        "pieces"
    )
    assert isinstance(error.value, MemoryError)
    del kept


def test_idle_blocks_make_room_under_the_limit():
    with config.using(memory_limit=16 * MIB):
        array = memory.empty((3 * MIB,), F32)
        del array
        assert memory.memory_stats()["pool_bytes"] == 12 * MIB
        array = memory.empty((2 * MIB,), F32)
        assert memory.memory_stats()["pool_bytes"] == 0
        del array


def test_garbage_is_collected_before_the_limit_is_an_error():
    with config.using(memory_limit=16 * MIB):
        cycle = [memory.empty((3 * MIB,), F32)]
        cycle.append(cycle)
        del cycle
        assert memory.empty((3 * MIB,), F32).nbytes == 12 * MIB


def test_what_no_machine_has_is_out_of_memory():
    with pytest.raises(
        OutOfMemoryError, match=r"^no memory for float32\[1000000,1000000,1000000\] \(3\.638e\+06 TiB\)"
    ):
        memory.empty((10**6, 10**6, 10**6), F32)
    with pytest.raises(
        OutOfMemoryError, match=r"^no memory for float32\[1000000000000\] \(3\.638 TiB\): .*the system has"
    ):
        memory.empty((10**12,), F32)


def test_a_refusal_by_the_system_is_out_of_memory(monkeypatch):
    def refuse(size):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(memory, "_map", refuse)
    with pytest.raises(OutOfMemoryError, match="and the system refused it; free arrays"):
        memory.empty((5 * MIB,), F32)


def test_idle_memory_is_bounded_oldest_first(monkeypatch):
    monkeypatch.setattr(memory._pool, "bound", 10 * MIB)
    old, middle, new = (memory.empty((n * MIB // 4,), F32) for n in (4, 5, 3))
    del old, middle
    assert memory.memory_stats()["pool_bytes"] >= 9 * MIB
    del new
    assert memory.memory_stats()["pool_bytes"] <= 10 * MIB
    assert {size for size, blocks in memory._pool.free.items() if blocks} == {
        memory.block_size(5 * MIB),
        memory.block_size(3 * MIB),
    }


def test_threads_never_share_a_block():
    failures = []

    def work(number):
        held = []
        for i in range(300):
            array = memory.empty((20_000 + 3000 * (i % 3),), F32)
            array.fill(number)
            held.append(array)
            if len(held) > 3:
                oldest = held.pop(0)
                if not (oldest == number).all():
                    failures.append(number)

    before = memory.memory_stats()["bytes_in_use"]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert memory.memory_stats()["bytes_in_use"] == before


FORK = """
import os, numpy as np
from fuser.runtime import memory
array = memory.empty((1 << 20,), np.dtype(np.float32))
array.fill(1)
child = os.fork()
if child == 0:
    array.fill(2)
    del array
    reused = memory.empty((1 << 20,), np.dtype(np.float32))
    os._exit(0 if (reused == 2).all() else 1)
assert os.waitpid(child, 0)[1] == 0
assert (array == 1).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_into_memory_of_its_own():
    root = pathlib.Path(memory.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", FORK], cwd=root, check=False).returncode == 0


def test_the_interpreter_ends_quietly_with_arrays_alive():
    code = "import numpy as np\nfrom fuser.runtime import memory\nx = memory.empty((1 << 20,), np.dtype('f4'))"
    root = pathlib.Path(memory.__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
