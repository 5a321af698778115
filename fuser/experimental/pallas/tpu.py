"""jax.experimental.pallas.tpu's names that say where scratch buffers lie and how kernels are compiled or interpreted."""

from fuser.pallas.specs import CompilerParams, InterpretParams, MemorySpace

ANY, SMEM, VMEM = MemorySpace.ANY, MemorySpace.SMEM, MemorySpace.VMEM

__all__ = ["ANY", "SMEM", "VMEM", "CompilerParams", "InterpretParams", "MemorySpace"]
