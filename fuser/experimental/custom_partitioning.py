"""jax.experimental.custom_partitioning's names."""

from fuser.gaps import absent

__getattr__ = absent(
    __name__,
    {
        "custom_partitioning": "fuser.parallel.custom_partitioning",
        "custom_partitioning_p": "fuser.ops.custom_partitioning",
        **dict.fromkeys(
            ("ArrayMapping", "BATCHING", "CompoundFactor", "SdyShardingRule"), "fuser.parallel.sharding_rule"
        ),
    },
)
