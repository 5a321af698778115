"""`live_arrays`: the arrays whose memory is in use."""

from __future__ import annotations

from fuser.runtime import device as devices
from fuser.runtime.array import Array, made
from fuser.runtime.core import native


def live_arrays(platform: str | None = None) -> list[Array]:
    """The arrays on devices of a platform, of the default one if none is named, that nobody has deleted; the oldest first.

    RuntimeError for a platform that this machine has not.
    """
    wanted = {d.platform for d in devices.devices(platform)}
    found = made() if native is None else native.live_arrays()
    return [x for x in found if {d.platform for d in x.devices()} & wanted]
