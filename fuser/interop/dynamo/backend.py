"""The Dynamo backend: AOTAutograd's forward and backward graphs of core ATen operations, each divided and compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from fuser.config import config
from fuser.interop.dynamo.decompositions import decompositions
from fuser.interop.dynamo.divide import divided
from fuser.interop.dynamo.internals import (
    SerializableAOTDispatchCompiler,
    aot_autograd,
    min_cut_rematerialization_partition,
)
from fuser.interop.dynamo.operators import OWN
from fuser.interop.dynamo.preserved import preserved
from fuser.interop.dynamo.stored import CompiledGraph, key_of_settings

_BACKENDS = {"cpu": "c", "cuda": "triton"}


def fused(module: GraphModule, inputs: Sequence[Any]) -> CompiledGraph:
    """One graph of AOTAutograd's, compiled; it takes its inputs in a list, which it empties."""
    device = _device(module)
    if device not in _BACKENDS:
        raise ValueError(
            f'torch.compile(backend="fuser") runs on the CPU and on CUDA, but tensors of the graph are on {device}'
        )
    kept = device == "cpu" and not any(str(node.target) in OWN for node in module.graph.nodes)
    return CompiledGraph(divided(module, device, _BACKENDS[device]), kept)


def _device(module: GraphModule) -> str:
    """The type of device of the graph's tensors; the CPU's scalars may stand beside another's."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    found = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    return min(found - {"cpu"}, default="cpu")


def fuser(module: GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend "fuser" of torch.compile; it takes no options (TypeError)."""
    if options:
        raise TypeError(f'torch.compile(backend="fuser") takes no options, got {", ".join(map(repr, options))}')
    settings = config.of_thread()

    def compiled(module: GraphModule, inputs: Sequence[Any]) -> CompiledGraph:
        with config.using(**settings):  # torch compiles a GPU's backward graph in another thread
            return fused(module, inputs)

    compiler = aot_autograd(
        fw_compiler=SerializableAOTDispatchCompiler(CompiledGraph, compiled),
        bw_compiler=SerializableAOTDispatchCompiler(CompiledGraph, compiled),
        decompositions=decompositions(),
        partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
    )
    with preserved(), key_of_settings():
        return compiler(module, inputs)  # type: ignore[no-any-return]
