"""`sparsify`: a function of arrays as one of sparse arrays too. It is traced, and its operations run by rules for sparse operands.

A rule is a function of arrays and BCOO arrays; BCSR arrays go through coordinates. What has none is refused by name: nothing
becomes dense unasked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.experimental.sparse import movement as V
from fuser.experimental.sparse import products as D
from fuser.experimental.sparse.base import JAXSparse, is_sparse
from fuser.experimental.sparse.bcoo import BCOO, bcoo_sum_duplicates, bcoo_transpose
from fuser.experimental.sparse.bcsr import BCSR
from fuser.ir.graph import Graph, Literal
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.core import bind, type_of
from fuser.trace.stage import stage

Rule = Callable[..., Any]


class SparseTracer:
    """What JAX's other implementation of sparsify traces with; here functions are traced as always, so nothing is one."""


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """`f`, which may be given BCOO and BCSR arrays, and gives some where results are sparse.

    NotImplementedError names the operation that has no rule. `use_tracer` changes nothing.
    """

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten(args, is_sparse)
        found: list[Any] = []

        def flat(*inputs: Any) -> list[Any]:
            result = f(*tree.unflatten(structure, inputs), **kwargs)
            outs, out_tree = tree.flatten(result)
            found.append(out_tree)
            return [as_value(o) for o in outs]

        values = [leaf if is_sparse(leaf) else as_value(leaf) for leaf in leaves]
        types = [ArrayType(v.shape, v.dtype, False) if is_sparse(v) else type_of(v) for v in values]
        results = evaluate(stage(flat, types, getattr(f, "__name__", "sparsify")), values)
        return tree.unflatten(found[0], results)

    return wrapped


def evaluate(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """The results of a graph for arrays and sparse arrays."""
    known: dict[Any, Any] = dict(zip((*graph.constvars, *graph.invars), (*graph.consts, *values)))

    def read(operand: Any) -> Any:
        if type(operand) is Literal:
            return Array(np.asarray(operand.val), operand.aval.weak_type)
        return known[operand]

    for eqn in graph.eqns:
        operands = list(map(read, eqn.invars))
        if any(map(is_sparse, operands)):
            results = _by_rule(eqn.primitive, operands, eqn.params)
        else:
            result = bind(eqn.primitive, *operands, **eqn.params)
            results = result if eqn.primitive.multiple_results else [result]
        known.update(zip(eqn.outvars, results))
    return list(map(read, graph.outvars))


def _by_rule(primitive: Any, operands: list[Any], params: dict[str, Any]) -> list[Any]:
    rule = RULES.get(primitive.name)
    compressed = any(isinstance(o, BCSR) for o in operands)
    if rule is None:
        raise NotImplementedError(
            f"sparse rule for {primitive.name} is not implemented because it would result in dense output. If this is your intent, use "
            "sparse.todense() to convert your argument to a dense array."
        )
    if not compressed or primitive in (while_p, cond_p, scan_p):
        found = rule(*operands, **params)
    else:
        found = rule(*(o.to_bcoo() if isinstance(o, BCSR) else o for o in operands), **params)
        found = BCSR.from_bcoo(found) if isinstance(found, BCOO) and found.n_sparse == 2 else found
    return list(found) if primitive.multiple_results else [found]


# Rules.


def _with(mat: BCOO, data: Any) -> BCOO:
    """The same indices with other data."""
    return BCOO((data, mat.indices), **mat._info._asdict())


def _unary(name: str, linear: bool) -> Rule:
    primitive = REGISTRY[name]

    def rule(mat: BCOO, **params: Any) -> BCOO:
        if not linear and not mat.unique_indices:
            mat = bcoo_sum_duplicates(mat, nse=mat.nse)
        return _with(mat, bind(primitive, mat.data, **params))

    return rule


def _integer_pow(mat: BCOO, y: int) -> BCOO:
    if y <= 0:
        raise NotImplementedError(
            f"sparse rule for integer_pow with non-positive exponent {y} is not implemented because it would result in dense output. "
            "If this is your intent, use sparse.todense() to convert your argument to a dense array."
        )
    return _unary("integer_pow", False)(mat, y=y)  # type: ignore[no-any-return]


def _add(x: Any, y: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        if x.shape != y.shape:
            raise NotImplementedError("Addition between sparse matrices of different shapes.")
        if x.indices is y.indices:
            return _with(x, x.data + y.data)
        if x.indices.ndim != y.indices.ndim or x.data.ndim != y.data.ndim:
            raise NotImplementedError("Addition between sparse matrices with different batch/dense dimensions.")
        n = x.n_batch
        data = fnp.concatenate(V._same_batches([x.data, y.data], n), n)
        return BCOO((data, fnp.concatenate(V._same_batches([x.indices, y.indices], n), n)), shape=x.shape)
    x, y = (x, y) if is_sparse(x) else (y, x)
    if y.shape != np.broadcast_shapes(x.shape, y.shape):
        raise NotImplementedError(
            "Addition between a sparse array X and a dense array Y is not implemented when the output shape is larger than Y.shape. This "
            "is to prevent silent densification of a large sparse array. If this is your intent, you can explicitly cast the sparse array "
            "to a dense matrix."
        )
    return x.todense() + y


def _sub(x: Any, y: Any) -> Any:
    if not (is_sparse(x) and is_sparse(y)):
        raise NotImplementedError("Subtraction between sparse and dense array.")
    return _add(x, _with(y, -y.data))


def _mul(x: Any, y: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        if x.indices is y.indices and x.unique_indices:
            return _with(x, x.data * y.data)
        return D.bcoo_multiply_sparse(x, y)
    x, y = (x, y) if is_sparse(x) else (y, x)
    return _with(x, D.bcoo_multiply_dense(x, y))


def _div(x: Any, y: Any) -> Any:
    if is_sparse(y):
        raise NotImplementedError(
            "Division by a sparse array is not implemented because it would result in dense output. If this is your intent, use "
            "sparse.todense() to convert your arguments to a dense array."
        )
    return _with(x, D.bcoo_multiply_dense(x, 1.0 / y))


def _reduce_sum(mat: BCOO, axes: Sequence[int], **params: Any) -> Any:
    found = V.bcoo_reduce_sum(mat, axes=axes)
    return found.todense() if found.shape == () else found


def _while(
    *operands: Any, cond_jaxpr: Graph, body_jaxpr: Graph, cond_nconsts: int, body_nconsts: int, **params: Any
) -> Any:
    split = cond_nconsts + body_nconsts
    cond_consts, body_consts, init = operands[:cond_nconsts], operands[cond_nconsts:split], operands[split:]
    condition = lambda carry: evaluate(cond_jaxpr, [*cond_consts, *carry])[0]
    body = lambda carry: evaluate(body_jaxpr, [*body_consts, *carry])
    return lax.while_loop(condition, body, list(init))


def _cond(index: Any, *operands: Any, branches: Sequence[Graph], **params: Any) -> Any:
    functions = [functools.partial(_branch, graph) for graph in branches]
    return lax.switch(index, functions, list(operands))


def _branch(graph: Graph, operands: list[Any]) -> list[Any]:
    return evaluate(graph, operands)


def _scan(
    *operands: Any,
    jaxpr: Graph,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool,
    unroll: Any,
    **params: Any,
) -> Any:
    split = num_consts + num_carry
    consts, init, xs = operands[:num_consts], operands[num_consts:split], operands[split:]
    if any(map(is_sparse, xs)):
        raise NotImplementedError(
            "sparse rule for scan over sparse arrays is not implemented; carry them, or close over them"
        )

    def step(carry: Any, x: Any) -> Any:
        found = evaluate(jaxpr, [*consts, *carry, *x])
        return found[:num_carry], found[num_carry:]

    carry, ys = lax.scan(step, list(init), list(xs), length, reverse=reverse, unroll=unroll)
    return [*carry, *ys]


_LINEAR = ("copy", "imag", "neg", "real", "reduce_precision", "convert_element_type", "conj")
_ZERO_PRESERVING = (
    *(
        "abs",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "cbrt",
        "ceil",
        "erf",
        "erf_inv",
        "expm1",
        "floor",
        "log1p",
        "round",
        "sign",
        "sin",
    ),
    *("sinh", "sqrt", "square", "tan", "tanh", "bessel_i1e"),
)
RULES: dict[str, Rule] = {
    **{name: _unary(name, True) for name in _LINEAR if name in REGISTRY},
    **{name: _unary(name, False) for name in _ZERO_PRESERVING if name in REGISTRY},
    "integer_pow": _integer_pow,
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "reduce_sum": _reduce_sum,
    "transpose": lambda mat, permutation: bcoo_transpose(mat, permutation=permutation),
    "broadcast_in_dim": V.bcoo_broadcast_in_dim,
    "concatenate": lambda *operands, dimension: V.bcoo_concatenate(operands, dimension=dimension),
    "conv_general_dilated": D.bcoo_conv_general_dilated,
    "dot_general": D.bcoo_dot_general,
    "dynamic_slice": lambda mat, *starts, slice_sizes: V.bcoo_dynamic_slice(mat, starts, slice_sizes),
    "gather": lambda mat, indices, dimension_numbers, slice_sizes, **params: V.bcoo_gather(
        mat, indices, dimension_numbers, slice_sizes
    ),
    "reshape": V.bcoo_reshape,
    "rev": lambda mat, dimensions: V.bcoo_rev(mat, dimensions),
    "slice": V.bcoo_slice,
    "squeeze": V.bcoo_squeeze,
    "while": _while,
    "cond": _cond,
    "scan": _scan,
}


# Operators and methods.


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method: static arguments stay as they are, and everything else may be sparse."""
    return lambda self, *args, **kwargs: sparsify(lambda x: function(x, *args, **kwargs))(self)


def _indexed(self: Any, index: Any) -> Any:
    return sparsify(lambda x: x[index])(self)


def _sum(self: Any, *args: Any, **kwargs: Any) -> Any:
    return sparsify(lambda x: x.sum(*args, **kwargs))(self)


def _rows(self: Any) -> Any:
    return (self[k] for k in range(self.shape[0]))


def _reshape(self: Any, *shape: Any, order: str = "C") -> Any:
    return sparsify(lambda x: fnp.reshape(x, shape[0] if len(shape) == 1 else shape, order=order))(self)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "__abs__": fnp.abs,
    "__neg__": fnp.negative,
    "__pos__": fnp.positive,
    "__matmul__": fnp.matmul,
    "__mul__": fnp.multiply,
    "__truediv__": fnp.divide,
    "__add__": fnp.add,
    "__sub__": fnp.subtract,
    "__rmatmul__": lambda x, y: fnp.matmul(y, x),
    "__rmul__": lambda x, y: fnp.multiply(y, x),
    "__radd__": lambda x, y: fnp.add(y, x),
    "__rsub__": lambda x, y: fnp.subtract(y, x),
    "__rtruediv__": lambda x, y: fnp.divide(y, x),
}


def _power(self: Any, exponent: Any) -> Any:
    return sparsify(lambda x: x**exponent)(self)


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    return sparsify(lambda x: x.astype(dtype))(self)


for _class in (BCOO, BCSR):
    for _name, _operator in _OPERATORS.items():
        setattr(_class, _name, sparsify(_operator))
    for _name, _function in {"__pow__": _power, "astype": _astype, "sum": _sum, "reshape": _reshape}.items():
        setattr(_class, _name, _function)
for _name, _function in {"__getitem__": _indexed, "__iter__": _rows}.items():
    setattr(BCOO, _name, _function)
__all__ = ["JAXSparse", "SparseTracer", "evaluate", "sparsify"]
