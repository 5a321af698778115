"""Bad input: each error word for word, naming the user's line, what was found, what was expected and what to do."""

from __future__ import annotations

import inspect
import re
import sys
import traceback

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import errors
from fuser.lax import values
from fuser.runtime.array import Array
from fuser.runtime.core import native

X = np.ones(3, np.float32)


def here(offset: int = 0) -> str:
    """`test_bad_input.py:LINE` of the caller's line."""
    return f"test_bad_input.py:{inspect.currentframe().f_back.f_lineno + offset}"


def message(error_type, function, *args, **options):
    with pytest.raises(error_type) as caught:
        fuser.jit(function, **options)(*args)
    return str(caught.value)


def test_if_on_a_traced_value():
    def f(x):
        return x if x.sum() > 0 else -x

    line = f"test_bad_input.py:{f.__code__.co_firstlineno + 1}"
    assert message(errors.TracerBoolConversionError, f, X) == (
        f"Attempted boolean conversion of a traced bool[], which has no value yet, so `if` cannot read it ({line}); use fuser.lax.cond, or fuser.numpy.where"
    )


def test_float_of_a_traced_value():
    f, line = lambda x: float(x[0]), here()
    assert message(errors.ConcretizationTypeError, f, X) == (
        "Abstract tracer value encountered where concrete value is expected: "
        f"a traced f32[] has no value yet, so float() cannot read it ({line}); "
        "try using `x.astype(float)`, or make the argument static with static_argnums"
    )


def test_range_of_a_traced_value():
    f, line = lambda n: [0 for _ in range(n)], here()
    assert message(errors.TracerIntegerConversionError, f, 3) == (
        "The __index__() method was called on traced array: "
        f"a traced i32*[] has no value yet, so Python cannot use it as an integer ({line}); "
        "make the argument static with static_argnums, or use fuser.lax.fori_loop or fuser.lax.dynamic_slice"
    )


def test_numpy_of_a_traced_value():
    f, line = lambda x: np.asarray(x), here()
    assert message(errors.TracerArrayConversionError, f, X) == (
        "The numpy.ndarray conversion method __array__() was called on traced array: "
        f"a traced f32[3] has no value yet, so NumPy cannot read it ({line}); "
        "use fuser.numpy inside a jitted function, or fuser.accelerate for functions written with NumPy"
    )


def test_leaked_tracer():
    kept = []
    made = here(1)
    fuser.jit(lambda x: kept.append(x * 2))(X)
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        line = here(1)
        kept[0] + 1
    assert str(caught.value) == (
        f"Encountered an unexpected tracer: a traced f32[3] of <lambda> was used after its trace had ended ({line}); "
        "return the value from the traced function instead of storing it outside. An intermediate value with type float32[3] was "
        f"saved to global state by a side effect of the function; it was created on line {made}."
    )


def test_assignment_into_an_array():
    def f(x):
        x[0] = 1
        return x

    expected = "fuser arrays are immutable: x[index] = value cannot run; use x = x.at[index].set(value)"
    assert message(TypeError, f, X) == expected
    with pytest.raises(TypeError) as caught:
        fnp.ones(3)[0] = 1
    assert str(caught.value) == expected


def test_unhashable_static_argument():
    with pytest.raises(ValueError) as caught:
        line = here(1)
        fuser.jit(lambda x, n: x, static_argnums=1)(X, [1])
    assert str(caught.value) == (
        "Non-hashable static arguments are not supported: static argument 1 of <lambda> is a list, which cannot be hashed; static arguments are compared from call to "
        f"call: pass a tuple or another hashable value ({line})"
    )


def test_argument_that_is_no_array():
    with pytest.raises(TypeError) as caught:
        line = here(1)
        fuser.jit(lambda d: d)({"a": "text"})
    assert str(caught.value) == (
        "argument d['a'] of <lambda> is a str, which is no array of numbers; pass an array or a number, "
        f"or make the argument static with static_argnums ({line})"
    )


def test_arrays_of_other_libraries_on_a_device(monkeypatch):
    """Those with `__array__` are arguments wherever they lie; NumPy cannot read a GPU's memory."""

    class Tensor:
        requires_grad = False

        def __init__(self, dtype):
            self.values = np.arange(3, dtype=dtype)

        def __array__(self, *args, **kwargs):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return 2, 0

    monkeypatch.setattr(values, "from_dlpack", lambda tensor: Array(tensor.values))
    doubled = fuser.jit(lambda x: x * 2)
    assert doubled(Tensor("float32")).tolist() == [0, 2, 4] == fnp.add(Tensor("float32"), Tensor("float32")).tolist()
    assert doubled(Tensor("int64")).dtype == np.int32  # as one of NumPy's
    Tensor.requires_grad = True
    with pytest.raises(
        RuntimeError, match=r"pass tensor.detach\(\), or compile the function with fuser.accelerate.*test_bad_input"
    ):
        doubled(Tensor("float32"))
    del Tensor.__array__
    with pytest.raises(
        TypeError,
        match=r"argument x of <lambda> is a Tensor, .*; pass fuser.dlpack.from_dlpack of it",
    ):
        doubled(Tensor("float32"))


@pytest.mark.parametrize("dtype", ["O", "U1", "M8[D]", [("a", "f4")]])
def test_array_that_holds_no_numbers(dtype):
    array = np.zeros(2, dtype)
    with pytest.raises(
        TypeError, match=re.escape(f"is a NumPy array of dtype {array.dtype}, which is no array of numbers")
    ):
        fuser.jit(lambda x: x)(array)
    with pytest.raises(
        TypeError, match=re.escape(f"is a NumPy array of dtype {array.dtype}, which is no array of numbers")
    ):
        fuser.grad(lambda x: x)(array)


def test_result_that_is_no_array():
    found = message(TypeError, lambda x: {"name": "text"}, X)
    assert re.sub(r"at \S+ returned", "at LINE returned", found) == (
        "function <lambda> at LINE returned a value of type str at output component ['name'], which is not a valid JAX type; "
        "a jitted function returns arrays and numbers in tuples, lists, dicts or registered classes"
    )


def test_shapes_that_do_not_match():
    f, line = lambda x: x + fnp.ones(4), here()
    assert message(TypeError, f, X) == (
        "add got incompatible shapes for broadcasting: (3,), (4,). "
        f"add cannot broadcast f32[3] and f32[4]; extents must be equal or 1 ({line})"
    )


def test_lax_broadcasts_nothing_but_extents_of_one():
    f, line = lambda x: fuser.lax.add(x, fnp.ones(4)), here()
    assert message(TypeError, f, X) == (
        "add got incompatible shapes for broadcasting: (3,), (4,). "
        f"add cannot broadcast f32[3] and f32[4]; extents must be equal or 1 ({line})"
    )


def test_unsupported_dtype():
    with pytest.raises(TypeError) as caught:
        fnp.asarray(np.array([object()]))
    assert str(caught.value) == (
        "Error interpreting argument as an array: a ndarray of dtype object is no array of numbers; fuser takes numbers, booleans and complex numbers"
    )


def test_unknown_backend():
    with pytest.raises(ValueError, match=r"no backend 'cuda13'; the backends are c, triton, tpu, reference"):
        fuser.jit(lambda x: x, backend="cuda13")(X)


def test_parameter_that_does_not_exist():
    with pytest.raises(ValueError, match="has no parameter 'y'; it has x"):
        fuser.jit(lambda x: x, static_argnames="y")


def test_tracebacks_end_in_the_users_line():
    def f(x):
        return x + fnp.ones(4)

    try:
        fuser.jit(f)(X)
    except TypeError as error:
        frames = traceback.extract_tb(error.__traceback__)
        assert frames[-1].name == "f" and frames[-1].filename == __file__
        assert error.__notes__ == ["fuser's own frames are hidden; set FUSER_TRACEBACK=full to see them"]
    with fuser.config.using(traceback="full"), pytest.raises(TypeError) as caught:
        fuser.jit(f)(X)
    assert "fuser" in traceback.extract_tb(caught.value.__traceback__)[-1].filename


def test_errors_behind_no_line_of_the_users_hide_fusers_frames(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.ToolchainError, match="no C compiler was found") as caught:
        fuser.jit(lambda x: x * 3.25 + 19.75, backend="c")(X)  # a program that no cache holds
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[0] == "test_errors_behind_no_line_of_the_users_hide_fusers_frames" and len(frames) <= 3 + (
        native is None
    )
    assert "fuser's own frames are hidden" in caught.value.__notes__[0]


def test_what_fuser_refuses_hides_its_frames_and_a_defect_of_its_own_keeps_them(monkeypatch):
    with pytest.raises(TypeError, match="Gradient only defined for scalar-output functions") as caught:
        fuser.grad(lambda w: w * 2)(X)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["grad_of"]
    assert "fuser's own frames are hidden" in caught.value.__notes__[0]
    monkeypatch.setattr(sys.modules["fuser.transforms.grad"], "linearize", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        fuser.grad(lambda w: w.sum())(X)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "_value_and_grad"
    assert not hasattr(caught.value, "__notes__")


def test_leaked_values_that_python_asks_for():
    def f(x):
        leaks.append(x)
        return x

    leaks = []
    fuser.jit(f)(X)
    for ask, error in ((bool, errors.TracerBoolConversionError), (float, errors.ConcretizationTypeError)):
        with pytest.raises(error, match=r"has no value: it was traced in f, which has ended.*return the value from"):
            ask(leaks[0])


def test_what_is_no_array_of_numbers():
    with pytest.raises(TypeError, match="an object is no array of numbers"):
        fnp.asarray([object()])
    with pytest.raises(ValueError, match=r"broadcast_to cannot make \(2, 4\) of \(3,\)"):
        fnp.broadcast_to(X, (2, 4))
