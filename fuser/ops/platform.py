"""`platform_index`: which of a program's choices of code is for the platform that it runs on; known once it is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.config import config
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.runtime.device import default_platform
from fuser.trace.core import bind

_PLATFORM_OF = {"triton": "cuda", "tpu": "tpu", "c": "cpu", "reference": "cpu"}


def platform_in_use() -> str:
    """The platform of programs that name no backend: "cpu", "cuda" or "tpu"."""
    return _PLATFORM_OF.get(config.backend or "", default_platform())


def index_of(platform: str, platforms: Sequence[str], default: bool) -> np.int32:
    """The number of a platform's choice; that behind all others where there is a default. NotImplementedError where there is none."""
    if platform not in platforms and not default:
        raise NotImplementedError(f"translation rule for platform {platform} not found; give it, or a default")
    return np.int32(platforms.index(platform) if platform in platforms else len(platforms))


platform_index_p: Primitive = register(
    Primitive(
        "platform_index",
        Fusion.LIBRARY,
        type=lambda platforms, default: ArrayType((), np.dtype("int32")),
        eval=lambda platforms, default: index_of(platform_in_use(), platforms, default),
        batch=lambda operands, dims, **params: (bind(platform_index_p, **params), None),
    )
)
