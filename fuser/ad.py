"""jax.ad's names: what stands for the cotangent of an argument in `pullback.with_refs`."""

from fuser.transforms.linear import DontWant, GradValue

__all__ = ["DontWant", "GradValue"]
