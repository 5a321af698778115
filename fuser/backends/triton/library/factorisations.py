"""Linear algebra and Fourier transforms through torch: cuSOLVER, cuBLAS and cuFFT on the device. A matrix without factors gives nan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ops.factorisations import eig_p, geqrf_p, lu_p
from fuser.ops.fft import fft_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.ops.triangular import triangular_solve_p
from fuser.runtime.array import torch_dtype


def _or_nan(factor: Callable[..., Any]) -> Callable[..., Any]:
    """`factor(eqn, a)`, nan where a matrix has an element that is not finite: torch's functions would raise, and so wait."""

    def rule(eqn: Eqn, a: Any) -> Any:
        import torch

        finite = torch.isfinite(a).all(-1).all(-1)
        results = factor(
            eqn, torch.where(finite[..., None, None], a, torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device))
        )
        several = eqn.primitive.multiple_results
        marked = [_marked(r, finite, a.ndim - 2) for r in (results if several else [results])]
        return marked if several else marked[0]

    return rule


def _marked(result: Any, finite: Any, batch: int) -> Any:
    if not (result.is_floating_point() or result.is_complex()):
        return result
    return result.masked_fill(~finite.reshape(*finite.shape, *[1] * (result.ndim - batch)), float("nan"))


def _cholesky(eqn: Eqn, a: Any) -> Any:
    import torch

    factor, failed = torch.linalg.cholesky_ex(a)
    return factor.masked_fill((failed != 0)[..., None, None], float("nan")).tril()


def _qr(eqn: Eqn, a: Any) -> Any:
    import torch

    return torch.linalg.qr(a, "complete" if eqn.params.get("full_matrices") else "reduced")


def _eigh(eqn: Eqn, a: Any) -> Any:
    import torch

    values, vectors = torch.linalg.eigh(a, "L" if eqn.params.get("lower", True) else "U")
    return [vectors, values]


def _svd(eqn: Eqn, a: Any) -> Any:
    import torch

    if not eqn.params.get("compute_uv", True):
        return [torch.linalg.svdvals(a)]
    u, values, v = torch.linalg.svd(a, full_matrices=eqn.params.get("full_matrices", True))
    return [values, u, v]


def _lu(eqn: Eqn, a: Any) -> Any:
    """Pivots count from 0; the permutation is where the one of each row of Pᵀ stands."""
    import torch

    factors, pivots, _ = torch.linalg.lu_factor_ex(a)
    rows, _, _ = torch.lu_unpack(factors, pivots, unpack_data=False)
    return [factors, pivots - 1, rows.real.mT.argmax(-1).to(torch.int32)]


def _eig(eqn: Eqn, a: Any) -> Any:
    """Left eigenvectors are the rows of the inverse of the right ones', conjugated and of length 1."""
    import torch

    left, right = eqn.params["compute_left_eigenvectors"], eqn.params["compute_right_eigenvectors"]
    if not left and not right:
        return [torch.linalg.eigvals(a)]
    values, vectors = torch.linalg.eig(a)
    rows = torch.linalg.inv_ex(vectors).inverse.mH if left else vectors
    rows = rows / torch.linalg.vector_norm(rows, dim=-2, keepdim=True)
    return [values, *[rows] * left, *[vectors] * right]


def _triangular_solve(eqn: Eqn, a: Any, b: Any) -> Any:
    import torch

    params = {"left_side": False, "lower": False, "transpose_a": False, "conjugate_a": False, "unit_diagonal": False}
    params |= eqn.params
    a = a.conj() if params["conjugate_a"] else a
    a, upper = (a.mT, params["lower"]) if params["transpose_a"] else (a, not params["lower"])
    return torch.linalg.solve_triangular(
        a, b, upper=upper, left=params["left_side"], unitriangular=params["unit_diagonal"]
    ).resolve_conj()


def _fft(eqn: Eqn, x: Any) -> Any:
    import torch

    lengths, out = tuple(eqn.params["fft_lengths"]), eqn.outvars[0].aval
    if not x.numel():
        return torch.zeros(out.shape, dtype=torch_dtype(out.dtype), device=x.device)
    transform = (torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn, torch.fft.irfftn)[eqn.params["fft_type"]]
    return transform(x, lengths, tuple(range(x.ndim - len(lengths), x.ndim))).to(torch_dtype(out.dtype))


def _geqrf(eqn: Eqn, a: Any) -> Any:
    import torch

    return list(torch.geqrf(a))


RULES: dict[Any, Any] = {
    cholesky_p: _or_nan(_cholesky),
    qr_p: _or_nan(_qr),
    eigh_p: _or_nan(_eigh),
    svd_p: _or_nan(_svd),
    eig_p: _or_nan(_eig),
    lu_p: _or_nan(_lu),
    geqrf_p: _or_nan(_geqrf),
    triangular_solve_p: _triangular_solve,
    fft_p: _fft,
}
