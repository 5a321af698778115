"""`Exported`: a function as a graph that can be saved, loaded elsewhere, called and differentiated.

The graph is the traced one with its calls written out, before anything that looks at a target, so that one file serves every
platform. Derivatives are further graphs, made when they are asked for or saved with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fuser.api.jitted import Jitted, jit
from fuser.api.placement import Placement
from fuser.config import config
from fuser.errors import DeserializationError, UnsupportedError
from fuser.export import file
from fuser.export.calling import called, checked_platform, runner
from fuser.export.decode import decode_arrays, decode_graph, decode_value_type, expect, member, of
from fuser.export.encode import Arrays, encode_graph, encode_type
from fuser.export.layouts import Layout, abstract, count_of, decode_layout, encode_layout, laid_out
from fuser.export.safety import DisabledSafetyCheck, check_foreign_calls
from fuser.export.symbolic import SymbolicScope, read_dim
from fuser.export.tracing import constraints_of, traced_for_all_sizes
from fuser.export.trees import decode_tree, encode_tree
from fuser.ir.graph import Graph, has_effects
from fuser.ir.references import AbstractRef
from fuser.ir.text import show
from fuser.ir.types import ArrayType, is_inexact
from fuser.parallel.mesh import AbstractMesh, Mesh
from fuser.parallel.sharding import NamedSharding
from fuser.passes.inline import inline_calls
from fuser.passes.loops.carries import in_bodies
from fuser.runtime.device import default_platform
from fuser.trace.body import reads
from fuser.trace.replay import replay
from fuser.transforms.linear import vjp

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
# JAX's, of how its modules take the platform, sizes and tokens: a file of fuser's has them as its graph has, so that all are one here.
minimum_supported_calling_convention_version, maximum_supported_calling_convention_version = 9, 10
MOST_ORDERS = 16  # of derivatives in one file
MOST_CONSTRAINTS = 64
MOST_WORK = 500_000  # atoms of extents that are looked at while a file is read


@dataclass(frozen=True, eq=False)
class Exported:
    """A function as it is saved: its graph, the types and the trees of its arguments and results.

    in_tree, in_avals    the structure of (args, kwargs), and an ArrayType a leaf; extents may be symbolic
    out_tree, out_avals  those of the result
    platforms            where it may be called: of "cpu", "cuda", "rocm", "tpu"
    module_kept_var_idx  the numbers of the arguments that the graph reads
    uses_global_constants  whether it is for more than one size or platform
    calling_convention_version  the setting of that name when it was exported
    nr_devices       how many devices it runs on, any that calls bring
    in_layouts, out_layouts  how arguments and results lie over meshes without devices; None where that is free
    """

    fun_name: str
    in_tree: Any
    in_avals: tuple[ArrayType, ...]
    out_tree: Any
    out_avals: tuple[ArrayType, ...]
    graph: Graph = field(repr=False)
    platforms: tuple[str, ...]
    disabled_safety_checks: Sequence[DisabledSafetyCheck] = ()
    nr_devices: int = 1
    in_layouts: tuple[Layout, ...] = ()
    out_layouts: tuple[Layout, ...] = ()
    ordered_effects: tuple[Any, ...] = ()
    unordered_effects: tuple[Any, ...] = ()
    calling_convention_version: int = maximum_supported_calling_convention_version
    _get_vjp: Callable[[Exported], Exported] | None = None

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        read = reads(self.graph)
        return tuple(n for n, var in enumerate(self.graph.invars) if var in read)

    @property
    def uses_global_constants(self) -> bool:
        return self._symbolic or len(self.platforms) > 1

    @property
    def _symbolic(self) -> bool:
        return any(type(d) is not int for aval in self.in_avals for d in aval.shape)

    @property
    def mlir_module_serialized(self) -> bytes:
        """The graph's text in UTF-8: fuser has no MLIR."""
        return self.mlir_module().encode()

    def mlir_module(self, serialized: bool = True) -> str:
        """The graph's text, under JAX's name: fuser has no MLIR."""
        return show(self.graph)

    def has_vjp(self) -> bool:
        """Whether `vjp` gives something."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The derivative: a function of the arguments' leaves and a cotangent for each result of a floating-point or complex type.

        It gives a tuple with one cotangent for each argument of such a type. ValueError where the file had none.
        """
        if self._get_vjp is None:
            raise ValueError("No VJP is available")
        return self._get_vjp(self)

    def in_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """How each argument lies, over the devices of `mesh`; None where that is free."""
        return _over_mesh(self.in_layouts or (None,) * len(self.in_avals), mesh)

    def out_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """How each result lies, over the devices of `mesh`; None where that is free."""
        return _over_mesh(self.out_layouts or (None,) * len(self.out_avals), mesh)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The function as bytes for `deserialize`, with so many derivatives one after the other.

        UnsupportedError where it holds a Python function (a callback), ValueError or TypeError for trees of classes or keys that
        cannot be written, ValueError where a derivative is asked for that is not there.
        """
        arrays = Arrays()
        said = _written(self, arrays, vjp_order)
        said["arrays"] = arrays.headers()
        return bytearray(file.write(said, arrays.contents()))

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results, under jit and the transforms too; reverse mode needs its `vjp`.

        ValueError for arguments of another tree, rank, dtype or extent, and on another platform.
        """
        checked_platform(self)
        return called(self, self._run, args, kwargs)

    @functools.cached_property
    def _accepted(self) -> set[Any]:
        """Types of arguments that were found to fit."""
        return set()

    @functools.cached_property
    def _run(self) -> Callable[..., Any]:
        return runner(self)

    def __str__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"


def export(
    fun_jit: Callable[..., Any],
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Exported]:
    """A function that takes arguments of `fun_jit`, or ShapeDtypeStructs in their place, and gives it as an `Exported`.

    `platforms`: where it is to run, of "cpu", "cuda", "rocm" and "tpu"; the default platform if None. ValueError for what is
    not the result of jit, and a calling convention that is not supported. UnsupportedError for a function whose types say how
    values lie over devices.
    """
    jitted = _jitted(fun_jit)
    wanted = (default_export_platform(),) if platforms is None else tuple(platforms)
    if "gpu" in wanted:
        raise ValueError(
            f"platforms are of {', '.join(PLATFORMS)}, or names of others, got gpu; say which, cuda or rocm"
        )

    def exported(*args: Any, **kwargs: Any) -> Exported:
        _check_version(config.export_calling_convention_version)
        traced = traced_for_all_sizes(jitted, args, kwargs)
        if _meshes(traced.graph):
            raise UnsupportedError(
                f"{traced.graph.name} runs on several devices, and its types say how values lie over them; give the mesh axes of type Auto, "
                "or export what one device does, and divide the arrays around its calls"
            )
        check_foreign_calls(traced.graph, disabled_checks)
        _refuse_captured_references(traced.graph)
        where = traced.placement or Placement((None,) * len(traced.graph.invars), (None,) * len(traced.graph.outvars))
        given, results = (tuple(map(abstract, shardings)) for shardings in (where.given, where.wanted))
        graph = laid_out(traced.graph, given, results)
        made = _exported(graph, traced.in_tree, traced.out_tree, wanted, tuple(disabled_checks))
        version = config.export_calling_convention_version
        return replace(made, in_layouts=given, out_layouts=results, calling_convention_version=version)

    return exported


def _refuse_captured_references(graph: Graph) -> None:
    for var in graph.constvars:
        if type(var.aval) is AbstractRef:
            raise UnsupportedError(
                f"{graph.name} closes over a Ref of type {var.aval}, whose memory is this process's; give it as an argument, or read it "
                "before (ref[...])"
            )


def _check_version(wanted: int) -> None:
    low, high = minimum_supported_calling_convention_version, maximum_supported_calling_convention_version
    if not low <= wanted <= high:
        raise ValueError(
            f"The requested export calling convention version {wanted} is outside the range of supported versions [{low}..{high}]"
        )


def default_export_platform() -> str:
    """The platform that functions are exported for where none is named."""
    return default_platform()


def deserialize(blob: bytes | bytearray) -> Exported:
    """The function that `Exported.serialize` wrote. The bytes may be anything: nothing of them is run.

    DeserializationError, a ValueError, for bytes that are no such file, or that a newer version wrote.
    """
    try:
        expect(
            isinstance(blob, (bytes, bytearray, memoryview)), f"deserialize takes bytes, got a {type(blob).__name__}"
        )
        said, contents = file.read(bytes(blob))
        arrays = decode_arrays(member(said, "arrays", list), contents)
        return _read(said, arrays, MOST_ORDERS)
    except (Exception, RecursionError) as error:
        raise DeserializationError(
            f"these bytes are no function that this version of fuser can load: {file.refusal(error)}; export it again"
        ) from None


def _jitted(function: Any) -> Any:
    """What is traced: the function, which is jitted, or one of fuser's own as if it were."""
    if isinstance(function, Jitted) or (hasattr(function, "trace") and hasattr(function, "lower")):
        return function
    if str(getattr(function, "__module__", "")).startswith(("fuser.numpy", "fuser.lax", "fuser.nn")):
        return jit(function)
    raise ValueError(f"Function to be exported must be the result of `jit` but is: {function}")


def _over_mesh(layouts: Sequence[Layout], mesh: Any) -> tuple[Any, ...]:
    if isinstance(mesh, AbstractMesh):
        return tuple(layouts)
    placed = lambda s: Mesh(mesh.devices.reshape(s.mesh.axis_sizes), s.mesh.axis_names, s.mesh.axis_types)
    return tuple(None if s is None else NamedSharding(placed(s), s.spec) for s in layouts)


def _meshes(graph: Graph) -> bool:
    return any(a.explicit is not None or a.vma for a in (*graph.in_avals, *graph.out_avals))


def _exported(
    graph: Graph, in_tree: Any, out_tree: Any, platforms: tuple[str, ...], checks: Sequence[DisabledSafetyCheck]
) -> Exported:
    effects = ("debug",) if has_effects(graph) else ()
    return Exported(
        graph.name,
        in_tree,
        graph.in_avals,
        out_tree,
        graph.out_avals,
        graph,
        platforms,
        checks,
        count_of(graph),
        unordered_effects=effects,
        _get_vjp=functools.cache(_vjp),
    )


def _vjp(primal: Exported) -> Exported:
    """The derivative of a function whose graph still holds its custom rules."""
    count = len(primal.in_avals)
    differentiable = [n for n, a in enumerate(primal.in_avals) if is_inexact(a.dtype)]
    results = [n for n, a in enumerate(primal.out_avals) if is_inexact(a.dtype)]

    def derivative(*leaves: Any) -> tuple[Any, ...]:
        primals, cotangents = leaves[:count], leaves[count:]

        def function(*given: Any) -> list[Any]:
            inputs = list(primals)
            for n, value in zip(differentiable, given):
                inputs[n] = value
            found = replay(primal.graph, *inputs)
            return [found[n] for n in results]

        _, pullback = vjp(function, *(primals[n] for n in differentiable))
        return tuple(pullback(list(cotangents)))

    derivative.__name__ = f"vjp_{primal.fun_name}"
    avals = [a.update(weak_type=False) for a in primal.in_avals]
    avals += [primal.out_avals[n].update(weak_type=False) for n in results]
    return export(jit(derivative), platforms=primal.platforms, disabled_checks=primal.disabled_safety_checks)(*avals)


def inlined(graph: Graph) -> Graph:
    """The graph without calls, here and in the bodies of its control flow."""
    return in_bodies(inline_calls(graph), inlined)


def _written(exported: Exported, arrays: Arrays, vjp_order: int) -> dict[str, Any]:
    return {
        "name": exported.fun_name,
        "platforms": [*exported.platforms],
        "calling_convention": exported.calling_convention_version,
        "constraints": constraints_of(exported.in_avals),
        "checks": [check.word for check in exported.disabled_safety_checks],
        "in_tree": encode_tree(exported.in_tree),
        "in": [encode_type(a) for a in exported.in_avals],
        "out_tree": encode_tree(exported.out_tree),
        "out": [encode_type(a) for a in exported.out_avals],
        "graph": encode_graph(inlined(exported.graph), arrays),
        **(
            {}
            if exported.nr_devices == 1
            else {"layouts": [*map(_layouts, (exported.in_layouts, exported.out_layouts))]}
        ),
        "vjp": _written(exported.vjp(), arrays, vjp_order - 1) if vjp_order > 0 else None,
    }


def _layouts(layouts: Sequence[Layout]) -> list[Any]:
    return [None if s is None else encode_layout(s) for s in layouts]


def _read_layouts(written: Any, count: int) -> tuple[Layout, ...]:
    expect(len(of(list, written, "layouts")) in (0, count), "it has other arguments or results than layouts")
    return tuple(None if w is None else decode_layout(w, expect) for w in written)


def _read(said: Any, arrays: Sequence[Any], orders: int) -> Exported:
    expect(orders > 0, "it has too many derivatives")
    platforms = tuple(of(str, p, "a platform") for p in member(said, "platforms", list))
    expect(all(p.isidentifier() and len(p) < 40 for p in platforms), "a platform has no name")
    checks = tuple(DisabledSafetyCheck(of(str, c, "a check")) for c in member(said, "checks", list))
    in_tree, out_tree = (decode_tree(said.get(key)) for key in ("in_tree", "out_tree"))
    constraints = [of(str, c, "a constraint") for c in member(said, "constraints", list)]
    expect(len(constraints) <= MOST_CONSTRAINTS, f"it has more than {MOST_CONSTRAINTS} constraints")
    scope = SymbolicScope(constraints, work=MOST_WORK)
    scope.check()
    dim = functools.cache(functools.partial(read_dim, scope=scope))
    in_avals, out_avals = (tuple(decode_value_type(t, dim) for t in member(said, key, list)) for key in ("in", "out"))
    graph = decode_graph(said.get("graph"), arrays, dim)
    expect(in_tree.num_leaves == len(in_avals) and out_tree.num_leaves == len(out_avals), "its trees have other leaves")
    expect((graph.in_avals, graph.out_avals) == (in_avals, out_avals), "its graph has other arguments or results")
    following = said.get("vjp")
    derivative = None if following is None else _read(following, arrays, orders - 1)
    get_vjp = None if derivative is None else lambda _: derivative
    name = member(said, "name", str)[:200]
    convention = of(int, said.get("calling_convention", maximum_supported_calling_convention_version), "a version")
    _check_version(convention)
    layouts = of(list, said.get("layouts", [[], []]), "layouts")
    expect(len(layouts) == 2, "layouts are those of arguments and of results")
    given, results = (_read_layouts(w, len(avals)) for w, avals in zip(layouts, (in_avals, out_avals)))
    scope.work = math.inf
    return Exported(
        name,
        in_tree,
        in_avals,
        out_tree,
        out_avals,
        graph,
        platforms,
        checks,
        count_of(graph),
        given,
        results,
        calling_convention_version=convention,
        _get_vjp=get_vjp,
    )
