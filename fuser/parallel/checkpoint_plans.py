"""Which chunks of which tensors a process writes to and reads from a checkpoint: planners for torch.distributed.checkpoint."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from fuser.runtime.array import Array

if TYPE_CHECKING:
    from fuser.parallel.checkpoint import Leaf


def _tensors(leaves: Sequence[Leaf]) -> dict[tuple[str, tuple[int, ...]], torch.Tensor]:
    """Tensors over the memory of parts, by name and offsets."""
    return {(leaf.name, at): Array(part).torch() for leaf in leaves for at, part in leaf.parts.items()}


def _chunk(at: Sequence[int], sizes: Sequence[int]) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(at), torch.Size(sizes))


class WritePlanner(SavePlanner):
    """Every part is a chunk that one process writes."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves, self.tensors = leaves, _tensors(leaves)

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        pass

    def create_local_plan(self) -> SavePlan:
        items = []
        for leaf in self.leaves:
            for at, part in leaf.parts.items():
                properties = TensorProperties(dtype=self.tensors[leaf.name, at].dtype)
                data = TensorWriteData(_chunk(at, part.shape), properties, torch.Size(leaf.shape))
                index = MetadataIndex(leaf.name, torch.Size(at))
                items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        return SavePlan(items)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        return self.tensors[write_item.index.fqn, tuple(write_item.index.offset or ())]


class ReadPlanner(LoadPlanner):
    """Into every part go the overlaps of the chunks that were written with it."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves, self.tensors = leaves, _tensors(leaves)
        self.metadata: Any = None

    def set_up_planner(self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        self.metadata = metadata

    def create_local_plan(self) -> LoadPlan:
        items: list[ReadItem] = []
        for leaf in self.leaves:
            chunks = [_chunk(at, part.shape) for at, part in leaf.parts.items()]
            stored = self.metadata.state_dict_metadata[leaf.name]
            items += create_read_items_for_chunk_list(leaf.name, stored, chunks)
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        raise ValueError(f"{read_item.dest_index.fqn} of the checkpoint is no tensor")

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        target = self.tensors[read_item.dest_index.fqn, tuple(read_item.dest_index.offset or ())]
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            target = target.narrow(dim, start, length)
        return target

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        pass
