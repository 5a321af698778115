"""Graph → the text of a function on whole JAX arrays, one line an equation: what XLA compiles and fuses by itself.

Elementwise equations are written by the same rules as in kernels; the others have a call of jax.lax each, in `CALLS`.
Random keys are pairs of words along a last dimension. Graphs inside control flow become functions inside the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.tpu import spell
from fuser.backends.tpu.host_calls import HostCall, is_host_call, written
from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.scalar import Scalar
from fuser.ir.types import KEY, SMALL, ArrayType, is_float, short_dtype
from fuser.kernel.decompose import Decomposition
from fuser.kernel.operands import in_order
from fuser.ops.conversion import bitcast_convert_type_p, copy_p
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.cumulative import cumlogsumexp_p, cummax_p, cummin_p, cumprod_p, cumsum_p
from fuser.ops.dot import dot_general_p, window_product_p
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.elementwise import eq_p, gcd_p, lcm_p, ne_p, select_n_p
from fuser.ops.factorisations import lu_p
from fuser.ops.fft import fft_p
from fuser.ops.incomplete import (
    igamma_grad_a_p,
    igamma_p,
    igammac_p,
    random_gamma_grad_p,
    regularized_incomplete_beta_p,
)
from fuser.ops.indexing import GatherScatterMode, gather_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.ops.movement import (
    broadcast_in_dim_p,
    concatenate_p,
    iota_p,
    pad_p,
    reshape_p,
    rev_p,
    slice_p,
    split_p,
    squeeze_p,
    transpose_p,
)
from fuser.ops.random import (
    random_bits_p,
    random_clone_p,
    random_fold_in_p,
    random_hash_p,
    random_seed_p,
    random_split_p,
    random_unwrap_p,
    random_wrap_p,
)
from fuser.ops.reduce import (
    argmax_p,
    argmin_p,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
)
from fuser.ops.reduce_window import reduce_window_max_p, reduce_window_min_p, reduce_window_sum_p
from fuser.ops.remat import optimization_barrier_p
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p
from fuser.ops.sorting import sort_p, top_k_p
from fuser.ops.triangular import triangular_solve_p
from fuser.ops.windows import sliding_windows_p
from fuser.runtime.array import to_numpy

MOST_CONSTANTS = 256  # elements that are written out
WIDE = "a TPU has no {0}; convert to {1} first"


def refusal(aval: ArrayType) -> str | None:
    """Why no TPU program can hold an array of this type, or None."""
    dtype = aval.dtype
    if dtype == KEY or dtype.itemsize < 8 or dtype == np.dtype("complex64"):
        return None if dtype not in SMALL else f"{short_dtype(dtype)} is converted by ml_dtypes, not on a TPU"
    other = "complex64" if dtype.kind == "c" else "float32" if dtype.kind == "f" else f"{dtype.name[:-2]}32"
    return WIDE.format(short_dtype(dtype), other)


def _reduction(name: str) -> Callable[..., str]:
    return lambda eqn, x, axes: f"lax.{name}_p.bind({x}, axes={tuple(axes)}{_REDUCE_MORE.get(name, '')})"


_REDUCTIONS = tuple(f"reduce_{kind}" for kind in ("sum", "prod", "max", "min", "and", "or", "xor"))
_REDUCE_MORE = dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"), ", out_sharding=None")


def _reduction_of(eqn: Eqn) -> Callable[..., str] | None:
    """The call of a primitive that is a reduction of a kind that JAX has."""
    if eqn.primitive.fusion is not Fusion.REDUCE:
        return None
    kind, axes = eqn.primitive.rule("lower")(**eqn.params)
    name = f"reduce_{kind}"
    return (lambda eqn, x, **params: _reduction(name)(eqn, x, axes)) if name in _REDUCTIONS else None


def _extreme(name: str) -> Callable[..., str]:
    return lambda eqn, x, axes, index_dtype: f"lax.{name}({x}, {axes[0]}, {spell.storage(np.dtype(index_dtype))})"


def _dot(eqn: Eqn, x: str, y: str, dimension_numbers: Any, precision: Any = None, **params: Any) -> str:
    """Half precision and small integers are summed in 32 bits; float32 means float32, unless the user asks otherwise."""
    out, given = eqn.outvars[0].aval.dtype, eqn.invars[0].aval.dtype
    sums = np.dtype("float32") if is_float(out) else out if out.kind == "c" else np.dtype("int32")
    wanted = "highest" if precision is None else str(getattr(precision, "name", precision)).lower()
    exact = f', precision="{wanted}"' if given == np.dtype("float32") else ""
    if given == np.bool_:
        x, y = f"{x}.astype(jnp.int32)", f"{y}.astype(jnp.int32)"
    if out.kind in "u":
        sums = out
    numbers = tuple(tuple(map(tuple, pair)) for pair in dimension_numbers)
    text = f"lax.dot_general({x}, {y}, {numbers}{exact}, preferred_element_type={spell.storage(sums)})"
    return f"({text} != 0)" if out == np.bool_ else text if out == sums else f"{text}.astype({spell.storage(out)})"


def _sort(eqn: Eqn, *xs: str, dimension: int, is_stable: bool = True, num_keys: int = 1) -> str:
    return f"lax.sort(({', '.join(xs)},), dimension={dimension}, is_stable={is_stable}, num_keys={num_keys})"


def _top_k(eqn: Eqn, x: str, k: int, axis: int | None = None, **params: Any) -> str:
    last = eqn.invars[0].aval.ndim - 1
    return f"lax.top_k({x}, {k})" if axis in (None, last, -1) else f"lax.top_k({x}, {k}, axis={axis})"


def _mode(mode: Any) -> str:
    found = GatherScatterMode.from_any(mode)
    return f"lax.GatherScatterMode.{found.name}"


def _gather(eqn: Eqn, x: str, i: str, dimension_numbers: Any, slice_sizes: Any, mode: Any = None, **params: Any) -> str:
    fill = params.get("fill_value")
    more = "" if fill is None else f", fill_value={fill!r}"
    return f"lax.gather({x}, {i}, lax.{_plain(dimension_numbers)}, {tuple(slice_sizes)}, mode={_mode(mode)}{more})"


def _scatter(name: str) -> Callable[..., str]:
    function = name.replace("-", "_")

    def call(eqn: Eqn, x: str, i: str, updates: str, dimension_numbers: Any, mode: Any = None, **params: Any) -> str:
        numbers = f"lax.{_plain(dimension_numbers)}"
        flags = "".join(f", {flag}=True" for flag in ("indices_are_sorted", "unique_indices") if params.get(flag))
        return f"lax.{function}({x}, {i}, {updates}, {numbers}, mode={_mode(mode)}{flags})"

    return call


def _plain(numbers: Any) -> str:
    """Dimension numbers as text, NumPy's integers as Python's."""
    fields = (f"{name}={tuple(map(int, value))}" for name, value in zip(numbers._fields, numbers))
    return f"{type(numbers).__name__}({', '.join(fields)})"


def _broadcast(eqn: Eqn, x: str, shape: Any, broadcast_dimensions: Any) -> str:
    return f"lax.broadcast_in_dim({x}, {tuple(shape)}, {tuple(broadcast_dimensions)})"


def _slice(eqn: Eqn, x: str, start_indices: Any, limit_indices: Any, strides: Any = None) -> str:
    steps = "" if strides is None or set(strides) == {1} else f", {tuple(strides)}"
    return f"lax.slice({x}, {tuple(start_indices)}, {tuple(limit_indices)}{steps})"


def _iota(eqn: Eqn, dtype: Any, shape: Any, dimension: int) -> str:
    return f"lax.broadcasted_iota({spell.storage(np.dtype(dtype))}, {tuple(shape)}, {dimension})"


def _convolution(
    eqn: Eqn, x: str, y: str, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None,
    **geometry: Any,
) -> str:  # fmt: skip
    """As XLA's own; float32 means float32, unless the user asks otherwise."""
    out, given = eqn.outvars[0].aval.dtype, eqn.invars[0].aval.dtype
    if any(pad < 0 for pads in geometry["padding"] for pad in pads):  # XLA on a CPU reads beyond the operand for it
        config = [(0, 0, 0)] * eqn.invars[0].aval.ndim
        for dim, (low, high), step in zip(
            dimension_numbers.lhs_spec[2:], geometry["padding"], geometry["lhs_dilation"]
        ):
            config[dim] = (low, high, step - 1)
        x = f"lax.pad({x}, jnp.zeros((), {spell.storage(given)}), {tuple(config)})"
        count = len(geometry["padding"])
        geometry = {**geometry, "padding": ((0, 0),) * count, "lhs_dilation": (1,) * count}
    wanted = "highest" if precision is None else str(getattr(precision, "name", precision)).lower()
    exact = f', precision="{wanted}"' if given == np.dtype("float32") else ""
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count")
    given_as = ", ".join(f"{name}={geometry[name]}" for name in names)
    numbers = f"lax.{_plain(dimension_numbers)}"
    element = f", preferred_element_type={spell.storage(out)}" if out != given else ""
    return f"lax.conv_general_dilated({x}, {y}, {given_as}, dimension_numbers={numbers}{exact}{element})"


def _windows(reduction: str) -> Callable[..., str]:
    def call(eqn: Eqn, x: str, **params: Any) -> str:
        given = ", ".join(f"{name}={value}" for name, value in params.items())
        return f"lax.reduce_window_{reduction}_p.bind({x}, {given})"

    return call


def _sliding(eqn: Eqn, x: str, dimensions: Any, window: Any, strides: Any, dilation: Any) -> str:
    """One gather a dimension, whose places in the window go last."""
    shape, ndim = eqn.outvars[0].aval.shape, eqn.invars[0].aval.ndim
    for n, (d, w, s, apart) in enumerate(zip(dimensions, window, strides, dilation)):
        places = f"(jnp.arange({shape[d]}) * {s})[:, None] + jnp.arange({w}) * {apart}"
        x = f"jnp.moveaxis(jnp.take({x}, {places}, axis={d}), {d + 1}, {ndim + n})"
    return x


def _triangular(eqn: Eqn, a: str, b: str, **params: Any) -> str:
    flags = "".join(f", {name}=True" for name, value in params.items() if value)
    return f"lax.linalg.triangular_solve({a}, {b}{flags})"


def _svd(eqn: Eqn, x: str, full_matrices: bool = True, compute_uv: bool = True) -> str:
    """The singular values come first."""
    if not compute_uv:
        return f"({_LINALG}.svd({x}, compute_uv=False),)"
    return f"[{_LINALG}.svd({x}, full_matrices={full_matrices})[n] for n in (1, 0, 2)]"


_EXACT = ("add", "sub", "mul", "max", "min", "neg", "abs", "select")
_LINALG = "lax.linalg"

# How each primitive that is not elementwise is called: `(eqn, *operands, **params)` gives an expression.
CALLS: dict[Primitive, Callable[..., str]] = {
    **{p: _reduction(p.name) for p in (reduce_sum_p, reduce_prod_p, reduce_max_p, reduce_min_p)},
    **{p: _reduction(p.name) for p in (reduce_and_p, reduce_or_p, reduce_xor_p)},
    **{p: _extreme(p.name) for p in (argmax_p, argmin_p)},
    **{
        p: lambda eqn, x, axis, reverse=False, name=p.name: f"lax.{name}({x}, axis={axis}, reverse={reverse})"
        for p in (cumsum_p, cumprod_p, cummax_p, cummin_p, cumlogsumexp_p)
    },
    **{p: _scatter(p.name) for p in (scatter_p, scatter_add_p, scatter_mul_p, scatter_min_p, scatter_max_p)},
    **{p: lambda eqn, *xs, name=p.name: f"lax.{name}({', '.join(xs)})" for p in (igamma_p, igammac_p)},
    **{p: lambda eqn, *xs, name=p.name: f"lax.{name}({', '.join(xs)})" for p in (igamma_grad_a_p, random_gamma_grad_p)},
    regularized_incomplete_beta_p: lambda eqn, *xs: f"lax.betainc({', '.join(xs)})",
    gcd_p: lambda eqn, x, y: f"jnp.gcd({x}, {y})",
    lcm_p: lambda eqn, x, y: f"jnp.lcm({x}, {y})",
    dot_general_p: _dot,
    window_product_p: _dot,
    conv_general_dilated_p: _convolution,
    reduce_window_sum_p: _windows("sum"),
    reduce_window_max_p: _windows("max"),
    reduce_window_min_p: _windows("min"),
    sliding_windows_p: _sliding,
    sort_p: _sort,
    top_k_p: _top_k,
    gather_p: _gather,
    broadcast_in_dim_p: _broadcast,
    reshape_p: lambda eqn, x, new_sizes, dimensions=None: f"lax.reshape({x}, {tuple(new_sizes)})",
    transpose_p: lambda eqn, x, permutation: f"lax.transpose({x}, {tuple(permutation)})",
    squeeze_p: lambda eqn, x, dimensions: f"lax.squeeze({x}, {tuple(dimensions)})",
    rev_p: lambda eqn, x, dimensions: f"lax.rev({x}, {tuple(dimensions)})",
    slice_p: _slice,
    pad_p: lambda eqn, x, value, padding_config: f"lax.pad({x}, {value}, {tuple(map(tuple, padding_config))})",
    concatenate_p: lambda eqn, *xs, dimension: f"lax.concatenate([{', '.join(xs)}], {dimension})",
    split_p: lambda eqn, x, sizes, axis: f"lax.split({x}, {tuple(sizes)}, {axis})",
    iota_p: _iota,
    dynamic_slice_p: lambda eqn, x, *starts, slice_sizes: (
        f"lax.dynamic_slice_p.bind({', '.join([x, *starts])}, slice_sizes={tuple(slice_sizes)})"
    ),
    dynamic_update_slice_p: lambda eqn, *xs: f"lax.dynamic_update_slice_p.bind({', '.join(xs)})",
    optimization_barrier_p: lambda eqn, x, **params: f"lax.optimization_barrier({x})",
    cholesky_p: lambda eqn, x: f"{_LINALG}.cholesky({x}, symmetrize_input=False)",
    qr_p: lambda eqn, x, full_matrices=False: f"{_LINALG}.qr({x}, full_matrices={full_matrices})",
    eigh_p: lambda eqn, x, lower=True: f"{_LINALG}.eigh({x}, lower={lower}, symmetrize_input=False)",
    svd_p: _svd,
    lu_p: lambda eqn, x: f"{_LINALG}.lu({x})",
    fft_p: lambda eqn, x, fft_type, fft_lengths: f"lax.fft({x}, {fft_type.name!r}, {tuple(fft_lengths)})",
    triangular_solve_p: _triangular,
}


# The same of random keys, by the texts of the operands.
KEYS = {
    random_wrap_p: "{0}",
    random_unwrap_p: "{0}",
    random_clone_p: "{0}",
    copy_p: "{0}",
    eq_p: "jnp.all({0} == {1}, axis=-1)",
    ne_p: "jnp.any({0} != {1}, axis=-1)",
    select_n_p: "jnp.where({0}[..., None], {2}, {1})",
    random_fold_in_p: "fold_in({0}, {1})",
    random_hash_p: "hashed({0}, {1}, {2})",
    random_seed_p: "seed({0})",
}


class Arrays:
    """Writes the body of one function, `owner`. `names` are the texts of values known so far."""

    def __init__(self, depth: int = 1, owner: str = "") -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.names: dict[Operand, str] = {}
        self.count = 0
        self.owner = owner
        self.host_calls: list[HostCall] = []

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str = "a") -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"{letter}{self.count - 1}"

    def operand(self, value: Operand) -> str:
        """A value as an array of exactly its type."""
        if isinstance(value, Literal):
            if value.aval.dtype == KEY:
                words = [int(word) for word in np.asarray(value.val)["fry"]]
                return f"jnp.array({words}, jnp.uint32)"
            return f"jnp.asarray({spell.literal(value.val, value.aval.dtype)}, {spell.storage(value.aval.dtype)})"
        return self.names[value]

    def constant(self, value: Any) -> str:
        """An array that a graph within control flow closed over."""
        array = to_numpy(value)
        if array.size > MOST_CONSTANTS or array.dtype == KEY:
            raise UnsupportedError(
                f"a body of control flow closes over an array of {array.size} elements; give it to the loop as an operand"
            )
        if array.dtype.kind in "fcV" or array.dtype.name == "bfloat16":
            text = f"[{', '.join(spell.literal(v, array.dtype) for v in array.reshape(-1))}]"
            return f"jnp.array({text}, {spell.storage(array.dtype)}).reshape({array.shape})"
        return f"jnp.array({array.tolist()}, {spell.storage(array.dtype)})"

    def graph(self, graph: Graph, skip: Sequence[Eqn] = ()) -> list[str]:
        """Write all equations; the texts of the results."""
        for eqn in graph.eqns:
            if eqn not in skip:
                self.eqn(eqn)
        return [self.operand(v) for v in graph.outvars]

    def eqn(self, eqn: Eqn) -> None:
        """Write one equation."""
        for aval in (v.aval for v in (*eqn.invars, *eqn.outvars)):
            reason = refusal(aval)
            if reason is not None:
                raise UnsupportedError(f"{eqn.primitive.name} ({eqn.source.short}) cannot run on a TPU: {reason}")
        keys = any(v.aval.dtype == KEY for v in (*eqn.invars, *eqn.outvars))
        if eqn.primitive.fusion is Fusion.CONTROL:
            from fuser.backends.tpu.control_flow import write_control

            write_control(self, eqn)
        elif keys and not is_host_call(eqn):
            self._keys(eqn)
        elif eqn.primitive.fusion is Fusion.ELEMENTWISE:
            self._elementwise(eqn)
        else:
            self._call(eqn)

    def _call(self, eqn: Eqn) -> None:
        call = CALLS.get(eqn.primitive) or _reduction_of(eqn)
        if call is None and is_host_call(eqn):
            call = self._host_call
        if call is None:
            raise UnsupportedError(f"the tpu backend has no form of {eqn.primitive.name} ({eqn.source.short})")
        args = [self.operand(v) for v in eqn.invars]
        for v in eqn.outvars:
            self.names[v] = self.fresh()
        several = eqn.primitive.multiple_results
        targets = ", ".join(self.names[v] for v in eqn.outvars) + ("," if several and len(eqn.outvars) == 1 else "")
        text = call(eqn, *args, **eqn.params)
        self.line(f"{targets} = {text}")

    def _host_call(self, eqn: Eqn, *args: str, **params: Any) -> str:
        call = HostCall(f"host_{len(self.host_calls)}_{self.owner}", eqn)
        self.host_calls.append(call)
        return written(call, args)

    def _elementwise(self, eqn: Eqn) -> None:
        inputs = [
            Scalar("const", (), v.aval.dtype, v.val) if isinstance(v, Literal) else Scalar("input", (), v.aval.dtype, v)
            for v in eqn.invars
        ]
        if eqn.primitive is bitcast_convert_type_p:
            target = spell.storage(eqn.outvars[0].aval.dtype)
            self._assign(eqn.outvars[0], f"lax.bitcast_convert_type({self.operand(eqn.invars[0])}, {target})")
            return
        root = Decomposition(spell.TABLE.has).node(eqn.primitive.rule("lower")(*inputs, **eqn.params))
        # One operation rounded once is the same in half precision, and leaves XLA no conversions to place.
        single = root.op in _EXACT and all(a.op in ("input", "const") for a in root.args)
        known = {a: self.names[a.attr] for a in root.args if a.op == "input"} if single else {}
        text = self.expression(root, known)
        out = eqn.outvars[0].aval
        if not any(isinstance(v, Var) and v.aval.shape == out.shape for v in eqn.invars):
            text = f"jnp.full({out.shape}, {text}, {spell.storage(out.dtype)})"
        elif (spell.local(root.dtype) != out.dtype and not single) or root.op == "const":
            text = f"jnp.asarray({text}, {spell.storage(out.dtype)})"
        if root.op == "const" and out.shape and "jnp.full" not in text:
            text = f"jnp.full({out.shape}, {text}, {spell.storage(out.dtype)})"
        if text.isidentifier():
            self.names[eqn.outvars[0]] = text
        else:
            self._assign(eqn.outvars[0], text)

    def expression(self, root: Scalar, known: dict[Scalar, str]) -> str:
        """Lines for all nodes that `root` needs, each once; its own text."""
        for node in in_order([root], known):
            if node.op == "const":
                known[node] = spell.literal(node.attr, node.dtype)
            elif node.op == "input":
                half = spell.local(node.dtype) != node.dtype
                known[node] = f"{self.names[node.attr]}.astype(jnp.float32)" if half else self.names[node.attr]
            else:
                name = self.fresh()
                args = [known[a] for a in node.args]
                if all(a.op == "const" for a in node.args):
                    args = [spell.typed(a.attr, a.dtype) for a in node.args]
                self.line(f"{name} = {spell.TABLE.operation(node, args)}")
                known[node] = name
        return known[root]

    def _assign(self, var: Var, text: str) -> None:
        self.names[var] = self.fresh()
        self.line(f"{self.names[var]} = {text}")

    def _keys(self, eqn: Eqn) -> None:
        """Keys are unsigned words, with two of them along a last dimension."""
        primitive, args = eqn.primitive, [self.operand(v) for v in eqn.invars]
        if primitive in KEYS:
            text = KEYS[primitive].format(*args)
        elif primitive in (random_bits_p, random_split_p):
            text = f"{primitive}({args[0]}, {tuple(eqn.params['shape'])})"
            if primitive is random_bits_p and eqn.params["bit_width"] != 32:
                text += f".astype(jnp.uint{eqn.params['bit_width']})"
        else:
            text = self._moved_keys(eqn, args)
        self._assign(eqn.outvars[0], text)

    def _moved_keys(self, eqn: Eqn, args: list[str]) -> str:
        """Movement of keys: of both words alike."""
        if eqn.primitive.fusion is not Fusion.MOVEMENT or len(eqn.outvars) > 1:
            raise UnsupportedError(f"the tpu backend has no form of {eqn.primitive.name} of keys ({eqn.source.short})")
        moving = [isinstance(v, Var) and v.aval.dtype == KEY for v in eqn.invars]
        words = [[f"{a}[..., {n}]" if m else a for a, m in zip(args, moving)] for n in (0, 1)]
        call = CALLS[eqn.primitive]
        both = [call(eqn, *word, **eqn.params) for word in words]
        return f"jnp.stack([{both[0]}, {both[1]}], axis=-1)"
