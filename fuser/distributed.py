"""Several processes that run one program together, by jax.distributed's names, and checkpoints of what they hold."""

from fuser.parallel.checkpoint import restore_checkpoint, save_checkpoint
from fuser.parallel.distributed import initialize, is_initialized, shutdown

__all__ = ["initialize", "is_initialized", "restore_checkpoint", "save_checkpoint", "shutdown"]
