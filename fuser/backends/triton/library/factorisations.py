"""Linear algebra and Fourier transforms through torch: cuSOLVER, cuBLAS and cuFFT on the device, where these are not called from C."""

from __future__ import annotations

from typing import Any

from fuser.ir.graph import Eqn
from fuser.ops.column_major import (
    column_geqrf_p,
    column_gesvd_p,
    column_getrf_p,
    column_orgqr_p,
    column_potrf_p,
    column_syevd_p,
)
from fuser.ops.factorisations import eig_p
from fuser.ops.fft import FftType, dft_p
from fuser.ops.triangular import triangular_solve_p
from fuser.runtime.array import torch_dtype


def _potrf(eqn: Eqn, a: Any) -> Any:
    import torch

    return list(torch.linalg.cholesky_ex(a))


def _getrf(eqn: Eqn, a: Any) -> Any:
    import torch

    factors, pivots, info = torch.linalg.lu_factor_ex(a.mT)
    return [factors.mT, pivots, info]


def _geqrf(eqn: Eqn, a: Any) -> Any:
    import torch

    packed, taus = torch.geqrf(a.mT)
    return [packed.mT, taus]


def _orgqr(eqn: Eqn, a: Any, taus: Any) -> Any:
    import torch

    return [torch.linalg.householder_product(a.mT, taus).mT]


def _syevd(eqn: Eqn, a: Any) -> Any:
    import torch

    values, vectors = torch.linalg.eigh(a, "L" if eqn.params["lower"] else "U")
    return [vectors.mH.resolve_conj(), values, _succeeded(a)]


def _gesvd(eqn: Eqn, a: Any) -> Any:
    import torch

    if not eqn.params["vectors"]:
        return [torch.linalg.svdvals(a.mT), _succeeded(a)]
    u, values, v = torch.linalg.svd(a.mT, full_matrices=eqn.params["full"])
    return [values, u.mT, v.mT, _succeeded(a)]


def _succeeded(a: Any) -> Any:
    """torch raises where a factorisation fails."""
    import torch

    return torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)


def _eig(eqn: Eqn, a: Any) -> Any:
    """Left eigenvectors are the rows of the inverse of the right ones', conjugated and of length 1. All are nan where a matrix has an
    element that is not finite: torch's function would raise, and so wait."""
    import torch

    finite = torch.isfinite(a).all(-1).all(-1)
    a = torch.where(finite[..., None, None], a, torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device))
    left, right = eqn.params["compute_left_eigenvectors"], eqn.params["compute_right_eigenvectors"]
    if not left and not right:
        results = [torch.linalg.eigvals(a)]
    else:
        values, vectors = torch.linalg.eig(a)
        rows = torch.linalg.inv_ex(vectors).inverse.mH if left else vectors
        rows = rows / torch.linalg.vector_norm(rows, dim=-2, keepdim=True)
        results = [values, *[rows] * left, *[vectors] * right]
    return [r.masked_fill(~finite.reshape(*finite.shape, *[1] * (r.ndim - finite.ndim)), float("nan")) for r in results]


def _triangular_solve(eqn: Eqn, a: Any, b: Any) -> Any:
    import torch

    params = {"left_side": False, "lower": False, "transpose_a": False, "conjugate_a": False, "unit_diagonal": False}
    params |= eqn.params
    a = a.conj() if params["conjugate_a"] else a
    a, upper = (a.mT, params["lower"]) if params["transpose_a"] else (a, not params["lower"])
    return torch.linalg.solve_triangular(
        a, b, upper=upper, left=params["left_side"], unitriangular=params["unit_diagonal"]
    ).resolve_conj()


def _dft(eqn: Eqn, x: Any) -> Any:
    import torch

    lengths, out = tuple(eqn.params["fft_lengths"]), eqn.outvars[0].aval
    if not x.numel():
        return torch.zeros(out.shape, dtype=torch_dtype(out.dtype), device=x.device)
    transform = (torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn, torch.fft.irfftn)[eqn.params["fft_type"]]
    norm = (
        "forward" if eqn.params["fft_type"] in (FftType.IFFT, FftType.IRFFT) else "backward"
    )  # where nothing is divided
    dims = tuple(range(x.ndim - len(lengths), x.ndim))
    return transform(x, lengths, dims, norm=norm).to(torch_dtype(out.dtype))


RULES: dict[Any, Any] = {
    column_potrf_p: _potrf,
    column_getrf_p: _getrf,
    column_geqrf_p: _geqrf,
    column_orgqr_p: _orgqr,
    column_syevd_p: _syevd,
    column_gesvd_p: _gesvd,
    eig_p: _eig,
    triangular_solve_p: _triangular_solve,
    dft_p: _dft,
}
