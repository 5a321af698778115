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

import fuser
from fuser.config import config
from fuser.errors import OutOfMemoryError
from fuser.runtime import memory, pool
from fuser.runtime.core import native

F32 = np.dtype(np.float32)
MIB = 1 << 20


@pytest.fixture(autouse=True, scope="module")
def little_to_collect():
    """What other tests have left behind is looked through once, not before each test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, params=["native", "python"])
def path(request, monkeypatch):
    """Each test runs on the pool in C and on the one in Python, both empty."""
    if request.param == "python":
        monkeypatch.setattr(memory, "_chosen", pool)
        monkeypatch.setattr(memory, "empty", memory.python_empty)
    elif native is None:
        pytest.skip("there is no native core")
    gc.collect()
    memory.trim()
    memory.reset_peak()
    yield request.param
    memory.trim()


def run_python(code, path, **variables):
    root = pathlib.Path(memory.__file__).parents[2]
    environment = {**os.environ, "FUSER_NATIVE": str(int(path == "native")), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, check=False, capture_output=True, text=True
    )


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_blocks_ask_for_huge_pages():
    def flags(place):
        inside = False
        for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
            if "-" in line.split()[0]:
                first, last = (int(end, 16) for end in line.split()[0].split("-"))
                inside = first <= place < last
            elif inside and line.startswith("VmFlags:"):
                return line.split()[1:]

    large, small = memory.empty((8 * MIB,), np.dtype(np.uint8)), memory.empty((MIB,), np.dtype(np.uint8))
    known = flags(address(large))
    if not pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no huge pages")
    assert "hg" in known and "hg" not in flags(address(small))


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
    str(array), repr(array.base), np.array(array), array[3:5].copy(), array.view()
    if isinstance(array.base, np.ndarray):
        array.base[3:5], array.base.copy(), array.base.view()
    assert memory.memory_stats()["pool_bytes"] == before["pool_bytes"]
    assert memory.memory_stats()["bytes_in_use"] == before["bytes_in_use"]


def test_the_limit_is_an_error_that_says_what_to_do():
    in_use = memory.memory_stats()["bytes_in_use"]
    assert in_use == 0
    with config.using(memory_limit=16 * MIB):
        kept = [memory.empty((2 * n, MIB // 4), F32, f"mlp.py:{n} (loss)") for n in (1, 2)]
        unnamed = memory.empty((MIB // 4,), F32)
        with pytest.raises(OutOfMemoryError) as error:
            memory.empty((1024, 3072), F32, "mlp.py:12 (loss)")
    assert str(error.value) == (
        "no memory for float32[1024,3072] (12 MiB) of mlp.py:12 (loss): 7 MiB in use by arrays, and the limit is 16 MiB "
        "(FUSER_MEMORY_LIMIT); free arrays (del x, or x.delete()), donate inputs (donate_argnums), or work on smaller "
        "pieces; the largest arrays alive are\n"
        "  float32[4,262144] (4 MiB) of mlp.py:2 (loss)\n"
        "  float32[2,262144] (2 MiB) of mlp.py:1 (loss)\n"
        "  float32[262144] (1 MiB)"
    )
    assert isinstance(error.value, MemoryError)
    del kept, unnamed


def test_an_error_names_five_arrays_at_most():
    kept = [memory.empty((n, MIB // 2), F32) for n in (3, 1, 7, 2, 6, 4, 5)]
    with config.using(memory_limit=57 * MIB), pytest.raises(OutOfMemoryError) as error:
        memory.empty((3072, 1024), F32)
    assert [line.split()[0] for line in str(error.value).splitlines()[1:]] == [
        f"float32[{n},524288]" for n in (7, 6, 5, 4, 3)
    ]
    del kept


def test_the_limit_changes_at_run_time_for_the_process_and_for_a_thread():
    def fits(size):
        try:
            return memory.empty((size,), np.dtype(np.uint8)).nbytes == size
        except OutOfMemoryError:
            return False

    other = []
    before = config.memory_limit
    try:
        config.update("memory_limit", 8 * MIB)
        assert not fits(12 * MIB) and memory.memory_stats()["limit_bytes"] == 8 * MIB
        with config.using(memory_limit=16 * MIB):
            assert fits(12 * MIB) and memory.memory_stats()["limit_bytes"] == 16 * MIB
            with config.using(memory_limit=0):
                assert fits(32 * MIB)
            assert not fits(32 * MIB)
            thread = threading.Thread(target=lambda: other.append(fits(12 * MIB)))
            thread.start()
            thread.join()
        assert not fits(12 * MIB)
    finally:
        config.update("memory_limit", before)
    assert other == [False]
    assert fits(32 * MIB)


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


REFUSED = """
import resource, numpy as np
from fuser.errors import OutOfMemoryError
from fuser.runtime import memory
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
try:
    memory.empty((100 << 20,), np.dtype(np.uint8), "mlp.py:12 (loss)")
except OutOfMemoryError as error:
    print(error)
print(memory.memory_stats()["bytes_in_use"], memory.empty((8 << 20,), np.dtype(np.uint8)).nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_refusal_by_the_system_is_out_of_memory(path):
    assert run_python(REFUSED, path).stdout.splitlines() == [
        "no memory for uint8[104857600] (100 MiB) of mlp.py:12 (loss): 0 bytes in use by arrays, and the system refused it; "
        "free arrays (del x, or x.delete()), donate inputs (donate_argnums), or work on smaller pieces",
        f"0 {8 * MIB}",
    ]


def test_idle_memory_is_bounded_oldest_first(path, monkeypatch):
    if path == "native":
        native.set_memory_bounds(memory.physical_memory(), 10 * MIB)
    monkeypatch.setattr(pool._pool, "bound", 10 * MIB)
    try:
        check_idle_memory()
    finally:
        if path == "native":
            native.set_memory_bounds(memory.physical_memory(), memory.physical_memory() // 4)


def check_idle_memory():
    old, middle, new = (memory.empty((n * MIB // 4,), F32) for n in (4, 5, 3))
    del old, middle
    assert memory.memory_stats()["pool_bytes"] >= 9 * MIB
    del new
    assert memory.memory_stats()["pool_bytes"] == memory.block_size(5 * MIB) + memory.block_size(3 * MIB)
    reuses = memory.memory_stats()["reuses"]
    kept = [memory.empty((n * MIB // 4,), F32) for n in (5, 3)]
    assert memory.memory_stats()["reuses"] == reuses + 2
    del kept


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
def test_a_forked_child_writes_into_memory_of_its_own(path):
    assert run_python(FORK, path).returncode == 0


FORK_IN_THREADS = """
import os, threading, numpy as np
from fuser.runtime import memory
going = True
def work():
    while going:
        memory.empty((1 << 17,), np.dtype(np.uint8))
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        memory.empty((1 << 17,), np.dtype(np.uint8)).fill(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
going = False
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_other_threads_allocate_can_allocate(path):
    assert run_python(FORK_IN_THREADS, path).returncode == 0


def test_the_interpreter_ends_quietly_with_arrays_alive(path):
    code = "import numpy as np\nfrom fuser.runtime import memory\nx = memory.empty((1 << 20,), np.dtype('f4'))"
    result = run_python(code, path)
    assert (result.returncode, result.stderr) == (0, "")


def test_both_pools_round_alike():
    if native is None:
        pytest.skip("there is no native core")
    for size in [*range(memory.SMALL, 4 * MIB, 4097), *range(4 * MIB, 3000 * MIB, 33_333_333), 2**40 + 1, 2**60]:
        assert native.block_size(size) == pool.block_size(size)


def test_bad_shapes_are_errors():
    with pytest.raises((ValueError, TypeError)):
        memory.empty((2, -3), F32)
    with pytest.raises((ValueError, TypeError)):
        memory.empty((1,) * 65, F32)
    assert memory.memory_stats()["bytes_in_use"] == 0


@pytest.mark.parametrize("size", [512, 700, 4_000, 16_000, 20_000])
def test_arrays_begin_where_vectors_of_64_bytes_do(size, path):
    held = [memory.empty((size,), F32) for _ in range(4)]
    if path == "native" or size * 4 >= 64 << 10:
        assert {address(array) % 64 for array in held} == {0}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("offset", [0, 1, 4, 16])
def test_large_arrays_of_numpys_begin_where_a_line_does(dtype, offset):
    """What begins elsewhere is copied, in the dtype that it gets: each vector that kernels load would lie across two lines."""
    data = np.arange(1 << 17).astype(dtype)
    start = -address(data) % 64 // data.itemsize + offset
    part = data[start : start + 100_003]
    array = fuser.numpy.asarray(part)
    np.testing.assert_array_equal(np.asarray(array), part.astype(array.dtype))
    assert address(np.asarray(array)) % 64 == 0
    converted = array.dtype != part.dtype
    begins = part.nbytes >= memory.SMALL and offset * data.itemsize % 64 == 0
    assert np.shares_memory(np.asarray(array), part) == (not converted and begins)
    small = part[: (64 << 10) // part.itemsize - 1]
    assert np.shares_memory(np.asarray(fuser.numpy.asarray(small)), part) != converted
