"""NumPy's functions on fuser's arrays, with jax.numpy's names, dtypes and semantics.

Importing this module also puts operators and methods on arrays and tracers.
"""

# ruff: noqa: F401

from __future__ import annotations

import builtins as _builtins
import warnings as _warnings
from typing import Any

import numpy as _np

from fuser.dtypes import finfo, iinfo, isdtype, promote_types, result_type
from fuser.lax.replayed import install as _install_replays
from fuser.lax.results import install as _install
from fuser.lax.values import as_value as _as_value
from fuser.lax.values import axes_given as _axes_given
from fuser.lax.values import broadcast_shapes
from fuser.numpy import array_api as _array_api
from fuser.numpy import fft, linalg
from fuser.numpy import methods as _methods
from fuser.numpy import universal as _universal
from fuser.numpy.bits import packbits, spacing, unpackbits
from fuser.numpy.creation import (
    arange,
    array,
    asarray,
    astype,
    broadcast_arrays,
    empty,
    empty_like,
    eye,
    from_dlpack,
    fromfunction,
    full,
    full_like,
    geomspace,
    identity,
    indices,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from fuser.numpy.files import frombuffer, fromfile, fromiter, fromstring, load, save, savez
from fuser.numpy.histograms import histogram2d, histogramdd
from fuser.numpy.linear import (
    cross,
    diag,
    diagflat,
    diagonal,
    dot,
    einsum,
    einsum_path,
    inner,
    kron,
    matmul,
    matvec,
    outer,
    tensordot,
    trace,
    vander,
    vdot,
    vecdot,
    vecmat,
)
from fuser.numpy.maths import (
    allclose,
    angle,
    array_equal,
    array_equiv,
    bitwise_count,
    clip,
    conj,
    conjugate,
    copysign,
    deg2rad,
    degrees,
    divmod,
    floor_divide,
    fmax,
    fmin,
    fmod,
    frexp,
    heaviside,
    hypot,
    i0,
    imag,
    isclose,
    iscomplex,
    iscomplexobj,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    isreal,
    isrealobj,
    isscalar,
    ldexp,
    logaddexp,
    logaddexp2,
    mod,
    modf,
    nan_to_num,
    rad2deg,
    radians,
    real,
    remainder,
    signbit,
    sinc,
    where,
)
from fuser.numpy.movement import (
    append,
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    expand_dims,
    flip,
    fliplr,
    flipud,
    hsplit,
    hstack,
    matrix_transpose,
    moveaxis,
    permute_dims,
    ravel,
    repeat,
    reshape,
    resize,
    roll,
    rollaxis,
    rot90,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    unstack,
    vsplit,
    vstack,
)
from fuser.numpy.polynomials import (
    poly,
    polyadd,
    polyder,
    polydiv,
    polyfit,
    polyint,
    polymul,
    polysub,
    roots,
    unwrap,
)
from fuser.numpy.positions import (
    c_,
    diag_indices,
    diag_indices_from,
    index_exp,
    ix_,
    mask_indices,
    mgrid,
    ogrid,
    r_,
    s_,
    tril_indices,
    tril_indices_from,
    triu_indices,
    triu_indices_from,
)
from fuser.numpy.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    average,
    count_nonzero,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    max,
    mean,
    min,
    minmax,
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    prod,
    ptp,
    std,
    sum,
    var,
)
from fuser.numpy.selection import (
    choose,
    compress,
    extract,
    piecewise,
    put_along_axis,
    ravel_multi_index,
    select,
    take,
    take_along_axis,
    unravel_index,
)
from fuser.numpy.series import (
    apply_over_axes,
    convolve,
    corrcoef,
    correlate,
    cov,
    delete,
    diff,
    ediff1d,
    gradient,
    insert,
    interp,
    pad,
    polyval,
    trapezoid,
)
from fuser.numpy.sets import (
    argwhere,
    bincount,
    flatnonzero,
    histogram,
    histogram_bin_edges,
    intersect1d,
    isin,
    nonzero,
    setdiff1d,
    setxor1d,
    trim_zeros,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from fuser.numpy.sorting import (
    argpartition,
    argsort,
    digitize,
    lexsort,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    partition,
    percentile,
    quantile,
    searchsorted,
    sort,
    sort_complex,
    top_k,
)
from fuser.numpy.types import Array as ndarray
from fuser.numpy.types import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    float4_e2m1fn,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int1,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    issubdtype,
    uint1,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from fuser.numpy.ufunc import frompyfunc, ufunc
from fuser.numpy.ufuncs import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    around,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cbrt,
    ceil,
    cos,
    cosh,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    fabs,
    float_power,
    floor,
    gcd,
    greater,
    greater_equal,
    invert,
    lcm,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    power,
    reciprocal,
    right_shift,
    rint,
    round,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
)
from fuser.numpy.updates import apply_along_axis, block, fill_diagonal, place, put
from fuser.numpy.vectorize import vectorize
from fuser.numpy.windows import bartlett, blackman, hamming, hanning, kaiser

pi, e, euler_gamma, inf, nan = _np.pi, _np.e, _np.euler_gamma, _np.inf, _np.nan
newaxis = None

single, double, csingle, cdouble = float32, float64, complex64, complex128
generic, number, integer, signedinteger, unsignedinteger = (
    _np.generic,
    _np.number,
    _np.integer,
    _np.signedinteger,
    _np.unsignedinteger,
)
inexact, floating, complexfloating, character, flexible, object_ = (
    _np.inexact,
    _np.floating,
    _np.complexfloating,
    _np.character,
    _np.flexible,
    _np.object_,
)
dtype = _np.dtype
bool = bool_
ComplexWarning = _np.exceptions.ComplexWarning
printoptions, set_printoptions, get_printoptions = _np.printoptions, _np.set_printoptions, _np.get_printoptions
array_repr, array_str = _np.array_repr, _np.array_str
int_, uint, float_, complex_ = int64, uint64, float64, complex128


def _extents(function: str, a: Any) -> tuple[int, ...]:
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if isinstance(a, (list, tuple)):
        message = f"{function} requires ndarray or scalar arguments, got {type(a)}; make it an array with asarray"
        _warnings.warn(message, DeprecationWarning, stacklevel=3)
    return _np.shape(a)


def ndim(a: Any) -> int:
    """The number of dimensions of an array or scalar; a list or tuple is taken with a DeprecationWarning."""
    return len(_extents("ndim", a))


def shape(a: Any) -> tuple[int, ...]:
    """The extents of the dimensions of an array or scalar; a list or tuple is taken with a DeprecationWarning."""
    return _extents("shape", a)


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or the extent along `axis`; a list or tuple is taken with a DeprecationWarning."""
    extents = _extents("size", a)
    if axis is None:
        return int(_np.prod(extents, dtype=_np.int64))
    return int(_np.prod([extents[d] for d in _axes_given(axis)], dtype=_np.int64))


def copy(a: Any, order: Any = None) -> Any:
    """An array with memory of its own."""
    return array(a, copy=True)


def iterable(y: Any) -> _builtins.bool:
    """Whether it can be iterated over."""
    return _builtins.bool(_np.iterable(y))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> _builtins.bool:
    """Whether NumPy's casting rule allows the conversion."""
    return _builtins.bool(
        _np.can_cast(
            getattr(_as_value(from_), "dtype", from_) if not isinstance(from_, (type, str, _np.dtype)) else from_,
            to,
            casting,
        )
    )


__array_api_version__, __array_namespace_info__ = _array_api.VERSION, _array_api.namespace_info
_install(globals(), "fuser.numpy", elementwise=("fuser.numpy.ufuncs", "fuser.numpy.ufunc", "fuser.numpy.maths"))
_DIRECT = """
array asarray power pow shape ndim size iterable can_cast result_type promote_types issubdtype isscalar iscomplexobj isrealobj save savez
from_dlpack einsum_path insert delete
"""  # whose results are no arrays, may be the argument itself, or depend on values
_without = (*_DIRECT.split(), *_universal.NAMES)
_install_replays(globals(), "fuser.numpy", _without, compiled=("median", "percentile", "quantile"))
_universal.install(globals())
