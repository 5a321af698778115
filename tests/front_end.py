"""Triton's front end on kernels that the driver's stand-in runs by other code: their text is read, and every operation in it typed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.triton.aot import compile_launch
from fuser.backends.triton.device import code
from fuser.errors import ToolchainError

TARGET = ("cuda", 90)


def first_ir(unit: Any, target: Any, options: dict[str, Any]) -> Any:
    """What `triton.compile` begins with: the module that Triton's passes take, a tenth of the seconds of a compilation."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend, context = make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    known = backend.parse_options(dict(options))
    helpers, modules = backend.get_codegen_implementation(known), backend.get_module_map()
    return unit.make_ir(target, known, helpers, modules, context)


def read(source: KernelSource, number: int, passing: code.Passing) -> None:
    """Each form of a launch. Raises ToolchainError."""
    import triton

    for launch in source.launch["launches"][number].choices:
        compiler, triton.compile = triton.compile, first_ir
        try:
            compile_launch(source, launch, *TARGET, passing.values, passing.loose)
        except ToolchainError:
            raise
        except Exception as error:
            raise ToolchainError(f"Triton refuses {launch.function}: {type(error).__name__}: {error}") from error
        finally:
            triton.compile = compiler


class Reading:
    """What makes images of kernels, after the front end."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def key(self, source: KernelSource, number: int, passing: code.Passing) -> Any:
        return self.images.key(source, number, passing)

    def __call__(self, source: KernelSource, number: int, passing: code.Passing) -> code.Image:
        read(source, number, passing)
        image: code.Image = self.images(source, number, passing)
        return image


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Kernels are read before they are loaded."""
    images = code.images
    code.images = Reading(images)  # type: ignore[assignment]
    try:
        yield
    finally:
        code.images = images
