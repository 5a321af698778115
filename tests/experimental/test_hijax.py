"""VJPHiPrimitive: the same classes in JAX and here, under every transform that has a rule, against JAX's results and errors."""

from __future__ import annotations

import re
from collections import namedtuple
from types import SimpleNamespace

import jax
import jax.experimental.hijax
import numpy as np
import pytest

import fuser
from fuser.experimental import hijax

LIBRARIES = (jax, fuser)
Point = namedtuple("Point", "x y")


def of_one(base):
    """The class of primitives of one array that give one of its type."""

    class OfOne(base):
        def __init__(self, x):
            self.in_avals = (x,)
            self.out_aval = x
            self.params = {}
            super().__init__()

    return OfOne


def of_one_array(library, log) -> dict[str, type]:
    """Primitives of one array, whose log says which rules ran."""
    xp, base = library.numpy, library.experimental.hijax.VJPHiPrimitive

    class Sin(of_one(base)):
        """Derivatives that tell which rule they are from: 1, 2 and 3 times the cosine."""

        def expand(self, x):
            return xp.sin(x)

        def vjp_fwd(self, nzs_in, x):
            log.append(("vjp_fwd", tuple(nzs_in)))
            return self(x), x

        def vjp_bwd_retval(self, x, g):
            return (xp.cos(x) * g,)

        def batch_dim_rule(self, axis_data, dims):
            log.append(("batch", axis_data.size, dims))
            return dims[0]

    class Both(Sin):
        def jvp(self, primals, tangents):
            (x,), (t,) = primals, tangents
            return self(x), 2 * xp.cos(x) * t

        def lin(self, nzs_in, x):
            return self(x), {"cos": xp.cos(x), "three": 3}

        def linearized(self, residuals, t):
            return residuals["three"] * residuals["cos"] * t

    return {"Sin": Sin, "Both": Both}


def of_two_arrays(library, log) -> dict[str, type]:
    """Products, with rules that give cotangents and one that adds them up."""
    base = library.experimental.hijax.VJPHiPrimitive
    is_zero = lambda value: isinstance(value, library.experimental.hijax.Zero)
    dense = lambda values: library.tree.map(library.experimental.hijax.instantiate_zeros, values, is_leaf=is_zero)

    class Mul(base):
        def __init__(self, x, y):
            self.in_avals = (x, y)
            self.out_aval = x
            self.params = {}
            super().__init__()

        def expand(self, x, y):
            return x * y

        def vjp_fwd(self, nzs_in, x, y):
            log.append(tuple(nzs_in))
            return self(x, y), (x if nzs_in[1] else None, y if nzs_in[0] else None)

        def vjp_bwd_retval(self, res, g):
            x, y = res
            return (None if y is None else g * y, None if x is None else x * g)

        def jvp(self, primals, tangents):
            (x, y), (dx, dy) = primals, tangents
            log.append((is_zero(dx), is_zero(dy)))
            dx, dy = dense((dx, dy))
            return self(x, y), dx * y + x * dy

        def batch_dim_rule(self, axis_data, dims):
            return dims[1] if dims[0] is None else dims[0]

    class Accumulated(Mul):
        def vjp_fwd(self, nzs_in, x, y):
            return self(x, y), (x, y)

        vjp_bwd_retval = base.vjp_bwd_retval

        def vjp_bwd(self, res, g, x_acc, y_acc):
            x, y = res
            x_acc.accum(g * y)
            y_acc.accum(x * g / 2)
            y_acc.accum(x * g / 2)

    return {"Mul": Mul, "Accumulated": Accumulated}


def structured(library, log) -> dict[str, type]:
    """A primitive with structured arguments and results."""
    xp, base = library.numpy, library.experimental.hijax.VJPHiPrimitive
    is_zero = lambda value: isinstance(value, library.experimental.hijax.Zero)
    dense = lambda values: library.tree.map(library.experimental.hijax.instantiate_zeros, values, is_leaf=is_zero)

    class Tree(base):
        """Structured arguments and results, and a static parameter."""

        def __init__(self, p, *, power):
            self.in_avals = (p, {"s": p.x})
            self.out_aval = {"a": p.x, "b": (p.x, p.y)}
            self.params = {"power": power}
            super().__init__()

        def expand(self, p, q):
            return {"a": p.x**self.power * q["s"], "b": (xp.sin(p.x), xp.cos(p.y))}

        def vjp_fwd(self, nzs_in, p, q):
            return self(p, q), {"p": p, "q": q}

        def vjp_bwd_retval(self, res, g):
            log.append([is_zero(leaf) for leaf in library.tree.leaves(g, is_leaf=is_zero)])
            p, s, g = res["p"], res["q"]["s"], dense(g)
            x = self.power * p.x ** (self.power - 1) * s * g["a"] + xp.cos(p.x) * g["b"][0]
            return Point(x, -xp.sin(p.y) * g["b"][1]), {"s": p.x**self.power * g["a"]}

        def jvp(self, primals, tangents):
            (p, q), (dp, dq) = primals, dense(tangents)
            a = self.power * p.x ** (self.power - 1) * q["s"] * dp.x + p.x**self.power * dq["s"]
            return self(p, q), {"a": a, "b": (xp.cos(p.x) * dp.x, -xp.sin(p.y) * dp.y)}

        def batch_dim_rule(self, axis_data, dims):
            first = next(iter(library.tree.leaves(dims)), None)
            return {"a": first, "b": (first, first)}

    return {"Tree": Tree}


def others(library, log) -> dict[str, type]:
    """Integers, places along an axis, static parameters."""
    base = library.experimental.hijax.VJPHiPrimitive
    is_zero = lambda value: isinstance(value, library.experimental.hijax.Zero)

    class Counted(base):
        """An integer argument and an integer result."""

        def __init__(self, x, n):
            self.in_avals = (x, n)
            self.out_aval = (x, n)
            self.params = {}
            super().__init__()

        def expand(self, x, n):
            return x * n, n + 1

        def jvp(self, primals, tangents):
            log.append(is_zero(tangents[1]))
            return self(*primals), (tangents[0] * primals[1], np.zeros((), library.dtypes.float0))

        def batch_dim_rule(self, axis_data, dims):
            return (dims[1] if dims[0] is None else dims[0]), dims[1]

    class Placed(of_one(base)):
        """It asks where it stands along a named axis."""

        def expand(self, x):
            return x * library.lax.psum(1, "i") + library.lax.axis_index("i")

        def batch_dim_rule(self, axis_data, dims):
            return 0

    class Static(base):
        def __init__(self, x, f, scale):
            self.in_avals = (x,)
            self.out_aval = x
            self.params = {"f": f, "scale": scale}
            super().__init__()

        def check(self, x):
            log.append(("check", x.shape, self.scale))

        def expand(self, x):
            return self.scale * self.f(x)

        def vjp_fwd(self, nzs_in, x):
            return library.vjp(self.f, x)

        def vjp_bwd_retval(self, pullback, g):
            return (self.scale * pullback(g)[0],)

    return {"Counted": Counted, "Placed": Placed, "Static": Static}


def made(library) -> SimpleNamespace:
    """The classes of these tests over one library; `log` says which rules ran."""
    log: list[object] = []
    kinds = SimpleNamespace(
        **of_one_array(library, log), **of_two_arrays(library, log), **structured(library, log), **others(library, log)
    )
    of = lambda kind: lambda *args: kind(*library.tree.map(library.typeof, args))(*args)
    tree_of = lambda p, q: kinds.Tree(library.tree.map(library.typeof, p), power=3)(p, q)
    hi = library.experimental.hijax
    return SimpleNamespace(
        library=library, xp=library.numpy, lax=library.lax, log=log, hi=hi, base=hi.VJPHiPrimitive,
        sin=of(kinds.Sin), both=of(kinds.Both), mul=of(kinds.Mul), accumulated=of(kinds.Accumulated),
        tree=tree_of, counted=of(kinds.Counted), placed=of(kinds.Placed), Static=kinds.Static, Mul=kinds.Mul, Sin=kinds.Sin,
    )  # fmt: skip


JAX, FUSER = map(made, LIBRARIES)


def compared(function, logged: bool = False) -> None:
    """The same result in both libraries: tree, shapes, dtypes, values; and where asked the same rules."""
    found = []
    for m in (JAX, FUSER):
        m.log.clear()
        leaves, structure = m.library.tree.flatten(function(m, m.library))
        found.append(([np.asarray(m.xp.asarray(leaf)) for leaf in leaves], len(leaves), str(structure), list(m.log)))
    (wanted, *theirs, ran), (values, *ours, also_ran) = found
    assert ours == theirs
    for a, b in zip(values, wanted):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=4e-6, atol=1e-6)
    if logged:
        assert str(also_ran) == str(ran)


def twice(m, f):
    """The function twice, in a scan."""
    return lambda x: m.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


XS = np.linspace(0.5, 2, 3, dtype=np.float32)

ONE = {
    "value": lambda m, l, f: f(1.5),
    "jit": lambda m, l, f: l.jit(f)(XS),
    "grad": lambda m, l, f: l.grad(f)(1.5),
    "jit of grad": lambda m, l, f: l.jit(l.grad(f))(1.5),
    "grad of jit": lambda m, l, f: l.grad(l.jit(f))(1.5),
    "grad of grad": lambda m, l, f: l.grad(l.grad(f))(1.5),
    "jit of grad of grad": lambda m, l, f: l.jit(l.grad(l.grad(f)))(1.5),
    "jacrev": lambda m, l, f: l.jacrev(f)(XS),
    "vmap": lambda m, l, f: l.vmap(f)(XS),
    "vmap of grad": lambda m, l, f: l.vmap(l.grad(f))(XS),
    "grad of vmap": lambda m, l, f: l.grad(lambda x: l.vmap(f)(x).sum())(XS),
    "jit of grad of vmap": lambda m, l, f: l.jit(l.grad(lambda x: l.vmap(f)(x).sum()))(XS),
    "vmap of vmap": lambda m, l, f: l.vmap(l.vmap(f, 1, 1), 0, 1)(np.ones((2, 3, 4), np.float32)),
    "scan": lambda m, l, f: l.grad(twice(m, f))(1.5),
    "jit of scan": lambda m, l, f: l.jit(l.grad(twice(m, f)))(1.5),
    "grad of vmap of scan": lambda m, l, f: l.grad(lambda x: l.vmap(twice(m, f))(x).sum())(XS),
    "cond": lambda m, l, f: l.grad(lambda x: m.lax.cond(x > 0, f, lambda x: x, x))(1.5),
}  # fmt: skip
FORWARD = {
    "jvp": lambda m, l, f: l.jvp(f, (1.5,), (1.0,)),
    "jvp of jit": lambda m, l, f: l.jvp(l.jit(f), (1.5,), (1.0,)),
    "jit of jvp": lambda m, l, f: l.jit(lambda x: l.jvp(f, (x,), (x,)))(1.5),
    "jvp of vmap": lambda m, l, f: l.jvp(l.vmap(f), (XS,), (XS,)),
    "jvp of scan": lambda m, l, f: l.jvp(twice(m, f), (1.5,), (1.0,)),
    "jacfwd": lambda m, l, f: l.jacfwd(f)(XS),
    "jacfwd of jacfwd": lambda m, l, f: l.jacfwd(l.jacfwd(f))(1.5),
    "hessian": lambda m, l, f: l.hessian(f)(1.5),
    "hessian of scan": lambda m, l, f: l.hessian(twice(m, f))(1.5),
    "while": lambda m, l, f: l.jvp(lambda x: m.lax.fori_loop(0, 2, lambda i, c: f(c), x), (1.5,), (1.0,)),
    "linearize": lambda m, l, f: l.linearize(f, 1.5)[1](1.0),
    "linearize of jit": lambda m, l, f: l.linearize(l.jit(f), 1.5)[1](1.0),
    "linearize of scan": lambda m, l, f: l.linearize(twice(m, f), 1.5)[1](1.0),
    "vjp": lambda m, l, f: l.vjp(f, 1.5)[1](np.float32(1)),
}  # fmt: skip


@pytest.mark.parametrize("case", ONE)
def test_reverse_mode(case):
    compared(lambda m, l: ONE[case](m, l, m.sin))
    compared(lambda m, l: ONE[case](m, l, m.both))


@pytest.mark.parametrize("case", FORWARD)
def test_forward_mode(case):
    compared(lambda m, l: FORWARD[case](m, l, m.both))


def test_batched_tangents_alone():
    """Where JAX (0.10.2) fails: `vmap` of `jacfwd` of a loop."""
    found = fuser.vmap(fuser.jacfwd(twice(FUSER, FUSER.both)))(XS)
    np.testing.assert_allclose(found, 4 * np.cos(np.sin(XS)) * np.cos(XS), rtol=4e-6)


@pytest.mark.parametrize("case", [c for c in FORWARD if c not in ("vjp",)])
def test_without_a_rule_for_forward_mode(case):
    messages = []
    for m in (JAX, FUSER):
        with pytest.raises(NotImplementedError) as caught:
            FORWARD[case](m, m.library, m.sin)
        messages.append(str(caught.value).split(", or")[0])
    strip = lambda text: re.sub(r"<class.*?>", "", text)
    assert strip(messages[1]) == strip(messages[0])


def test_which_rules_run():
    compared(lambda m, l: l.grad(m.mul)(2.0, 3.0), logged=True)
    compared(lambda m, l: l.grad(m.mul, 1)(2.0, 3.0), logged=True)
    compared(lambda m, l: l.grad(m.mul, (0, 1))(2.0, 3.0), logged=True)
    compared(lambda m, l: l.jvp(lambda x: m.mul(x, 3.0), (2.0,), (1.0,)), logged=True)
    compared(lambda m, l: l.vmap(m.sin)(XS), logged=True)


def test_accumulators():
    assert issubclass(hijax.NullAccum, hijax.GradAccum) and issubclass(hijax.ValAccum, hijax.GradAccum)
    compared(lambda m, l: l.grad(m.accumulated)(2.0, 3.0))
    compared(lambda m, l: l.jit(l.grad(m.accumulated, (0, 1)))(2.0, 3.0))
    compared(lambda m, l: l.grad(lambda x: m.accumulated(x, x))(3.0))
    compared(lambda m, l: l.vmap(l.grad(m.accumulated), (0, None))(XS, 3.0))
    mapped = lambda x, y: fuser.vmap(FUSER.accumulated, (0, None))(x, y).sum()  # JAX asks for vjp_bwd_retval here
    found = fuser.grad(mapped, (0, 1))(XS, 3.0)
    np.testing.assert_allclose(found[0], np.full(3, 3.0), rtol=1e-6)
    np.testing.assert_allclose(found[1], XS.sum(), rtol=1e-6)


def total(m):
    return lambda p, q: m.tree(p, q)["a"] + m.tree(p, q)["b"][0]


P, Q = Point(1.5, 2.0), {"s": 3.0}
PS = Point(XS, XS + 1)


def test_structured_arguments_and_results():
    compared(lambda m, l: m.tree(P, Q))
    compared(lambda m, l: l.jit(m.tree)(P, Q))
    compared(lambda m, l: l.grad(total(m), (0, 1))(P, Q), logged=True)
    compared(lambda m, l: l.jit(l.grad(total(m), (0, 1)))(P, Q))
    compared(lambda m, l: l.hessian(total(m))(P, Q))
    compared(lambda m, l: l.vmap(m.tree, (0, None))(PS, Q))
    compared(lambda m, l: l.vmap(l.grad(total(m), (0, 1)), (0, None))(PS, Q))
    compared(lambda m, l: l.grad(lambda p, q: l.vmap(total(m), (0, None))(p, q).sum(), (0, 1))(PS, Q))
    compared(lambda m, l: l.jvp(lambda p: l.vmap(total(m), (0, None))(p, Q), (PS,), (PS,)))


def test_batch_dimensions():
    x, y = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.arange(1, 4, dtype=np.float32)
    nested = lambda m, l: l.vmap(l.vmap(m.mul, (0, None)), (2, None), out_axes=2)
    compared(lambda m, l: nested(m, l)(x, y))
    compared(lambda m, l: l.jit(nested(m, l))(x, y))
    compared(lambda m, l: l.grad(lambda x, y: m.xp.sin(nested(m, l)(x, y)).sum(), (0, 1))(x, y))
    z = np.arange(12, dtype=np.float32).reshape(3, 4)
    other = lambda m, l: l.vmap(l.vmap(m.mul, (None, 0)), (1, None), out_axes=2)
    compared(lambda m, l: other(m, l)(z, x[:, :, 0]))
    compared(lambda m, l: l.grad(lambda x, y: m.xp.sin(other(m, l)(x, y)).sum(), (0, 1))(z, x[:, :, 0]))
    compared(lambda m, l: l.jvp(lambda x: l.vmap(m.mul, (0, None))(x, 2.0), (y,), (y,)))


def test_integers():
    compared(lambda m, l: l.jvp(lambda x: m.counted(x, 3)[0] * m.counted(x, 3)[1], (2.0,), (1.0,)), logged=True)
    compared(lambda m, l: l.vmap(m.counted, (None, 0))(2.0, np.arange(3)))


def test_named_axes():
    compared(lambda m, l: l.vmap(m.placed, axis_name="i")(XS))
    compared(lambda m, l: l.vmap(lambda x: m.placed(2.0) + x, axis_name="i")(XS))
    compared(lambda m, l: l.jit(l.vmap(lambda x: l.vmap(lambda y: m.placed(y) + x)(XS), axis_name="i"))(XS))


def test_static_parameters():
    compared(lambda m, l: m.Static(l.typeof(2.0), m.xp.sin, 4.0)(2.0), logged=True)
    compared(lambda m, l: l.grad(m.Static(l.typeof(2.0), m.xp.sin, 4.0))(2.0))
    compared(lambda m, l: l.jit(l.grad(m.Static(l.typeof(2.0), m.xp.sin, 4.0)))(2.0))
    for m in (JAX, FUSER):
        aval = m.library.typeof(2.0)
        one, same, other = (m.Static(aval, m.xp.sin, scale) for scale in (4.0, 4.0, 5.0))
        assert one == same and hash(one) == hash(same) and one != other
        assert repr(m.Mul(aval, aval)) == "Mul[{}]"


def test_weak_types():
    for m in (JAX, FUSER):
        typeof = m.library.typeof
        assert typeof(m.sin(1.5)).weak_type and typeof(m.library.jit(m.sin)(1.5)).weak_type
        assert not typeof(m.sin(np.float32(1.5))).weak_type
        assert typeof(m.library.grad(m.sin)(1.5)).weak_type


def test_expand_closes_over_arrays():
    def scaled(m):
        class Scaled(m.Sin):
            def expand(self, x):
                return x * m.xp.asarray(XS)

        return lambda x: Scaled(m.library.typeof(x))(x)

    compared(lambda m, l: l.jit(l.grad(lambda x: scaled(m)(x).sum()))(XS))
    compared(lambda m, l: l.jit(l.vmap(scaled(m)))(np.ones((2, 3), np.float32)))
    compared(lambda m, l: l.grad(lambda x: twice(m, scaled(m))(x).sum())(XS))


def test_python_control_flow_outside_of_jit():
    def branching(m):
        class Branching(m.Sin):
            def expand(self, x):
                return m.xp.sin(x) if x > 0 else m.xp.cos(x)

            def vjp_bwd_retval(self, x, g):
                return ((2 if x > 0 else 3) * g,)

        return lambda x: Branching(m.library.typeof(x))(x)

    for at in (1.0, -1.0):
        compared(lambda m, l: (branching(m)(at), l.grad(branching(m))(at)))  # noqa: B023


def test_one_equation():
    for m in (JAX, FUSER):
        eqns = m.library.make_jaxpr(m.mul)(2.0, 3.0).eqns
        assert [e.primitive.name for e in eqns] == ["call_hi_primitive"]
        assert eqns[0].params["_prim"] == m.Mul(m.library.typeof(2.0), m.library.typeof(3.0))
    text = fuser.jit(FUSER.mul).trace(2.0, 3.0).jaxpr.pretty_print()
    assert text == str(jax.jit(JAX.mul).trace(2.0, 3.0).jaxpr)


def test_expand_is_traced_once():
    calls = []

    class Noisy(FUSER.Sin):
        def expand(self, x):
            calls.append(1)
            return FUSER.xp.sin(x)

    noisy = fuser.jit(lambda x: Noisy(fuser.typeof(x))(x))
    assert [float(noisy(x)) for x in (1.0, 2.0, 3.0)] == pytest.approx(np.sin([1.0, 2, 3]).tolist(), rel=1e-6)
    assert len(calls) == 1


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_backends(backend):
    mapped = lambda x: fuser.vmap(FUSER.both)(x).sum()
    np.testing.assert_allclose(fuser.jit(fuser.grad(mapped), backend=backend)(XS), np.cos(XS), rtol=2e-6)
    pushed = fuser.jit(lambda x: fuser.jvp(fuser.vmap(FUSER.both), (x,), (x,))[1], backend=backend)
    np.testing.assert_allclose(pushed(XS), 2 * np.cos(XS) * XS, rtol=2e-6)


def test_checkpoint_takes_the_rules_of_reverse_mode():
    """A primitive without `jvp` does, and one with both rules has the derivative that it has without checkpoint."""
    for f in (FUSER.sin, FUSER.both):
        for g in (f, twice(FUSER, f)):
            np.testing.assert_allclose(fuser.grad(fuser.checkpoint(g))(1.5), fuser.grad(g)(1.5), rtol=1e-6)
            np.testing.assert_allclose(fuser.jit(fuser.grad(fuser.checkpoint(g)))(1.5), fuser.grad(g)(1.5), rtol=1e-6)


def test_transposition():
    def linear(m):
        class Twice(m.Sin):
            def expand(self, x):
                return 2 * x

            def transpose(self, ct, accum):
                accum.accum(5 * ct)

        return lambda x: Twice(m.library.typeof(x))(x)

    compared(lambda m, l: l.linear_transpose(linear(m), np.float32(1))(np.float32(1)))
    half = lambda x: FUSER.mul(x, 0.5)  # no rule: what it does is transposed
    np.testing.assert_array_equal(fuser.linear_transpose(half, XS)(XS)[0], XS / 2)


def test_a_map_over_devices():
    def mapped(m, l):
        mesh, spec = l.make_mesh((1,), ("data",), (l.sharding.AxisType.Auto,)), l.P("data")
        return l.shard_map(m.both, mesh=mesh, in_specs=(spec,), out_specs=spec)

    compared(lambda m, l: mapped(m, l)(XS))
    compared(lambda m, l: l.jit(l.grad(lambda x: mapped(m, l)(x).sum()))(XS))
    compared(lambda m, l: l.jvp(mapped(m, l), (XS,), (XS,)))
    compared(lambda m, l: l.linearize(mapped(m, l), XS)[1](XS))


def test_checkify_keeps_the_rules():
    from fuser.experimental import checkify

    class Log(FUSER.Sin):
        def expand(self, x):
            return FUSER.xp.log(x)

        def vjp_bwd_retval(self, x, g):
            return (7 * g,)

    checked = checkify.checkify(lambda x: Log(fuser.typeof(x))(x), errors=checkify.float_checks)
    assert float(fuser.grad(lambda x: checked(x)[1])(1.0)) == 7.0


def test_what_a_subclass_must_set():
    for missing in ("in_avals", "out_aval", "params"):
        for m in (JAX, FUSER):

            class Bad(m.base):
                def __init__(self):
                    for name in {"in_avals", "out_aval", "params"} - {missing}:  # noqa: B023
                        setattr(self, name, ())
                    super().__init__()

            with pytest.raises(AttributeError, match=f"subclass __init__ should set `self.{missing}`"):
                Bad()
    for m in (JAX, FUSER):

        class Two(m.Sin):
            def vjp_bwd(self, res, g, accum):
                accum.accum(g)

        with pytest.raises(AttributeError, match="should not override both `vjp_bwd` and `vjp_bwd_retval`"):
            Two(m.library.typeof(1.0))


def test_rules_that_are_missing():
    class Bare(FUSER.base):
        def __init__(self, x):
            self.in_avals = (x,)
            self.out_aval = x
            self.params = {}
            super().__init__()

    with pytest.raises(NotImplementedError, match="must implement `expand`"):
        Bare(fuser.typeof(1.0))(1.0)

    class Plain(Bare):
        def expand(self, x):
            return x

    plain = Plain(fuser.typeof(1.0))
    with pytest.raises(NotImplementedError, match=r"for grad support, subclass .* must implement `vjp_fwd`"):
        fuser.grad(plain)(1.0)
    with pytest.raises(NotImplementedError, match="must implement `batch` or `batch_dim_rule`"):
        fuser.vmap(plain)(XS)


def test_wrong_types():
    mul = FUSER.Mul(fuser.typeof(1.0), fuser.typeof(1.0))
    with pytest.raises(TypeError, match=r"input type mismatch for Mul\[\{\}\].*got float32\[3\] for float32\[\]"):
        mul(XS, 1.0)
    with pytest.raises(TypeError, match="arguments with the tree of its in_avals"):
        mul(1.0)

    def failing(error, match, **rules):
        kind = type("Wrong", (FUSER.Sin,), rules)
        with pytest.raises(error, match=match):
            fuser.grad(lambda x: kind(fuser.typeof(x))(x))(1.0)

    failing(TypeError, "must return results of expand of the types of its out_aval", expand=lambda self, x: XS)
    failing(TypeError, "must return a tuple with one cotangent", vjp_bwd_retval=lambda self, x, g: g)
    failing(ValueError, "Expected cotangent type float32", vjp_bwd_retval=lambda self, x, g: (XS,))
    failing(TypeError, r"must return \(result, residuals\)", vjp_fwd=lambda self, nz, x: self(x))
    with pytest.raises(fuser.errors.AbsentError, match="must be a tree of types of arrays"):
        FUSER.Sin("a type of one's own")
    unbatched = type("Unbatched", (FUSER.Sin,), {"batch_dim_rule": lambda self, axis, dims: None})
    with pytest.raises(ValueError, match="vmap has mapped output but out_axes is None"):
        fuser.vmap(lambda x: unbatched(fuser.typeof(x))(x))(XS)


# Rules from other rules: names that newer releases of JAX have.


def derived(**rules):
    def jvp(self, primals, tangents):
        (x,), (t,) = primals, tangents
        return self(x), FUSER.xp.cos(x) * t

    given = {
        "lin": lambda self, nzs, x: (self(x), FUSER.xp.cos(x)),
        "linearized": lambda self, cos, t: cos * t,
        "jvp": jvp,
        "vjp_fwd": FUSER.base.vjp_fwd,
        "vjp_bwd_retval": FUSER.base.vjp_bwd_retval,
    }
    kind = type("Derived", (FUSER.Sin,), {**given, **rules})
    return lambda x: kind(fuser.typeof(x))(x)


def pair(names, rules):
    return dict(zip(names, rules))


LIN, VJP = ("lin", "linearized"), ("vjp_fwd", "vjp_bwd_retval")
DERIVED = {
    "vjp from jvp": pair(VJP, hijax.vjp_from_jvp) | pair(LIN, hijax.linearize_from_jvp),
    "vjp from lin from jvp": pair(VJP, hijax.vjp_from_lin) | pair(LIN, hijax.linearize_from_jvp),
    "all from lin": pair(VJP, hijax.vjp_from_lin) | {"jvp": hijax.jvp_from_lin},
}


@pytest.mark.parametrize("case", DERIVED)
@pytest.mark.parametrize("jitted", [False, True])
def test_rules_from_other_rules(case, jitted):
    f, wanted = derived(**DERIVED[case]), FUSER.xp.sin
    f = fuser.jit(f) if jitted else f
    for rest in (ONE, FORWARD):
        for name in ("grad", "grad of grad", "jit of grad of grad", "vmap of grad", "grad of vmap", "grad of vmap of scan", "jvp",
                     "hessian", "hessian of scan", "jacfwd of jacfwd", "linearize", "linearize of scan",
                     "cond", "while"):  # fmt: skip
            if name in rest:
                found, expected = (fuser.tree.leaves(rest[name](FUSER, fuser, g)) for g in (f, wanted))
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=4e-6, atol=1e-6, err_msg=name)


def test_derived_rules_say_how_they_are_used():
    with pytest.raises(TypeError, match="can't set both `jvp = jvp_from_lin`"):
        fuser.jvp(derived(jvp=hijax.jvp_from_lin, **pair(LIN, hijax.linearize_from_jvp)), (1.0,), (1.0,))
    with pytest.raises(TypeError, match="unpack it in the class body: `lin, linearized = linearize_from_jvp`"):
        fuser.linearize(derived(lin=hijax.linearize_from_jvp), 1.0)


def test_a_derivative_that_is_zero_is_so_linearized():
    rule = lambda self, primals, tangents: (self(*primals), np.zeros(primals[0].shape, fuser.dtypes.float0))
    f = derived(jvp=rule, **pair(LIN, hijax.linearize_from_jvp))
    np.testing.assert_array_equal(fuser.linearize(f, XS)[1](XS), np.zeros(3))
