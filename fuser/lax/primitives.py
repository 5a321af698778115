"""The primitives under JAX's names: `fuser.lax.add_p` and so on, for programs that walk graphs or bind primitives.

Those of jax.lax and jax.lax.linalg that there are here; what JAX has as a primitive and fuser as a composition is missing.
"""

from __future__ import annotations

import fuser.ops  # noqa: F401  (registers them)
from fuser.ir.primitive import REGISTRY, Primitive

# Names of JAX whose primitive has a name that differs from the part before "_p".
_OTHER = {
    "add_jaxvals_p": "add_any",
    "linear_solve_p": "custom_linear_solve",
    "scatter_add_p": "scatter-add",
    "scatter_max_p": "scatter-max",
    "scatter_min_p": "scatter-min",
    "scatter_mul_p": "scatter-mul",
}
# Primitives of fuser's own, which JAX composes or has elsewhere.
_OWN = frozenset(
    [
        "bessel_j",
        "bessel_j0",
        "bessel_j1",
        "block_kernel",
        "column_geqrf",
        "column_gesvd",
        "column_getrf",
        "column_orgqr",
        "column_potrf",
        "column_syevd",
        "call_hi_primitive",
        "call_hi_primitive_jvp",
        "complex_digamma",
        "cosine_integral",
        "custom_partitioning",
        "custom_vmap_call",
        "dawsn",
        "dft",
        "dimension_as_value",
        "erfcx",
        "exp1",
        "expi",
        "expn",
        "ffi_call",
        "ffi_effect",
        "fma",
        "fresnel_c",
        "fresnel_s",
        "gcd",
        "hyp1f1",
        "hyp1f1_by_a",
        "hyp1f1_by_b",
        "hyp2f1",
        "hyp2f1_by_a",
        "hyp2f1_by_b",
        "hyp2f1_by_c",
        "inspect_sharding",
        "lcm",
        "linear_call",
        "log1mexp",
        "logaddexp",
        "logaddexp2",
        "loggamma",
        "logit",
        "owens_t",
        "sine_integral",
        "spence",
        "triton_call",
        "wofz",
        "xlog1py",
        "xlogx",
        "xlogy",
        "check",
        "collective_done",
        "collective_group",
        "collective_start",
        "pbroadcast",
        "platform_index",
        "psum_invariant",
        "pvary",
        "shard_map",
        "psum_scatter",
        "sliding_windows",
        "window_product",
        "random_gamma_grad",
        "random_hash",
        "order",
        "scatter_rows",
        "write_window",
        "select_largest",
        "unreduced_psum",
        "preduced",
        "vary_unreduced_cast",
        "reduced_vary_cast",
        "unreduced_reduce_scatter",
        "all_gather_reduced",
        "all_gather_invariant",
    ]
)
# What jax.extend.core.primitives has and jax.lax has not.
_EXTEND = frozenset(
    [
        "add_any",
        "custom_jvp_call",
        "custom_lin",
        "custom_vjp_call",
        "jit",
        "name",
        "random_bits",
        "random_clone",
        "random_fold_in",
        "random_seed",
        "random_split",
        "random_unwrap",
        "random_wrap",
        "remat",
        "cholesky",
        "eig",
        "eigh",
        "geqrf",
        "hessenberg",
        "lu",
        "qr",
        "schur",
        "svd",
        "triangular_solve",
        "tridiagonal",
        "custom_linear_solve",
        "debug_callback",
        "io_callback",
        "pure_callback",
    ]
)

PRIMITIVES: dict[str, Primitive] = {
    **{
        f"{name}_p": p
        for name, p in REGISTRY.items()
        if name not in _OWN and "-" not in name and name != "custom_linear_solve"
    },
    **{name: REGISTRY[own] for name, own in _OTHER.items()},
}
LAX = tuple(n for n in PRIMITIVES if n.removesuffix("_p") not in _EXTEND and n != "add_jaxvals_p")
