"""`fwd_and_bwd`: reverse mode as two functions, the first of which keeps what the second needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.api.jitted import jit
from fuser.transforms.arguments import check_callable, checked_argnums
from fuser.transforms.linear import vjp


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Functions `fwd(*args) -> (fun(*args), residuals)` and `bwd(residuals, cotangent) -> cotangents` of the arguments at `argnums`.

    The cotangents are a tuple, or one for a single number. With `has_aux` `fun` gives (result, aux), and fwd (result,
    residuals, aux). Both are jitted unless told otherwise: bwd alone would be compiled anew for each call of fwd.
    """
    check_callable(fun, "fwd_and_bwd")

    def fwd(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_argnums(argnums, len(args), "fwd_and_bwd", fun)

        def of_those(*given: Any) -> Any:
            whole = list(args)
            for number, value in zip(numbers, given):
                whole[number] = value
            return fun(*whole, **kwargs)

        return vjp(of_those, *(args[n] for n in numbers), has_aux=has_aux)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        found = residuals(cotangent)
        return found[0] if isinstance(argnums, int) else found

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
