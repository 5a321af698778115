"""The C sources that fuser compiles on the user's machine: `runtime/kernels` of a checkout, `fuser/_kernels` of an installed package."""

from __future__ import annotations

import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_INSTALLED, _CHECKOUT = _PACKAGE / "_kernels", _PACKAGE.parent / "runtime" / "kernels"
FOLDER = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT


def read(name: str) -> str:
    """The text of a source, by its path below `runtime/kernels`."""
    return (FOLDER / name).read_text()
