"""What a message costs: links between devices as a latency and a bandwidth, the α-β model of collectives, and the bytes that are worth one.

A collective over p devices takes 2 log2 p (sums) or log2 p (others) latencies and the bytes that a device sends through its link
(Hockney's α-β model; Thakur, Rabenseifner, Gropp, 2005).
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fuser.parallel.traffic import Message

LATENCY_SHARE = 0.1  # of the seconds of a sum of `bucket_bytes`


@dataclass(frozen=True)
class Link:
    """What joins devices: seconds until a message arrives (α), and bytes a second that a device sends (1 / β)."""

    latency_seconds: float
    bytes_per_second: float


# Data sheets; NVLink's bytes one way.
LINKS = {
    "nvlink": Link(3e-6, 450e9),  # fourth generation, within a node
    "infiniband": Link(5e-6, 50e9),  # NDR, 400 Gbit/s a device
    "ethernet": Link(30e-6, 12.5e9),  # 100 Gbit/s a device
}


@dataclass(frozen=True)
class Network:
    """Between the devices along each axis of a mesh, the link: `default` where `axes` names none."""

    default: Link
    axes: Mapping[str, Link]

    def of(self, axes: tuple[Any, ...]) -> Link:
        """The slowest of the links along these axes."""
        return min((self.axes.get(a, self.default) for a in axes), key=lambda link: link.bytes_per_second)


def read_network(text: str) -> Network:
    """A network by name ("nvlink"), by axis ("model=nvlink,data=infiniband"), or from a JSON file.

    The file holds {"latency_seconds": ..., "bytes_per_second": ..., "axes": {"model": {the same two}}}, axes if they differ.
    ValueError for what is none of these.
    """
    if text in LINKS:
        return Network(LINKS[text], {})
    if "=" in text:
        pairs = dict(part.split("=", 1) for part in text.split(","))
        unknown = [name for name in pairs.values() if name not in LINKS]
        if unknown:
            raise ValueError(f"there is no link {unknown[0]!r}; the links are {', '.join(LINKS)}, or a JSON file")
        found = {axis: LINKS[name] for axis, name in pairs.items()}
        return Network(min(found.values(), key=lambda link: link.bytes_per_second), found)
    path = pathlib.Path(text)
    if not path.is_file():
        raise ValueError(f"{text!r} is neither a link ({', '.join(LINKS)}), AXIS=LINK,..., nor a JSON file")
    fields = json.loads(path.read_text())
    link = lambda given: Link(float(given["latency_seconds"]), float(given["bytes_per_second"]))
    return Network(link(fields), {axis: link(given) for axis, given in fields.get("axes", {}).items()})


def collective_seconds(message: Message, link: Link) -> float:
    """The α-β time of one collective."""
    rounds = message.rounds * math.ceil(math.log2(message.devices))
    return rounds * link.latency_seconds + message.sent_bytes / link.bytes_per_second


def bucket_bytes(devices: int, link: Link) -> float:
    """The bytes that a sum over so many devices must have for its latencies to take `LATENCY_SHARE` of its seconds.

    Cutting a larger sum into pieces of this size costs no more than that, and lets the first ones travel earlier.
    """
    if devices < 2:
        return math.inf
    latency = 2 * math.ceil(math.log2(devices)) * link.latency_seconds
    sent_share = 2 * (devices - 1) / devices
    return latency * (1 / LATENCY_SHARE - 1) * link.bytes_per_second / sent_share


def described(message: Message) -> str:
    """What a collective sends and what that takes, for a person."""
    took = (f"{collective_seconds(message, LINKS[name]) * 1e6:,.1f} µs over {name}" for name in ("ethernet", "nvlink"))
    often = f"{message.times} times " if message.times > 1 else ""
    over = ", ".join(map(str, message.axes))
    return (
        f"{message.name} over {over}: {often}{message.sent_bytes:,.0f} bytes sent by each of {message.devices} devices "
        f"({', '.join(took)}), from {message.source or 'the program'} on"
    )
