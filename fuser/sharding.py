"""jax.sharding's names: meshes, specs and layouts of arrays over devices."""

from fuser.ir.types import ManualAxisType
from fuser.parallel.axis_types import auto_axes, explicit_axes
from fuser.parallel.constraint import reshard
from fuser.parallel.mesh import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
)
from fuser.parallel.sharding import NamedSharding, Sharding, SingleDeviceSharding, make_single_device_sharding
from fuser.parallel.spec import PartitionSpec

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]
