"""Functions saved as bytes and loaded elsewhere, under the names of `jax.export`: `export`, `Exported`, `deserialize`."""

from fuser.export.exported import (
    Exported,
    default_export_platform,
    deserialize,
    export,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from fuser.export.safety import DisabledSafetyCheck
from fuser.export.trees import register_namedtuple_serialization, register_pytree_node_serialization

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "default_export_platform",
    "deserialize",
    "export",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
]
