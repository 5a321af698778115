"""What the backend uses of torch beyond its public API: each name here and nowhere else, as releases from 2.11 on have it.

An operator that a release lacks stands in none of its graphs, so that `operators` leaves it out; all other names are required, and
a release without one is an ImportError that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._C import DispatchKey, parse_schema
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._decomp.decompositions import upsample_compute_output_size
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as autograd_settings
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache, BypassAOTAutogradCache
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler
from torch._inductor import config as inductor_settings
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.output_code import OutputCode
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import free_symbols
from torch.fx.graph import _BoxedCodeGen as BoxedCodeGen
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
from torch.utils._pytree import tree_map

__all__ = [
    "AOTAutogradCache",
    "BoxedCodeGen",
    "BypassAOTAutogradCache",
    "CustomGraphPass",
    "DispatchKey",
    "OpOverload",
    "OutputCode",
    "SerializableAOTDispatchCompiler",
    "aot_autograd",
    "autograd_settings",
    "core_aten_decompositions",
    "disable_current_modes",
    "free_symbols",
    "get_decompositions",
    "inductor_settings",
    "min_cut_rematerialization_partition",
    "operator",
    "operators",
    "parse_schema",
    "suggest_memory_format",
    "tree_map",
    "upsample_compute_output_size",
]

_aten: Any = torch.ops.aten


def operator(name: str) -> Any:
    """aten's operator of a name, "silu" with all its overloads or "round.decimals" one; None in a release that lacks it."""
    packet, _, overload = name.partition(".")
    found = getattr(_aten, packet, None)
    return getattr(found, overload, None) if overload else found


def operators(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Each name with its operator, of those that this release has."""
    for name in names:
        found = operator(name)
        if found is not None:
            yield name, found
