"""Looking inside: every artefact of a compilation as numbered files, the search for a guilty merge, and pictures of layouts."""

from typing import Any as _Any

_PICTURES = ("visualize_array_sharding", "visualize_sharding")


def __getattr__(name: str) -> _Any:
    """What stands above: pictures of arrays over devices."""
    if name not in _PICTURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fuser.parallel import visualize

    return globals().setdefault(name, getattr(visualize, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_PICTURES})
