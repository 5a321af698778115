"""Operations outside of `jit` on arrays over devices: each is a program of one equation, divided like any other and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from fuser import backends
from fuser.api.eager import backend_name, by_default
from fuser.api.placement import FREE, at_home, placed, placement
from fuser.api.stages import Traced
from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.params import freeze
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.parallel.arrays import from_parts, laid_out
from fuser.parallel.mesh import Mesh, mesh_to_follow
from fuser.parallel.places import only_part, working_on
from fuser.parallel.sharding import NamedSharding, SingleDeviceSharding
from fuser.parallel.spec import PartitionSpec
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.core import EVALUATION, infer, type_of
from fuser.trace.tangent import as_array

MOST = 512  # programs that are kept


class Programs:
    """Programs of one equation, divided by how their operands lie, the last `MOST` of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Callable[[list[Any]], list[Any]]] = OrderedDict()

    def __call__(self, primitive: Primitive, values: list[Any], params: dict[str, Any]) -> Any:
        """The results, a list; NotImplemented for params that cannot be compared."""
        avals, lying = tuple(type_of(v) for v in values), placed(values)
        key = primitive, avals, lying, config.backend, tuple((n, freeze(params[n])) for n in sorted(params))
        try:
            program = self._kept.get(key)
        except TypeError:
            return NotImplemented
        if program is None:
            program = self._kept[key] = _program(primitive, avals, params, lying)
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        return program(values)


divided = Programs()


class Following:
    """What evaluation asks first: it runs operations with an operand over devices, and leaves all others."""

    def __init__(self) -> None:
        self.home = False  # whether what is computed now is put on the default device afterwards
        self.everywhere: Mesh | None = None  # what is computed now is put over it afterwards

    def __call__(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(type(a) is Array and type(a._data) is Shards for a in args):
            mesh = mesh_to_follow()
            if mesh is not None and self.everywhere is not mesh:
                return self.on_all(mesh, primitive, args, params)
            if config.default_device is not None and not self.home:
                return self.by_default(primitive, args, params)
            return NotImplemented
        values = at_home([as_array(a) for a in args])
        if not placed(values):
            return self.by_default(primitive, values, params)
        if (place := _one_place(values)) is not None:
            return self.on_one(place, primitive, values, params)
        avals = tuple(type_of(v) for v in values)
        if primitive.effect and not infer(primitive, avals, params) and all(v.is_fully_addressable for v in values):
            return EVALUATION.process(primitive, tuple(Array(to_numpy(v)) for v in values), params)
        results = divided(primitive, values, params)
        if results is NotImplemented:
            return NotImplemented
        return results if primitive.multiple_results else results[0]

    def by_default(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Computed on the first device, the memory of which all share; the results lie on the default one."""
        saved, self.home = self.home, True
        try:
            result = EVALUATION.process(primitive, tuple(args), params)
        finally:
            self.home = saved
        return by_default(result)

    def on_one(
        self, place: SingleDeviceSharding, primitive: Primitive, values: list[Any], params: dict[str, Any]
    ) -> Any:
        """Computed as on the first device; the results lie on this one."""
        saved, self.everywhere, self.home = (self.everywhere, self.home), mesh_to_follow(), True
        try:
            plain = [Array(v._data.arrays[0], v.weak_type) if type(v._data) is Shards else v for v in values]
            with working_on(place):
                result = EVALUATION.process(primitive, tuple(plain), params)
        finally:
            self.everywhere, self.home = saved
        put = lambda r: from_parts(r.shape, r.dtype, place, [only_part(r)], r.weak_type) if type(r) is Array else r
        return [put(r) for r in result] if primitive.multiple_results else put(result)

    def on_all(self, mesh: Mesh, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Computed once, and then on every device of the mesh that `set_mesh` has brought into scope."""
        saved, self.everywhere = self.everywhere, mesh
        try:
            result = EVALUATION.process(primitive, args, params)
        finally:
            self.everywhere = saved
        lay = lambda r: laid_out(r, NamedSharding(mesh, PartitionSpec(*[None] * r.ndim)))
        return [lay(r) for r in result] if primitive.multiple_results else lay(result)


def _one_place(values: list[Any]) -> SingleDeviceSharding | None:
    """The one device on which all operands that were put somewhere lie, if that is so."""
    found = {v._data.sharding for v in values if type(v) is Array and type(v._data) is Shards}
    place = found.pop() if len(found) == 1 else None
    return place if isinstance(place, SingleDeviceSharding) else None


def _program(primitive: Primitive, avals: Any, params: dict[str, Any], lying: Any) -> Callable[[list[Any]], list[Any]]:
    inputs = tuple(Var(a) for a in avals)
    result = infer(primitive, avals, params)
    outputs = tuple(map(Var, result if primitive.multiple_results else (result,)))
    operands: tuple[Operand, ...] = inputs
    graph = Graph(
        inputs, (), (), (Eqn(primitive, operands, params, outputs, current_source()),), outputs, primitive.name
    )
    structures = [tree.structure([0] * len(v)) for v in (inputs, outputs)]
    where = placement(FREE, lying, *structures)
    backend = backends.get(backend_name())
    return Traced(graph, structures[0], structures[1], (), backend, placement=where).lower().compile()._run
