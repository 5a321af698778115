"""Looking inside: every artefact of a compilation as numbered files, the search for a guilty merge, and pictures of layouts.

The names of jax.debug are here too: `print`, `callback` and `breakpoint`, for values of programs that run.
"""

from fuser.gaps import absent

__getattr__ = absent(
    __name__,
    {
        "breakpoint": "fuser.debug.breakpoint",
        **dict.fromkeys(("callback", "print"), "fuser.debug.values"),
        **dict.fromkeys(
            ("inspect_array_sharding", "visualize_array_sharding", "visualize_sharding"), "fuser.parallel.visualize"
        ),
    },
)
