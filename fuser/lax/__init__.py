"""The primitives as functions, with jax.lax's names: dtypes are checked, nothing is promoted, shapes must match."""

# ruff: noqa: F401

from typing import Any as _Any

from fuser import gaps as _gaps
from fuser.lax import linalg
from fuser.lax.associative import associative_scan
from fuser.lax.control import cond, fori_loop, map, scan, switch, while_loop
from fuser.lax.convolution import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv,
    conv_dimension_numbers,
    conv_general_dilated,
    conv_general_dilated_local,
    conv_general_dilated_patches,
    conv_general_permutations,
    conv_general_shape_tuple,
    conv_shape_tuple,
    conv_transpose,
    conv_transpose_shape_tuple,
    conv_with_general_padding,
)
from fuser.lax.elementwise import (
    RoundingMethod,
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitcast_convert_type,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cbrt,
    ceil,
    clamp,
    clz,
    complex,
    conj,
    convert_element_type,
    cos,
    cosh,
    div,
    dtype,
    eq,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    ge,
    gt,
    imag,
    integer_pow,
    is_finite,
    le,
    lgamma,
    log,
    log1p,
    logistic,
    lt,
    max,
    min,
    mul,
    ne,
    neg,
    nextafter,
    population_count,
    pow,
    real,
    reciprocal,
    reduce_precision,
    rem,
    round,
    rsqrt,
    select,
    select_n,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    tan,
    tanh,
)
from fuser.lax.fourier import FftType, fft
from fuser.lax.marks import dce_sink, optimization_barrier, stop_gradient
from fuser.lax.movement import (
    broadcast,
    broadcast_in_dim,
    broadcast_shapes,
    broadcast_to_rank,
    broadcasted_iota,
    collapse,
    concatenate,
    copy,
    empty,
    expand_dims,
    full,
    full_like,
    iota,
    pad,
    reshape,
    rev,
    split,
    squeeze,
    tile,
    transpose,
)
from fuser.lax.others import (
    AccuracyMode,
    DotAlgorithm,
    DotAlgorithmPreset,
    DotDimensionNumbers,
    Precision,
    PrecisionLike,
    RandomAlgorithm,
    Tolerance,
    approx_max_k,
    approx_min_k,
    broadcast_like,
    composite,
    mulhi,
    padtype_to_pads,
    platform_dependent,
    rng_bit_generator,
    scatter_sub,
    shape_as_value,
    stack,
    stage,
    unstack,
)
from fuser.lax.parallel import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pbroadcast,
    pcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
    pvary,
)
from fuser.lax.point_to_point import precv, psend
from fuser.lax.primitives import LAX as _LAX
from fuser.lax.primitives import PRIMITIVES as _PRIMITIVES
from fuser.lax.ragged import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general
from fuser.lax.ragged_exchange import ragged_all_to_all
from fuser.lax.reduce_window import reduce_window, reduce_window_shape_tuple
from fuser.lax.reduction import (
    argmax,
    argmin,
    batch_matmul,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    dot,
    dot_general,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
    sort,
    sort_key_val,
    top_k,
)
from fuser.lax.replayed import install as _install_replays
from fuser.lax.results import install as _install
from fuser.lax.scaled import scaled_dot
from fuser.lax.slicing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    gather,
    index_in_dim,
    index_take,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    slice,
    slice_in_dim,
)
from fuser.lax.solves import custom_linear_solve, custom_root
from fuser.lax.special import (
    bessel_i0e,
    bessel_i1e,
    betainc,
    digamma,
    erf_inv,
    igamma,
    igamma_grad_a,
    igammac,
    polygamma,
    random_gamma_grad,
    zeta,
)
from fuser.lax.tokens import after_all, create_token

globals().update({name: _PRIMITIVES[name] for name in _LAX})
_install(globals(), "fuser.lax")
_DIRECT = """
stop_gradient associative_scan cond fori_loop map scan switch while_loop composite platform_dependent reduce reduce_window
custom_linear_solve custom_root after_all create_token all_gather all_to_all axis_index axis_size pbroadcast pcast pmax pmean
pmin ppermute precv psend pshuffle psum psum_scatter pswapaxes scatter_apply
"""  # which take functions, or stand in traces alone
_install_replays(globals(), "fuser.lax", _DIRECT.split())


_absent = _gaps.absent(__name__)


def __getattr__(name: str) -> _Any:
    """What stands above: layouts over devices."""
    if name != "with_sharding_constraint":
        return _absent(name)
    from fuser.parallel.constraint import with_sharding_constraint

    return globals().setdefault(name, with_sharding_constraint)
