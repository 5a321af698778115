"""jax.stages' names: what `jit(f).trace`, `.lower` and `.compile` give."""

from fuser.api.stages import ArgInfo, Compiled, CompilerOptions, Lowered, Traced, Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
