"""Sums of floats at many places by buckets of rows on GPUs: what they launch, where they pay, and what their words in shared memory take."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
from fuser.backends.triton import accumulators, bucket_sums, shared_words, target_counts
from fuser.backends.triton.aot import compile_ahead, stack_bytes
from fuser.ops.scatter_rows import scatter_rows_p
from tests.backends import scatter_cases
from tests.backends.ptx_threads import Threads

MANY = 1 << 24


def _sources(rows: int, count: int, dtype: str = "float32", reduction: str = "add") -> list[Any]:
    types = tuple(scatter_cases.of(kind, n) for kind, n in ((dtype, rows), ("int32", count), (dtype, count)))
    return fuser.jit(scatter_cases.scatter(reduction), backend="triton").lower(*types).sources


def _launches(*of: Any) -> list[str]:
    return [launch.function for source in _sources(*of) for launch in source.launch["launches"]]


def test_updates_of_many_rows_are_moved_once() -> None:
    functions = _launches(MANY, MANY)
    assert [functions.count(name) for name in ("count_buckets", "move_to_buckets", "sum_buckets")] == [1, 1, 1]
    assert "move_digits" not in functions and "copy_elements" not in functions


@pytest.mark.parametrize(
    ("rows", "count", "dtype", "reduction", "pays"),
    [
        (MANY, MANY, "float32", "add", True),
        (MANY, MANY, "bfloat16", "add", True),
        (1 << 16, MANY, "float32", "add", False),  # words that atomics find in the cache
        (1000, 1000, "float32", "add", False),  # launches take longer
        (bucket_sums.MOST_BUCKETS * bucket_sums.PLACES + 1, MANY, "float32", "add", False),  # a program's counts
        (MANY, MANY, "float64", "add", False),
        (MANY, MANY, "float32", "max", False),
    ],
)
def test_where_buckets_pay(rows: int, count: int, dtype: str, reduction: str, pays: bool) -> None:
    assert ("sum_buckets" in _launches(rows, count, dtype, reduction)) == pays


def test_a_chunk_fits_into_the_words_of_a_sum() -> None:
    """As many updates as a program adds at most, each 24 bits above what is kept below them."""
    most = bucket_sums.CHUNK + bucket_sums.BLOCK * bucket_sums.STEPS
    assert most << (24 + bucket_sums.HEADROOM) < 1 << 63
    assert 12 * bucket_sums.PLACES <= shared_words.BYTES


@pytest.mark.slow
@pytest.mark.parametrize("target", [("cuda", 80), ("cuda", 90), ("cuda", 100), ("hip", "gfx942")])
def test_kernels_keep_nothing_on_the_stack_and_ask_for_no_more_shared_memory(target: tuple[str, Any]) -> None:
    source = _sources(MANY, MANY)[-1]
    for kernel in compile_ahead(source, *target):
        assert stack_bytes(kernel, target[0]) == 0

    for launch, kernel in zip(source.launch["launches"], compile_ahead(source, *target), strict=True):
        if "ASSEMBLY" in launch.constants and target[0] == "cuda":
            asked = int(re.findall(r"program_words\[(\d+)\]", launch.constants["ASSEMBLY"])[0])
            assert asked + kernel.metadata.shared <= shared_words.BYTES


@pytest.mark.parametrize(("rows", "groups"), [(256, 1), (12288, 1), (12289, 2), (1 << 16, 6), (1 << 20, 0)])
def test_programs_that_read_the_same_targets_count_many_rows(rows: int, groups: int) -> None:
    counted = lambda x: fuser.numpy.bincount(x, length=rows)
    source = fuser.jit(counted, backend="triton").lower(fuser.ShapeDtypeStruct((1 << 22,), "int32")).sources[-1]
    launch = next(x for x in source.launch["launches"] if x.function == "count_targets")
    assert target_counts.private(rows) == (groups > 0)
    if groups:
        assert launch.grid % groups == 0 and launch.sizes[-1] == groups
        words = min(target_counts.WORDS, max(target_counts.FEWEST, 1 << (rows - 1).bit_length()))
        assert launch.constants["ASSEMBLY"] == shared_words.assembly(words)
        assert launch.grid // groups <= target_counts.PROGRAMS


def test_atomics_that_take_less_stay() -> None:
    x, i = np.zeros((1 << 16, 1), np.float32), np.zeros(MANY, np.uint32)
    trace = fuser.jit(lambda x, i, u: scatter_rows_p.bind(x, i, u, reduction="sum", unique=False)).trace(
        *(fuser.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, i)), fuser.ShapeDtypeStruct((MANY, 1), "float32")
    )
    (eqn,) = trace.graph.eqns
    assert not bucket_sums.sums(eqn)
    form = accumulators.form_of(eqn)
    assert form is not None and form.name == "exact sum"


def test_no_thread_repeats_what_another_adds() -> None:
    """A block has at least one element for each thread: fewer would be held by several, and added by each."""
    sources = _sources(MANY, MANY)
    counted = lambda x: fuser.numpy.bincount(x, length=256)
    sources += fuser.jit(counted, backend="triton").lower(fuser.ShapeDtypeStruct((1 << 22,), "int32")).sources
    launches = [x for source in sources for x in source.launch["launches"] if "ASSEMBLY" in x.constants]
    assert len(launches) == 4
    assert all(
        launch.constants["BLOCK"] >= 4 * 32 * launch.warps for launch in launches
    )  # four a thread where layouts are of 16 bytes


WARPS, WORDS = 4, 64


def _counted(threads: Threads, index: np.ndarray, inside: np.ndarray, waits: tuple[bool, bool]) -> list[np.ndarray]:
    """Words that are set to 0, added to at `index`, and read: what they are, and what each thread found."""
    (base,) = threads.run(shared_words.assembly(WORDS), {}).values()
    lane = np.arange(32 * WARPS, dtype=np.uint32)
    threads.run(shared_words.SET, {"$1": base + 4 * lane, "$2": lane * 0, "$3": lane < WORDS})
    if waits[0]:
        threads.run(shared_words.WAIT, {})
    operands = {"$1": base + 4 * index, "$2": lane * 0 + 1, "$3": inside}
    old = threads.run(shared_words.atomic("add"), operands)["$0"]
    if waits[1]:
        threads.run(shared_words.WAIT, {})
    read = threads.run(shared_words.READ, {"$1": base + 4 * lane, "$2": lane < WORDS})["$0"]
    return [read, old]


@pytest.mark.parametrize("most", [1, 5, WORDS])
def test_words_in_shared_memory_count_and_give_places(most: int) -> None:
    random = np.random.default_rng(most)
    index, inside = random.integers(0, most, 32 * WARPS).astype(np.uint32), random.random(32 * WARPS) < 0.8
    read, old = _counted(Threads(WARPS), index, inside, (True, True))
    np.testing.assert_array_equal(read[:WORDS], np.bincount(index[inside], minlength=WORDS))
    assert not read[WORDS:].any() and not old[~inside].any()
    for word in range(most):
        found = np.sort(old[inside & (index == word)])
        np.testing.assert_array_equal(found, np.arange(len(found)))


@pytest.mark.parametrize("waits", [(False, True), (True, False)])
def test_threads_wait_between_setting_adding_and_reading(waits: tuple[bool, bool]) -> None:
    index = np.arange(32 * WARPS, dtype=np.uint32)[::-1] % WORDS
    with pytest.raises(AssertionError):
        _counted(Threads(WARPS), index.copy(), np.ones(32 * WARPS, bool), waits)


def test_sums_of_64_bits_by_words_of_32() -> None:
    """Each addition that a low word does not hold is seen once, by the thread that makes it."""
    random = np.random.default_rng(7)
    part = random.integers(-(1 << 60), 1 << 60, 32 * WARPS) // 64
    row = random.integers(0, 3, 32 * WARPS).astype(np.uint32)
    threads = Threads(WARPS)
    (base,) = threads.run(shared_words.assembly(WORDS), {}).values()
    lane, live = np.arange(32 * WARPS, dtype=np.uint32), np.ones(32 * WARPS, np.uint32)
    threads.run(shared_words.SET, {"$1": base + 4 * lane, "$2": lane * 0, "$3": lane < WORDS})
    threads.run(shared_words.WAIT, {})
    low, high = part.astype(np.uint32), (part >> 32).astype(np.uint32)
    old = threads.run(shared_words.atomic("add"), {"$1": base + 4 * row, "$2": low, "$3": live})["$0"]
    high += old + low < low
    threads.run(shared_words.atomic("add"), {"$1": base + 4 * (row + 8), "$2": high, "$3": live})
    threads.run(shared_words.WAIT, {})
    read = threads.run(shared_words.READ, {"$1": base + 4 * lane, "$2": lane < WORDS})["$0"].astype(np.int64)
    for number in range(3):
        total = read[8 + number] << 32 | read[number]
        assert total == part[row == number].sum()


@pytest.mark.parametrize("name", ["max", "or"])
def test_words_are_compared_as_signed_numbers_and_joined(name: str) -> None:
    value = np.array([3, -5, 9, 4] * 32, np.int32)
    threads = Threads(WARPS)
    (base,) = threads.run(shared_words.assembly(WORDS), {}).values()
    live = np.ones(32 * WARPS, np.uint32)
    threads.run(shared_words.SET, {"$1": base, "$2": live * 0, "$3": np.arange(32 * WARPS) == 0})
    threads.run(shared_words.WAIT, {})
    threads.run(shared_words.atomic(name), {"$1": base, "$2": value.view(np.uint32), "$3": live})
    threads.run(shared_words.WAIT, {})
    read = threads.run(shared_words.READ, {"$1": base, "$2": live})["$0"].astype(np.uint32).view(np.int32)
    assert (read == (9 if name == "max" else 3 | -5 | 9 | 4)).all()
