"""jax.experimental.multihost_utils' names: what processes of one program tell each other outside of programs."""

from fuser.gaps import absent

_NAMES = (
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array", "process_allgather",
    "reached_preemption_sync_point", "sync_global_devices",
)  # fmt: skip
__getattr__ = absent(__name__, dict.fromkeys(_NAMES, "fuser.parallel.multihost") | {"P": "fuser.parallel.spec"})
