"""jax.distributed's names: several processes that run one program together."""

from fuser.parallel.distributed import initialize, is_initialized, shutdown

__all__ = ["initialize", "is_initialized", "shutdown"]
