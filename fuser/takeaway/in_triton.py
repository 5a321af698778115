"""A program as Triton: a file of kernels for each step, a launcher for torch tensors, a test with its data."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.backends.triton.emitter import Launch
from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn
from fuser.ir.types import is_complex
from fuser.ops.movement import broadcast_in_dim_p, slice_p, transpose_p
from fuser.takeaway.program import Call, Product, Program


def files(program: Program, data: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The files of a program by name; `data` are the test's arrays: in0, …, expected0, …"""
    name = program.name
    arrays = {**data, **{f"constant{slot}": value for slot, value in program.consts}}
    if refused := [a.dtype for a in arrays.values() if is_complex(a.dtype) or a.dtype.names]:
        raise UnsupportedError(f"Triton's kernels take no arrays of {refused[0]}; export the parts as real arrays")
    stored = io.BytesIO()
    np.savez(stored, **{key: _plain(value) for key, value in arrays.items()})  # type: ignore[arg-type]
    texts = {call.source.name: call.source.text for call in program.calls}
    return {
        **{f"{kernel}.py": text.encode() for kernel, text in texts.items()},
        f"{name}.py": _launcher(program).encode(),
        f"test_{name}.py": _test(program).encode(),
        f"{name}_data.npz": stored.getvalue(),
        "README.md": (
            f"# {name}\n\n{program.origin}\n\n    {program.signature()}\n\n`python test_{name}.py` runs the test on the GPU; "
            f"with TRITON_INTERPRET=1 it needs none. torch and triton are needed.\n"
        ).encode(),
    }


def _plain(array: np.ndarray) -> np.ndarray:
    """Arrays as files hold them: bfloat16 as its bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _launcher(program: Program) -> str:
    modules = dict.fromkeys(call.source.name for call in program.calls)
    head = [
        f'"""{program.origin}',
        "",
        f"    {program.signature()}",
        '"""',
        "",
        "import pathlib",
        "",
        "import numpy as np",
    ]
    head += ["import torch", "", *(f"import {module}" for module in modules), "", ""]
    lines = [*head, *_CONSTANTS] if program.consts else head
    parameters = [f"in{n}" for n in range(len(program.inputs))]
    lines.append(f"def {program.name}({', '.join(parameters)}):")
    lines.append(f"    device = {'in0.device' if parameters else repr('cuda')}")
    lines += [f"    slot{slot} = in{n}.contiguous()" for n, (slot, _) in enumerate(program.inputs)]
    lines += [f"    slot{slot} = constant('constant{slot}', '{v.dtype}', device)" for slot, v in program.consts]
    for step in program.steps:
        lines += _call(step) if isinstance(step, Call) else [_product(step)]
    results = [f"slot{slot}.reshape({tuple(aval.shape)})" for slot, aval in program.outputs]
    return "\n".join([*lines, f"    return [{', '.join(results)}]", ""])


_CONSTANTS = [
    "def constant(name, dtype, device):",
    "    array = np.load(pathlib.Path(__file__).with_name(pathlib.Path(__file__).stem + '_data.npz'))[name]",
    "    tensor = torch.from_numpy(array.view(np.int16) if dtype == 'bfloat16' else array)",
    "    return (tensor.view(torch.bfloat16) if dtype == 'bfloat16' else tensor).to(device)",
    "",
    "",
]


def _product(product: Product) -> str:
    operands = ", ".join(_moved(f"slot{view.place}.view({view.shape})", view.moves) for view in product.operands)
    result = _moved(f"torch.einsum({product.dimensions!r}, {operands})", product.result.moves)
    return f"    slot{product.write} = {result}.contiguous()"


def _moved(tensor: str, moves: Sequence[Eqn]) -> str:
    for eqn in moves:
        params, shape = eqn.params, eqn.outvars[0].aval.shape
        if eqn.primitive is transpose_p:
            tensor += f".permute({tuple(params['permutation'])})"
        elif eqn.primitive is slice_p:
            strides = params["strides"] or (1,) * len(shape)
            parts = zip(params["start_indices"], params["limit_indices"], strides)
            tensor += f"[{', '.join(f'{start}:{limit}:{stride}' for start, limit, stride in parts)}]"
        elif eqn.primitive is broadcast_in_dim_p:
            (operand, *_), places = eqn.invars, params["broadcast_dimensions"]
            single = tuple(operand.aval.shape[places.index(d)] if d in places else 1 for d in range(len(shape)))
            tensor += f".reshape({single}).expand({shape})"
        else:
            tensor += f".reshape({shape})"
    return tensor


def _call(call: Call) -> list[str]:
    lines = []
    for w in call.writes:
        lines.append(f"    slot{w.slot} = torch.empty({tuple(w.shape)}, dtype=torch.{w.dtype.name}, device=device)")
    buffers = [f"slot{slot}" for slot in (*call.reads, *(w.slot for w in call.writes))]
    for n, (size, dtype) in enumerate(call.source.launch["scratch"]):
        lines.append(f"    scratch{n} = torch.empty({size}, dtype=torch.{np.dtype(dtype).name}, device=device)")
        buffers.append(f"scratch{n}")
    for operand, result in call.source.launch.get("begins_as", ()):
        lines.append(f"    {buffers[result]}.view(-1).copy_({buffers[operand]}.view(-1))")
    for launch in call.source.launch["launches"]:
        lines += _launch(call.source.name, launch.plain, buffers)
    return lines


def _launch(module: str, launch: Launch, buffers: list[str]) -> list[str]:
    if launch.grid == 0:
        return []
    arguments: list[Any] = [*(buffers[n] for n in launch.buffers), *launch.sizes]
    arguments += [f"{key}={value!r}" for key, value in launch.constants.items()]
    arguments += [f"num_warps={launch.warps}", f"num_stages={launch.stages}", "enable_fp_fusion=False"]
    return [f"    {module}.{launch.function}[({launch.grid},)]({', '.join(map(str, arguments))})"]


# The functions of the device library that NumPy calls otherwise; `math` has the rest.
_IN_NUMPY = {
    **{f"a{f}": f"arc{f}" for f in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")},
    **{"pow": "power", "nearbyint": "rint", "fabs": "abs", "popc": "bitwise_count"},
}

_LIBDEVICE = """

class Libdevice:
    # The device library for Triton's interpreter, which has none.

    names = {names}

    def __getattr__(self, name):
        function = getattr(np, self.names.get(name, name), None) or np.vectorize(getattr(math, name))

        def call(*args):
            arrays = [a.handle.data if hasattr(a, "handle") else np.asarray(a) for a in args]
            (first, *_) = [a for a in args if hasattr(a, "handle")]
            with np.errstate(all="ignore"):
                result = np.asarray(function(*arrays)).astype(first.handle.data.dtype)
            kind = tl.block_type(first.dtype, list(result.shape)) if result.shape else first.dtype
            return tl.core.tensor(TensorHandle(result, first.dtype), kind)

        return call


if triton.knobs.runtime.interpret:
    from triton.runtime.interpreter import TensorHandle

    for module in [{modules}]:
        if hasattr(module, "libdevice"):
            module.libdevice = Libdevice()
"""


def _test(program: Program) -> str:
    texts = {call.source.name: call.source.text for call in program.calls}
    modules = [name for name, text in texts.items() if "libdevice" in text]
    stand_in = _LIBDEVICE.format(names=_IN_NUMPY, modules=", ".join(modules)) if modules else ""
    imports = "".join(f"import {name}\n" for name in modules)
    return f"""import math
import pathlib

import numpy as np
import torch
import triton
import triton.language as tl

{imports}from {program.name} import {program.name}
{stand_in}
data = np.load(pathlib.Path(__file__).with_name("{program.name}_data.npz"))
device = "cpu" if triton.knobs.runtime.interpret else "cuda"
types = {[aval.dtype.name for _, aval in program.inputs]!r}


def tensor(array, dtype):
    found = torch.from_numpy(array.view(np.int16) if dtype == "bfloat16" else array)
    return (found.view(torch.bfloat16) if dtype == "bfloat16" else found).to(device)


results = {program.name}(*(tensor(data[f"in{{n}}"], dtype) for n, dtype in enumerate(types)))
for n, result in enumerate(results):
    wanted = data[f"expected{{n}}"]
    found = result.cpu()
    found = found.view(torch.int16).numpy().view(np.uint16) if found.dtype == torch.bfloat16 else found.numpy()
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if found.dtype == np.float16 else 1e-4, atol=1e-5)
print("as expected")
"""
