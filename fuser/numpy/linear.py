"""Products of vectors, matrices and tensors: dot, matmul, tensordot, einsum (paths by opt_einsum) and what is near them.

Everything becomes dot_general, with batch dimensions first; products of elements alone stay elementwise.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.config import config
from fuser.errors import TypeRuleError
from fuser.ir.dim import Dim, maximum, minimum
from fuser.ir.extents import common_shape
from fuser.lax.values import as_value, axes_of, broadcast_to, convert, promote
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import asarray, iota
from fuser.ops.dot import dot_general_p
from fuser.trace.core import bind


def contract(
    x: Any, y: Any, contracted: Any, batch: Any = ((), ()), precision: Any = None, preferred: Any = None
) -> Any:
    """dot_general of two operands of one dtype, their result weak only where both are; it names its dtype, as JAX's does."""
    numbers = (tuple(map(tuple, contracted)), tuple(map(tuple, batch)))
    if preferred is None:
        element = None if x.weak_type and y.weak_type else x.dtype
    else:
        element = dtypes.requested(preferred, "dot")
    precision = (config.default_matmul_precision or None) if precision is None else precision
    return bind(dot_general_p, x, y, dimension_numbers=numbers, precision=precision, preferred_element_type=element)


def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: None = None) -> Any:
    """The sum of products over the last dimension of `a` and the second-to-last (or only) one of `b`."""
    a, b = promote("dot", a, b)
    if not a.ndim or not b.ndim:
        product = U.multiply(a, b)
        return product if preferred_element_type is None else convert(product, dtypes.requested(preferred_element_type))
    other = 0 if b.ndim == 1 else b.ndim - 2
    if a.shape[-1] != b.shape[other]:
        raise TypeRuleError(
            f"dot needs equal extents, got shapes {a.shape} and {b.shape}: {a.shape[-1]} against {b.shape[other]}"
        )
    return contract(a, b, ((a.ndim - 1,), (other,)), precision=precision, preferred=preferred_element_type)


def matmul(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: None = None
) -> Any:
    """The matrix product; leading dimensions broadcast, vectors count as a row on the left and a column on the right."""
    a, b = promote("matmul", a, b)
    if not a.ndim or not b.ndim:
        raise ValueError("matmul takes arrays of at least 1 dimension, got a scalar; use multiply")
    other = 0 if b.ndim == 1 else b.ndim - 2
    if a.shape[-1] != b.shape[other]:
        raise TypeRuleError(
            f"matmul needs equal inner extents, got shapes {a.shape} and {b.shape}: {a.shape[-1]} against {b.shape[other]}"
        )
    options = {"precision": precision, "preferred": preferred_element_type}
    if b.ndim <= 2:
        return contract(a, b, ((a.ndim - 1,), (other,)), **options)
    if a.ndim <= 2:
        result = contract(a, b, ((a.ndim - 1,), (other,)), **options)
        return result if a.ndim == 1 else V.moveaxis(result, 0, -2)
    return _batched(a, b, options)


def _batched(a: Any, b: Any, options: dict[str, Any]) -> Any:
    lead = common_shape(a.shape[:-2], b.shape[:-2])
    if 1 in lead:  # dimensions of extent 1 in both are none of the product's
        kept = tuple(e for e in lead if e != 1)
        rest = [
            V.reshape(
                x, (*(e for e, o in zip((1,) * (len(lead) + 2 - x.ndim) + x.shape, lead) if o != 1), *x.shape[-2:])
            )
            for x in (a, b)
        ]
        result = matmul(*rest, precision=options["precision"], preferred_element_type=options["preferred"])
        return V.reshape(result, (*lead, *result.shape[len(kept) :]))
    a, b = broadcast_to(a, (*lead, *a.shape[-2:])), broadcast_to(b, (*lead, *b.shape[-2:]))
    batch = tuple(range(len(lead)))
    return contract(a, b, ((a.ndim - 1,), (b.ndim - 2,)), (batch, batch), **options)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The dot product of the flattened arrays, the first one conjugated."""
    return dot(M.conj(V.ravel(a)), V.ravel(b), precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The dot products of vectors along `axis`, the first ones conjugated."""
    a, b = promote("vecdot", x1, x2)
    a, b = V.moveaxis(a, axis, -1), V.moveaxis(b, axis, -1)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"vecdot: axes must match; got shapes {a.shape} and {b.shape} with {axis=} at the end")
    shape = common_shape(a.shape, b.shape)
    a, b = broadcast_to(M.conj(a), shape), broadcast_to(b, shape)
    batch = tuple(range(len(shape) - 1))
    return contract(a, b, ((a.ndim - 1,), (b.ndim - 1,)), (batch, batch), precision, preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The sum of products over the last dimension of both."""
    a, b = promote("inner", a, b)
    if not a.ndim or not b.ndim:
        return U.multiply(a, b)
    return contract(a, b, ((a.ndim - 1,), (b.ndim - 1,)), precision=precision, preferred=preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Any:
    """Every product of an element of `a` and one of `b`, as a matrix."""
    a, b = promote("outer", a, b)
    return U.multiply(V.reshape(a, (a.size, 1)), V.reshape(b, (1, b.size)))


def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The sum of products over the given dimensions: so many of the last and first, or two lists."""
    a, b = promote("tensordot", a, b)
    if np.ndim(axes) == 0:
        count = int(axes)
        if count > min(a.ndim, b.ndim):
            raise TypeRuleError(
                f"tensordot over {count} dimensions needs as many in both arrays, got shapes {a.shape} and {b.shape}"
            )
        contracted = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    else:
        first, second = axes
        contracted = (
            axes_of(tuple(first) if np.ndim(first) else first, a.ndim),
            axes_of(tuple(second) if np.ndim(second) else second, b.ndim),
        )
    return contract(a, b, contracted, precision=precision, preferred=preferred_element_type)


# einsum.


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    _dot_general: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Sums of products in Einstein's notation; pairs are contracted in the order that opt_einsum finds cheapest."""
    import opt_einsum

    if not isinstance(subscripts, str):
        operands = (subscripts, *operands)
        values = [asarray(o) if k % 2 == 0 and k + 1 < len(operands) else o for k, o in enumerate(operands)]
        text, arrays = _interleaved(values)
    else:
        text, arrays = subscripts, [as_value(o, "einsum") for o in operands]
    values = promote("einsum", *arrays)
    shapes = [tuple(map(operator.index, v.shape)) for v in values]  # of symbolic extents the witness
    inputs, output, _ = opt_einsum.parser.parse_einsum_input((text, *shapes), shapes=True)
    path = opt_einsum.contract_path(
        f"{inputs}->{output}", *shapes, shapes=True, optimize="auto" if optimize is True else optimize or "auto"
    )[0]
    terms = list(zip(inputs.split(","), values))
    for positions in path:
        chosen = [terms.pop(p) for p in sorted(positions, reverse=True)][::-1]
        needed = set(output).union(*(labels for labels, _ in terms))
        terms.append(_combine(chosen, needed, precision, preferred_element_type))
    labels, result = terms[0]
    result = _arranged(_summed(labels, result, set(output)), output)
    return (
        result
        if preferred_element_type is None
        else convert(result, dtypes.requested(preferred_element_type, "einsum"))
    )


def _interleaved(values: list[Any]) -> tuple[str, list[Any]]:
    """`einsum(x, [0, 1], y, [1, 2], [0, 2])` as subscripts."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def spell(labels: Sequence[Any]) -> str:
        return "".join("..." if label is Ellipsis else letters[label] for label in labels)

    pairs = len(values) // 2
    text = ",".join(spell(values[2 * k + 1]) for k in range(pairs))
    return text + (f"->{spell(values[-1])}" if len(values) % 2 else ""), [values[2 * k] for k in range(pairs)]


def _combine(chosen: list[tuple[str, Any]], needed: set[str], precision: Any, preferred: Any) -> tuple[str, Any]:
    while len(chosen) > 1:
        later = needed.union(*(labels for labels, _ in chosen[2:]))
        pair = _pair(
            *_ready(chosen[0], later | set(chosen[1][0])),
            *_ready(chosen[1], later | set(chosen[0][0])),
            later,
            precision,
            preferred,
        )
        chosen = [pair, *chosen[2:]]
    return _ready(chosen[0], needed)


def _ready(term: tuple[str, Any], needed: set[str]) -> tuple[str, Any]:
    """Repeated labels made diagonals, and labels that nobody needs summed."""
    return _summed(*_diagonals(*term), needed)


def _diagonals(labels: str, x: Any) -> tuple[str, Any]:
    for label in set(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = diagonal(x, 0, first, second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    return labels, x


def _summed(labels: str, x: Any, needed: set[str]) -> tuple[str, Any]:
    axes = tuple(d for d, label in enumerate(labels) if label not in needed)
    if not axes:
        return labels, x
    return "".join(label for label in labels if label in needed), R.sum(
        x, axes, promote_integers=False
    ) if x.dtype != bool else R.any(x, axes)


def _arranged(term: tuple[str, Any], output: str) -> Any:
    labels, x = term
    return x if labels == output else V.transpose(x, tuple(labels.index(label) for label in output))


def _pair(a: str, x: Any, b: str, y: Any, needed: set[str], precision: Any, preferred: Any) -> tuple[str, Any]:
    shared = [label for label in a if label in b]
    # A dimension of extent 1 beside a longer one broadcasts, as in NumPy.
    for label in list(shared):
        left, right = x.shape[a.index(label)], y.shape[b.index(label)]
        if left != right:
            shared.remove(label)
            if left == 1:
                x, a = V.squeeze(x, a.index(label)), a.replace(label, "")
            else:
                y, b = V.squeeze(y, b.index(label)), b.replace(label, "")
    batch = [label for label in shared if label in needed]
    summed = [label for label in shared if label not in needed]
    if x.dtype != y.dtype:  # one is a product of the preferred dtype
        x, y = promote("einsum", x, y)
    if not summed:
        element = x.dtype if preferred is None else dtypes.requested(preferred, "einsum")
        if element.itemsize > x.dtype.itemsize:
            x, y = convert(x, element), convert(y, element)
        return _product(a, x, b, y)
    numbers = tuple(tuple(labels.index(label) for label in summed) for labels in (a, b))
    batches = tuple(tuple(labels.index(label) for label in batch) for labels in (a, b))
    rest = "".join(label for label in a if label not in shared) + "".join(label for label in b if label not in shared)
    return "".join(batch) + rest, contract(x, y, numbers, batches, precision, preferred)


def _product(a: str, x: Any, b: str, y: Any) -> tuple[str, Any]:
    """A product that sums nothing, elementwise over all labels."""
    labels = a + "".join(label for label in b if label not in a)
    order = sorted(range(len(b)), key=lambda d: labels.index(b[d]))
    y = V.transpose(y, order)
    present = dict(zip(b, (y.shape[order.index(d)] for d in range(len(b)))))
    x = V.reshape(x, x.shape + (1,) * (len(labels) - len(a)))
    return labels, U.multiply(x, V.reshape(y, tuple(present.get(label, 1) for label in labels)))


# Matrices.


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of the two dimensions, as a last dimension."""
    x = as_value(a, "diagonal")
    if x.ndim < 2:
        raise ValueError(f"diagonal takes at least 2 dimensions, got shape {x.shape}")
    x = V.moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    size = maximum(minimum(rows, columns - offset) if offset >= 0 else minimum(rows + offset, columns), 0)
    down, right = max(-offset, 0), max(offset, 0)
    if type(size) is Dim:
        along = iota((size,), 0)
        return x[..., U.add(along, down), U.add(along, right)]
    x = x[..., down : down + size, right : right + size]
    if not size:
        return V.reshape(x, (*x.shape[:-2], 0))
    flat = V.reshape(x, (*x.shape[:-2], size * size))
    return flat[..., :: size + 1]


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """The sum of the diagonal."""
    return R.sum(diagonal(a, offset, axis1, axis2), -1, dtype)


def diag(v: Any, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or the matrix with a vector there."""
    x = as_value(v, "diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError(f"diag takes 1 or 2 dimensions, got shape {x.shape}")
    from fuser.numpy.creation import eye, zeros_like

    size = x.shape[0] + abs(k)
    padded = (
        V.concatenate([zeros_like(x, shape=(abs(k),)), x])
        if k > 0
        else V.concatenate([x, zeros_like(x, shape=(abs(k),))])
    )
    return M.where(eye(size, size, k, dtype=bool), padded, zeros_like(x, shape=()))


def diagflat(v: Any, k: int = 0) -> Any:
    """The matrix with the flattened array on its k-th diagonal."""
    return diag(V.ravel(v), k)


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product: every element of `a` times the whole of `b`, in blocks."""
    a, b = promote("kron", a, b)
    rank = max(a.ndim, b.ndim)
    left, right = (1,) * (rank - a.ndim) + a.shape, (1,) * (rank - b.ndim) + b.shape
    x = V.reshape(a, tuple(e for extent in left for e in (extent, 1)))
    y = V.reshape(b, tuple(e for extent in right for e in (1, extent)))
    return V.reshape(U.multiply(x, y), tuple(m * n for m, n in zip(left, right)))


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of 2 or 3 components."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promote("cross", a, b)
    a, b = V.moveaxis(a, axisa, -1), V.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(f"cross takes vectors of 2 or 3 components, got shapes {a.shape} and {b.shape}")
    if a.shape[-1] == b.shape[-1] == 2:
        return U.subtract(a[..., 0] * b[..., 1], a[..., 1] * b[..., 0])
    (x1, y1, z1), (x2, y2, z2) = (_components(v) for v in (a, b))
    return V.moveaxis(V.stack([y1 * z2 - z1 * y2, z1 * x2 - x1 * z2, x1 * y2 - y1 * x2], -1), -1, axisc)


def _components(v: Any) -> tuple[Any, Any, Any]:
    from fuser.numpy.creation import zeros_like

    return v[..., 0], v[..., 1], v[..., 2] if v.shape[-1] == 3 else zeros_like(v[..., 0])


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The matrix of the powers of a vector."""
    x = as_value(x, "vander")
    if x.ndim != 1:
        raise ValueError(f"vander takes 1 dimension, got shape {x.shape}")
    count = x.shape[0] if N is None else N
    if not count:
        return broadcast_to(x[:, None], (x.shape[0], 0))
    powers = range(count) if increasing else range(count - 1, -1, -1)
    return V.stack([U.power(x, p) for p in powers], 1)


def _ranks(function: str, x1: Any, x2: Any, first: int, second: int) -> None:
    """ValueError where an operand has fewer dimensions than the function's core."""
    for number, (x, least) in enumerate(((x1, first), (x2, second)), 1):
        if np.ndim(x) < least:
            raise ValueError(
                f"{function}: input with shape {np.shape(x)} does not have enough dimensions for all core dimensions: x{number} needs {least}"
            )


def matvec(x1: Any, x2: Any, /) -> Any:
    """Matrices times vectors, leading dimensions broadcast. ValueError unless the first has 2 dimensions or more."""
    _ranks("matvec", x1, x2, 2, 1)
    return V.squeeze(matmul(x1, V.expand_dims(x2, -1)), -1)


def vecmat(x1: Any, x2: Any, /) -> Any:
    """Vectors (conjugated) times matrices, leading dimensions broadcast. ValueError unless the second has 2 dimensions or more."""
    _ranks("vecmat", x1, x2, 1, 2)
    return V.squeeze(matmul(V.expand_dims(M.conj(x1), -2), x2), -2)


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[list[tuple[int, ...]], Any]:
    """The order of contractions that `einsum` follows: pairs of operands' numbers, and opt_einsum's description."""
    import opt_einsum

    if isinstance(optimize, bool):
        optimize = "optimal" if optimize else [tuple(range(len(operands)))]
    return opt_einsum.contract_path(subscripts, *operands, optimize=optimize)
