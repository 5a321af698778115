"""Reports on compiled programs: the profile as data, and as text, JSON, Chrome trace and HTML."""

from fuser.report.data import (
    GraphNode,
    GraphPicture,
    KernelProfile,
    Machine,
    ProgramProfile,
    Refusal,
    SourceLine,
    Stage,
)
from fuser.report.serialise import from_json

__all__ = [
    "GraphNode",
    "GraphPicture",
    "KernelProfile",
    "Machine",
    "ProgramProfile",
    "Refusal",
    "SourceLine",
    "Stage",
    "from_json",
]
