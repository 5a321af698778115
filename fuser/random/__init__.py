"""Random numbers from explicit keys, with jax.random's names and numbers: the same key gives the same bits."""

# ruff: noqa: F401

from fuser.gaps import absent
from fuser.lax.layouts import install as _install_layouts
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.replayed import install as _install_replays
from fuser.random import attributes as _attributes
from fuser.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from fuser.random.discrete import categorical, choice, geometric, permutation
from fuser.random.keys import PRNGKey, clone, fold_in, key, key_data, key_dtype, key_impl, split, wrap_key_data
from fuser.random.matrices import multivariate_normal, orthogonal
from fuser.random.rejection import (
    ball,
    beta,
    binomial,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    multinomial,
    poisson,
    t,
)
from fuser.random.uniform import bernoulli, bits, rademacher, randint, uniform

_install_layouts(globals(), "fuser.random")
_install_ranks(globals(), "fuser.random")
_COMPILED = "bernoulli bits categorical cauchy exponential gumbel laplace logistic normal uniform"
_install_replays(
    globals(), "fuser.random", ("PRNGKey", "key", "key_impl", "key_dtype", "clone"), compiled=_COMPILED.split()
)

__getattr__ = absent(__name__)
