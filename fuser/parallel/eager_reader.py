"""Values within a shard_map that is called outside of programs: what has been recorded so far is run where `if`, `float` or `print` read.

Each device has a value of its own. One that the types say is the same for all can be read; any can be printed, with the coordinates
of its device. What has effects is not run twice: values behind it stay unknown.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Graph, effective
from fuser.ops.shard_map import Layout, Specs, shard_map_p, whole
from fuser.runtime.array import Array
from fuser.trace.body import close
from fuser.trace.core import EVALUATION, Trace, using
from fuser.trace.stage import StageTrace, StageTracer


class EagerReader:
    """Reads values of a trace whose inputs have `values`, of which each device gets a part as `specs` say."""

    def __init__(self, values: list[Array], specs: Specs, layout: Layout) -> None:
        self.values, self.specs, self.layout = values, specs, layout
        self.used = False  # a body that has been read is for these values alone

    def attach(self, trace: Trace, inputs: list[StageTracer]) -> None:
        """Let the trace, which begins with these inputs, be read."""
        assert isinstance(trace, StageTrace)
        self.trace, self.inputs = trace, [i._var for i in inputs]
        trace.reader = self

    def read(self, tracer: StageTracer) -> np.ndarray | None:
        """The value that all devices have; None where they may differ."""
        if (
            tracer.aval.vma
            or not self.layout.check_vma
            or set(self.layout.manual_axes) != set(self.layout.mesh.axis_names)
        ):
            return None
        parts = self._parts(tracer)
        return None if parts is None else parts[0]

    def shown(self, tracer: StageTracer) -> str:
        """The value of each device, with its coordinates."""
        parts = self._parts(tracer)
        if parts is None:
            return ""
        mesh = self.layout.mesh
        axes = ", ".join(map(str, mesh.axis_names))
        where = [f"({', '.join(map(str, mesh.coordinates(rank).values()))})" for rank in range(mesh.size)]
        return "\n".join(f"On {d} at mesh coordinates ({axes}) = {w}:\n{p}" for d, w, p in zip(mesh.flat, where, parts))

    def _parts(self, tracer: StageTracer) -> tuple[np.ndarray, ...] | None:
        """Each device's value, by a program of what has been recorded; None where that has effects."""
        graph = self._needed(tracer)
        if graph is None or self.layout.mesh.is_multi_process:
            return None
        self.used = True
        body, consts = close(graph)
        unchecked = self.layout._replace(check_vma=False)
        in_specs = (*(whole(v.aval.ndim) for v in graph.constvars), *self.specs)
        with using(EVALUATION):
            (result,) = shard_map_p.bind(
                *consts,
                *self.values,
                jaxpr=body,
                in_specs=in_specs,
                out_specs=(whole(tracer.aval.ndim),),
                **unchecked._asdict(),
            )
        return result._data.arrays  # type: ignore[no-any-return]

    def _needed(self, tracer: StageTracer) -> Graph | None:
        """The graph of one value so far; None where effects are among what was recorded."""
        if any(map(effective, self.trace.eqns)):
            return None
        return self.trace.graph(self.inputs, [tracer])  # type: ignore[arg-type]
