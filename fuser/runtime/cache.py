"""Disk cache of compiled code: private to the user, bounded, safe for concurrent processes.

In: keys and bytes. Out: paths of verified files. An entry's name carries its key and the SHA-256 of its bytes, which
`get` checks, so damage is a miss, as is a file that somebody else owns: neither is ever executed. Files appear by an
atomic rename and leave least recently used first. Where the directory is unsafe or cannot be written, a private
temporary one that lives as long as the process takes its place, with one warning.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pathlib
import re
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuser.config import config

_HEX = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})(\.[a-z0-9]+)?")
_TEMPORARY = ".tmp-"
_STALE = 3600.0  # seconds after which another process's unfinished file is taken for abandoned
_WALK_EVERY = 64  # puts after which other processes' entries are counted again


@dataclass(frozen=True)
class Entry:
    """One file of the cache."""

    key: str
    size: int  # bytes
    last_used: float  # seconds since the epoch
    path: pathlib.Path


class DiskCache:
    """Files by key under `directory`, at most about `limit_bytes` together. Never raises for what is on the disk."""

    def __init__(self, directory: str | os.PathLike[str] | None, limit_bytes: int) -> None:
        """`directory` None means a private one that goes with the process."""
        self.directory = None if directory is None else pathlib.Path(directory)
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._trusted: bool | None = None  # not looked at yet
        self._known = 0  # bytes, as far as this process knows
        self._puts = 0
        self._warned = False
        # By process, because a forked child must not rely on what its parent removes.
        self._private: dict[int, pathlib.Path] = {}

    def get(self, key: str) -> pathlib.Path | None:
        """The file stored under the key, checked against its digest, or None."""
        name = _file_key(key)
        for root in self._roots():
            for path in _candidates(root, name):
                if _verified(path):
                    with contextlib.suppress(OSError):
                        os.utime(path)
                    return path
                with contextlib.suppress(OSError):
                    path.unlink()
        return None

    def put(self, key: str, suffix: str, data: bytes) -> pathlib.Path:
        """Store the bytes; returns their file, whose name ends in `suffix` (".so")."""
        name = _file_key(key)
        file_name = f"{name}.{digest(data)}{suffix}"
        path = None
        if self._usable():
            assert self.directory is not None
            try:
                path = _write(self.directory / name[:2], file_name, data)
            except OSError as error:
                self._warn(f"it cannot be written ({error.strerror or error})")
        if path is None:
            path = _write(self._private_directory() / name[:2], file_name, data)
        else:
            self._bound(path, len(data))
        return path

    def get_json(self, key: str) -> Any | None:
        """The value stored with `put_json`, or None."""
        import json  # here and below: `import fuser` does without

        path = self.get(key)
        if path is None:
            return None
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None

    def put_json(self, key: str, value: Any) -> pathlib.Path:
        """Store a value that JSON can express."""
        import json

        return self.put(key, ".json", json.dumps(value).encode())

    def entries(self) -> list[Entry]:
        """What is stored, most recently used first."""
        found = [entry for root in self._roots() for entry in _walk(root)]
        return sorted(found, key=lambda entry: -entry.last_used)

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(entry.size for entry in self.entries())

    def remove(self, key: str) -> None:
        """Drop what is stored under the key."""
        for root in self._roots():
            for path in _candidates(root, _file_key(key)):
                with contextlib.suppress(OSError):
                    path.unlink()

    def clear(self) -> tuple[int, int]:
        """Remove every entry; returns how many there were, and their bytes."""
        count = size = 0
        for entry in self.entries():
            with contextlib.suppress(OSError):
                entry.path.unlink()
                count += 1
                size += entry.size
        self._known = 0
        return count, size

    def _roots(self) -> list[pathlib.Path]:
        roots = [self.directory] if self._usable() and self.directory is not None else []
        private = self._private.get(os.getpid())
        return roots if private is None else [*roots, private]

    def _private_directory(self) -> pathlib.Path:
        """A directory of this process, removed when it ends."""
        import tempfile

        process = os.getpid()
        with self._lock:
            if process not in self._private:
                self._private[process] = pathlib.Path(tempfile.mkdtemp(prefix="fuser-"))
                atexit.register(_remove, process, str(self._private[process]))
            return self._private[process]

    def _usable(self) -> bool:
        """Whether the directory exists, or could be made, and belongs to this user alone; looked at once."""
        if self._trusted is None:
            with self._lock:
                if self._trusted is None:
                    reason = None if self.directory is None else _distrust(self.directory)
                    if reason:
                        self._warn(reason)
                    self._trusted = self.directory is not None and reason is None
        return self._trusted

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the cache directory {self.directory} is not used: {reason}; compiled kernels go to a temporary "
                "directory and are lost at exit; set FUSER_CACHE_DIR to a directory of your own",
                RuntimeWarning,
                stacklevel=2,
            )

    def _bound(self, newest: pathlib.Path, size: int) -> None:
        """Count an entry in; if there is too much, remove the least recently used ones down to 7/8 of the limit."""
        assert self.directory is not None
        with self._lock:
            self._known += size
            self._puts += 1
            if self._known <= self.limit_bytes and self._puts % _WALK_EVERY != 1:
                return
            entries = sorted(_walk(self.directory), key=lambda entry: entry.last_used)
            self._known = sum(entry.size for entry in entries)
            if self._known <= self.limit_bytes:
                return
            for entry in entries:
                if self._known <= self.limit_bytes * 7 // 8:
                    break
                if entry.path != newest:
                    with contextlib.suppress(OSError):
                        entry.path.unlink()
                        self._known -= entry.size


def default_cache() -> DiskCache:
    """The cache that the settings `cache`, `cache_dir` and `cache_limit` describe."""
    directory = (config.cache_dir or _home()) if config.cache else None
    return _cache(directory, config.cache_limit)


@functools.cache
def _cache(directory: str | None, limit: int) -> DiskCache:
    return DiskCache(directory, limit)


def _home() -> str:
    return str(pathlib.Path.home() / ".cache" / "fuser")


def digest(data: bytes) -> str:
    """The SHA-256 of the bytes, in hexadecimal digits."""
    import hashlib  # here, as it loads OpenSSL

    return hashlib.sha256(data).hexdigest()


def _file_key(key: str) -> str:
    return key if _HEX.fullmatch(key) else digest(key.encode())


def _distrust(directory: pathlib.Path) -> str | None:
    """Why code from this directory must not be run, or None; makes the directory if it is missing."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        return f"it cannot be made ({error.strerror or error})"
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o}; chmod 700 helps)"
    return None


def _candidates(root: pathlib.Path, name: str) -> list[pathlib.Path]:
    folder = root / name[:2]
    try:
        return [folder / file for file in os.listdir(folder) if file.startswith(name) and _NAME.fullmatch(file)]
    except OSError:
        return []


def _verified(path: pathlib.Path) -> bool:
    """Whether this is a regular file of this user, that no one else may write, with the bytes that its name promises."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        if not _own(os.fstat(descriptor)):
            return False
        named = _NAME.fullmatch(path.name)
        try:
            return named is not None and digest(file.read()) == named[2]
        except OSError:
            return False


def _own(status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(folder: pathlib.Path, name: str, data: bytes) -> pathlib.Path:
    """Write a file so that other processes see it whole or not at all."""
    import tempfile  # only where something is written; the import takes milliseconds

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return folder / name


def _walk(root: pathlib.Path) -> Iterator[Entry]:
    """The entries under a directory; removes other processes' abandoned files on the way."""
    for folder in _scan(root):
        if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
            continue
        for file in _scan(folder.path):
            match = _NAME.fullmatch(file.name)
            with contextlib.suppress(OSError):
                status = file.stat(follow_symlinks=False)
                if match:
                    yield Entry(match[1], status.st_size, status.st_mtime, pathlib.Path(file.path))
                elif file.name.startswith(_TEMPORARY) and time.time() - status.st_mtime > _STALE:
                    os.unlink(file.path)


def _scan(folder: str | pathlib.Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(process: int, directory: str) -> None:
    import shutil

    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)
