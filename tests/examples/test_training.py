"""The examples that differentiate, batch and loop, at a reduced size: accuracy, prices, conserved quantities, posteriors."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.partition.group import Kind
from tests.examples.test_examples import load

# digits_classifiers


def test_both_classifiers_of_digits_learn(capsys: pytest.CaptureFixture[str]) -> None:
    scores = load("digits_classifiers").main(["--epochs", "10"])
    assert set(scores) == {"mlp by sgd", "residual network by adam"}
    assert min(scores.values()) >= 0.96
    assert re.search(
        r"mlp by sgd: 97\.\d% of 359 held-out digits right; training loss 0\.0\d+", capsys.readouterr().out
    )


def test_adam_and_sgd_take_the_steps_of_their_formulas() -> None:
    module = load("digits_classifiers")
    parameters = {"w": jnp.asarray([1.0, -2.0]), "b": [jnp.asarray(0.5)]}
    gradients = {"w": jnp.asarray([0.1, -3.0]), "b": [jnp.asarray(0.0)]}
    start, update = module.adam(rate=0.01)
    state, moved = update(start(parameters), gradients, parameters)
    np.testing.assert_allclose(moved["w"], [0.99, -1.99], rtol=1e-5)  # the first step has the length of the rate
    assert float(moved["b"][0]) == 0.5 and float(state["step"]) == 1
    start, update = module.sgd(rate=0.1, momentum=0.9)
    state, moved = update(start(parameters), gradients, parameters)
    state, moved = update(state, gradients, moved)
    np.testing.assert_allclose(moved["w"], [1 - 0.1 * 0.1 * 2.9, -2 + 0.1 * 3 * 2.9], rtol=1e-6)


# private_gradients


def test_private_gradients_train_a_classifier() -> None:
    assert load("private_gradients").main(["--steps", "80"]) > 0.9


def test_gradients_of_examples_are_those_of_each_alone() -> None:
    module = load("private_gradients")
    (x, labels), _ = module.digits()
    rng = np.random.default_rng(0)
    shapes = {"w1": (64, 8), "b1": (8,), "w2": (8, 10), "b2": (10,)}
    parameters = {
        name: jnp.asarray(rng.normal(size=shape, scale=0.3).astype(np.float32)) for name, shape in shapes.items()
    }
    together = fuser.jit(module.example_gradients)(parameters, x[:5], labels[:5])
    for number in range(5):
        alone = fuser.grad(module.loss)(parameters, x[number], labels[number])
        for name in parameters:
            np.testing.assert_allclose(together[name][number], alone[name], rtol=1e-4, atol=1e-6)
    total, lengths = module.clipped_sum(together, 0.5)
    expected = [math.sqrt(sum(float((together[name][n] ** 2).sum()) for name in parameters)) for n in range(5)]
    np.testing.assert_allclose(lengths, expected, rtol=1e-5)
    clipped = [together["w2"][n] * min(1, 0.5 / expected[n]) for n in range(5)]
    np.testing.assert_allclose(total["w2"], np.sum(clipped, axis=0), rtol=1e-4, atol=1e-6)


# option_pricing


def test_simulated_prices_and_greeks_agree_with_the_formula() -> None:
    module = load("option_pricing")
    results = module.main(["--paths", "40000", "--days", "16"])
    price, error, greeks = results["european"]
    exact, exact_greeks = module.black_scholes({"spot": 100.0, "volatility": 0.25, "rate": 0.03})
    assert 0.05 < error < 0.15 and abs(price - exact) < 3 * error
    for name, tolerance in (("spot", 0.01), ("volatility", 1.2), ("rate", 1.0)):
        assert greeks[name] == pytest.approx(exact_greeks[name], abs=tolerance)
    assert results["asian"][0] < results["barrier"][0] < price  # the mean moves less, the barrier must be reached first


def test_a_walk_has_the_mean_and_the_spread_of_its_market() -> None:
    module = load("option_pricing")
    market = {"spot": jnp.float32(100), "volatility": jnp.float32(0.25), "rate": jnp.float32(0.03)}
    last, mean, highest = (np.asarray(v) for v in module.walk(fuser.random.key(1), market, 40000, 16))
    assert last.mean() == pytest.approx(100 * math.exp(0.03), abs=3 * float(last.std()) / 200)
    assert np.log(last).std() == pytest.approx(0.25, rel=0.02)
    assert (highest >= last * 0.99999).all() and (highest >= 99.999).all() and (mean <= highest * 1.00001).all()


def test_greeks_are_the_slopes_of_the_price() -> None:
    module = load("option_pricing")
    market = {"spot": 100.0, "volatility": 0.25, "rate": 0.03}
    run = fuser.jit(lambda market: module.price(fuser.random.key(3), market, module.barrier, 2000, 8)[0])
    single = {name: jnp.float32(value) for name, value in market.items()}
    greeks = fuser.grad(run)(single)
    for name, step in (("spot", 0.05), ("volatility", 1e-3), ("rate", 1e-3)):
        up, down = (run(single | {name: jnp.float32(market[name] + side * step)}) for side in (1, -1))
        assert float(greeks[name]) == pytest.approx((float(up) - float(down)) / (2 * step), rel=0.03)


# lotka_volterra


def test_an_ensemble_of_orbits_is_one_loop_kernel_that_conserves() -> None:
    module = load("lotka_volterra")
    assert module.main(["--size", "1000", "--steps", "400"]) < 2e-4
    plan = module.ensemble(20.0, 1000).lower(*module.starting_points(100_000)).plan
    assert [group.kind for group in plan.groups] == [Kind.LOOP]


def test_an_orbit_agrees_with_an_adaptive_solver() -> None:
    from scipy.integrate import solve_ivp

    module = load("lotka_volterra")
    found = module.ensemble(6.0, 300)(np.float32([5.0]), np.float32([1.0]))
    exact = solve_ivp(lambda _, state: module.rates(*state), (0, 6), [5.0, 1.0], rtol=1e-9, atol=1e-9).y[:, -1]
    np.testing.assert_allclose([float(found[0][0]), float(found[1][0])], exact, rtol=1e-3)


# hamiltonian_monte_carlo


def test_the_sampled_posterior_is_that_of_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    worst, acceptance = load("hamiltonian_monte_carlo").main(["--draws", "400", "--chains", "4"])
    assert worst < 0.3 and 0.7 < acceptance <= 1
    assert "bmi: +0.3" in capsys.readouterr().out


def test_leapfrog_steps_go_back_when_the_momentum_is_turned() -> None:
    module = load("hamiltonian_monte_carlo")
    x, y, _ = module.regression(100)
    density = lambda weights: module.log_density(weights, jnp.asarray(x), jnp.asarray(y))
    rng = np.random.default_rng(0)
    position, momentum = (rng.normal(size=11, scale=0.1).astype(np.float32) for _ in range(2))
    moved, turned = module.leapfrog(density, position, momentum, 0.02, 10)
    assert float(jnp.abs(moved - position).max()) > 0.01
    back, _ = module.leapfrog(density, moved, -turned, 0.02, 10)
    np.testing.assert_allclose(back, position, atol=1e-5)
