"""Functions that are exported in tests: between them, the forms of params and constants that a file must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser import pallas as pl

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
TABLE = np.arange(20, dtype=np.float32).reshape(5, 4)


def loops(x: Any, limit: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        kept = lax.cond(row.sum() > 0, lambda c: c + 1, fnp.sin, carry)
        return carry * 0.5 + row, lax.switch(2, [lambda c: c, lambda c: -c, lambda c: c * 2], kept)

    carry, rows = lax.scan(body, x[0], x)
    return lax.while_loop(lambda c: c.sum() < limit, lambda c: fnp.abs(c) * 2 + 1, carry), rows


def indexing(x: Any, at: Any) -> Any:
    return fnp.asarray(TABLE)[at] + x.at[at, 0].add(1.5)[0], x[::-1, 1::2], lax.dynamic_slice(x, (1, 1), (2, 2))


def layers(x: Any) -> Any:
    image = fnp.pad(x[None, None], ((0, 0), (0, 0), (1, 1), (1, 1)))
    kernel = fnp.ones((2, 1, 3, 3), fnp.float32)
    out = lax.conv_general_dilated(image, kernel, (1, 1), "VALID")
    return {
        "pooled": lax.reduce_window(out, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID"),
        "soft": fuser.nn.softmax(x),
    }


def sorting(x: Any) -> Any:
    return fnp.argsort(x, axis=1), lax.top_k(x, 2), fnp.linalg.cholesky(x @ x.T + 9 * fnp.eye(3)), fnp.fft.rfft(x).real


def randomness(key: Any) -> Any:
    return fuser.random.normal(fuser.random.wrap_key_data(key), (4,))


def narrow(x: Any) -> Any:
    return x.astype(fnp.bfloat16) * 3, (x > 0).astype(fnp.int8), fnp.isnan(x / 0), fnp.clip(x, -np.inf, 0.1)


def by_hand(x: Any) -> Any:
    """A kernel over rows with a scratch buffer, a Ref of its own, a masked read and an output that begins as an input."""

    def kernel(x_ref: Any, start_ref: Any, o_ref: Any, total: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total[...] = fnp.zeros_like(total)

        def twice(own: Any) -> None:
            own[...] = pl.load(x_ref, (slice(None), pl.ds(0, 4)), mask=fnp.arange(4)[None] < 3, other=1.0) * 2
            total[...] += own[0]

        pl.run_scoped(twice, pl.MemoryRef((1, 4), np.float32))
        o_ref[...] += total[...][None]

    row = pl.BlockSpec((1, 4), lambda i: (i, 0))
    scratch = [pl.MemorySpace.VMEM((4,), np.float32)]
    return pl.pallas_call(
        kernel, fuser.ShapeDtypeStruct(x.shape, x.dtype), grid=x.shape[0], in_specs=[row, row], out_specs=row,
        scratch_shapes=scratch, input_output_aliases={1: 0},
    )(x, x + 1)  # fmt: skip


def references(x: Any) -> Any:
    ref = fuser.new_ref(x)

    def step(total: Any, n: Any) -> Any:
        ref[n, 1] += total
        return total + ref[n].sum(), ref[n, 0]

    return lax.scan(step, np.float32(1), fnp.arange(3)), ref[...]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "loops": (loops, (X, np.float32(30))),
    "indexing": (indexing, (X, np.array([0, 2], np.int32))),
    "layers": (layers, (X,)),
    "sorting": (sorting, (X,)),
    "randomness": (randomness, (np.array([0, 7], np.uint32),)),
    "narrow": (narrow, (X,)),
    "by_hand": (by_hand, (X,)),
    "references": (references, (X,)),
}
DIFFERENTIABLE = ("indexing", "layers")
