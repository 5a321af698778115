"""The disk cache: hits, damage, foreign files, limits, several processes, and directories that cannot be used."""

import multiprocessing
import os
import pathlib
import stat
import tempfile
import time
import warnings

import pytest

from fuser.config import config
from fuser.runtime.cache import DiskCache, default_cache


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache", 1 << 20)


def test_what_is_put_is_got(cache):
    assert cache.get("key") is None
    path = cache.put("key", ".so", b"library")
    assert path.suffix == ".so" and cache.get("key") == path
    assert path.read_bytes() == b"library"
    assert DiskCache(cache.directory, 1 << 20).get("key") == path


def test_json(cache):
    assert cache.get_json("figures") is None
    cache.put_json("figures", {"a": [1, 2.5, None]})
    assert cache.get_json("figures") == {"a": [1, 2.5, None]}
    cache.put("words", ".json", b"{not json")
    assert cache.get_json("words") is None


def test_the_directory_and_files_are_private(cache):
    path = cache.put("key", ".so", b"library")
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"libr", b"LIBRARY", b"library and more"])
def test_damage_is_a_miss_and_goes_away(cache, damage):
    path = cache.put("key", ".so", b"library")
    path.write_bytes(damage)
    assert cache.get("key") is None
    assert not path.exists()
    assert cache.get(cache.put("key", ".so", b"library").name.split(".")[0]) is not None


def test_a_link_is_a_miss(cache, tmp_path):
    path = cache.put("key", ".so", b"library")
    target = tmp_path / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    assert cache.get("key") is None


def test_a_pipe_is_a_miss_and_does_not_block(cache):
    path = cache.put("key", ".so", b"library")
    path.unlink()
    os.mkfifo(path)
    assert cache.get("key") is None


def test_what_others_may_write_is_a_miss(cache):
    path = cache.put("key", ".so", b"library")
    path.chmod(0o666)
    assert cache.get("key") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_a_miss(cache):
    path = cache.put("key", ".so", b"library")
    os.chown(path, 12345, 12345)
    assert cache.get("key") is None


def test_stray_files_are_left_alone(cache):
    cache.put("key", ".so", b"library")
    stray = cache.directory / "notes.txt"
    stray.write_text("mine")
    (cache.directory / "aa").mkdir(exist_ok=True)
    (cache.directory / "aa" / "strange").write_text("mine")
    assert len(cache.entries()) == 1
    assert cache.clear() == (1, 7)
    assert stray.exists() and cache.entries() == []


def test_the_least_recently_used_go_first(tmp_path):
    cache = DiskCache(tmp_path / "cache", 1000)
    now = time.time()
    for i in range(9):
        os.utime(cache.put(f"key{i}", ".bin", bytes([i]) * 100), (now - 100 + i, now - 100 + i))
    assert cache.get("key0") is not None  # so that key1 is the oldest in use
    cache.put("new", ".bin", b"n" * 300)
    assert cache.size() <= 1000
    assert cache.get("key0") is not None and cache.get("new") is not None
    assert [cache.get(f"key{i}") is not None for i in range(1, 9)] == [False] * 4 + [True] * 4


def test_an_entry_over_the_limit_survives_its_own_put(tmp_path):
    cache = DiskCache(tmp_path / "cache", 100)
    path = cache.put("big", ".bin", b"b" * 500)
    assert path.exists()
    cache.put("small", ".bin", b"s")
    assert cache.size() <= 100


def test_entries_and_sizes(cache):
    cache.put("a", ".bin", b"12345")
    os.utime(cache.get("a"), (1000, 1000))
    cache.put("b", ".bin", b"123")
    assert [entry.size for entry in cache.entries()] == [3, 5]
    assert cache.entries()[1].last_used == 1000
    assert cache.size() == 8
    cache.remove("a")
    assert cache.get("a") is None and cache.get("b") is not None


def test_abandoned_files_are_removed(cache):
    folder = cache.put("key", ".so", b"library").parent
    old, young = folder / ".tmp-old", folder / ".tmp-young"
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (1000, 1000))
    cache.entries()
    assert not old.exists() and young.exists()


def _hammer(directory, seed, failures):
    cache = DiskCache(directory, 20_000)
    for i in range(150):
        key = f"key{(i * 7 + seed) % 40}"
        path = cache.get(key)
        if path is None:
            path = cache.put(key, ".bin", key.encode() * 100)
        try:
            if path.read_bytes() != key.encode() * 100:
                failures.put(key)
        except FileNotFoundError:
            pass  # another process made room


def test_processes_share_a_small_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    processes = [context.Process(target=_hammer, args=(tmp_path / "cache", seed, failures)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert failures.empty()
    assert DiskCache(tmp_path / "cache", 20_000).entries()


def warning_of(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action()
    return result, [str(warning.message) for warning in caught]


def falls_back(cache, reason):
    """Puts land in a private temporary directory, with one warning that gives this reason."""
    path, said = warning_of(lambda: cache.put("key", ".so", b"library"))
    assert said == [
        f"the cache directory {cache.directory} is not used: {reason}; compiled kernels go to a temporary directory "
        "and are lost at exit; set FUSER_CACHE_DIR to a directory of your own"
    ]
    assert cache.directory not in path.parents
    assert path.read_bytes() == b"library" and cache.get("key") == path
    assert warning_of(lambda: cache.put("other", ".so", b"other"))[1] == []
    cache.clear()


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    falls_back(DiskCache(tmp_path / "file" / "cache", 1 << 20), "it cannot be made (Not a directory)")


def test_a_directory_that_others_may_write_to(cache):
    cache.directory.mkdir()
    cache.directory.chmod(0o777)
    falls_back(cache, "others may write to it (mode 0777; chmod 700 helps)")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_a_directory_of_another_user(cache):
    cache.directory.mkdir(mode=0o700)
    os.chown(cache.directory, 12345, 12345)
    falls_back(cache, "it belongs to user 12345, not to user 0")


@pytest.mark.parametrize("number, words", [(30, "Read-only file system"), (28, "No space left on device")])
def test_a_directory_that_is_read_only_or_full(cache, monkeypatch, number, words):
    hit = cache.put("before", ".so", b"hit")
    real = tempfile.mkstemp

    def mkstemp(*args, dir=None, **options):
        if cache.directory in pathlib.Path(dir).parents:
            raise OSError(number, os.strerror(number))
        return real(*args, dir=dir, **options)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    falls_back_keeping = cache.get("before")
    assert falls_back_keeping == hit
    falls_back(cache, f"it cannot be written ({words})")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_write_permission(cache):
    cache.directory.mkdir(mode=0o500)
    falls_back(cache, "it cannot be written (Permission denied)")


def test_the_settings_choose_the_cache(tmp_path):
    with config.using(cache=True, cache_dir=str(tmp_path / "mine"), cache_limit=12345):
        assert default_cache().directory == tmp_path / "mine"
        assert default_cache().limit_bytes == 12345
        assert default_cache() is default_cache()
    with config.using(cache=False):
        path, said = warning_of(lambda: default_cache().put("key", ".so", b"library"))
        assert said == [] and default_cache().get("key") == path
