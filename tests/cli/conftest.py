"""Programs for the command line to read, and a runner that gives status, text and errors."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fuser.cli import main
from fuser.config import config

MODEL = """
import numpy as np

import fuser
import fuser.numpy as jnp

SCALE = 3

@fuser.jit
def softmax(x):
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)

def softmax_args():
    return (np.ones((8, 16), np.float32),)

def project(x, weights):
    return jnp.tanh(x) @ weights

def shifted(x, by=1.0):
    return x + by

def branching(x):
    if x.sum() > 0:
        return x
    return -x

class Model:
    @staticmethod
    def scale(x):
        return x * SCALE

if __name__ == "__main__":
    raise SystemExit("the main program ran")
"""


@dataclass(frozen=True)
class Result:
    """What one command did."""

    status: int
    text: str
    errors: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.text)


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Runs a command in this process on the C backend."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse leaves this way
            status = int(error.code or 0)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    with config.using(backend="c"):
        yield run
