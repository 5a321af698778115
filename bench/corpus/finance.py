"""Finance: prices, risk, portfolios, trades."""

from __future__ import annotations

import numpy as np
import scipy.special

from bench.corpus.case import Case

TRADE = np.dtype([("price", "f8"), ("quantity", "i8"), ("side", "i1")])


def black_scholes(spot, strike, years, rate, volatility):
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    d2 = d1 - root
    return spot * scipy.special.ndtr(d1) - strike * np.exp(-rate * years) * scipy.special.ndtr(d2)


def log_returns(prices):
    return np.diff(np.log(prices), axis=0)


def sharpe_ratio(returns, risk_free):
    excess = returns - risk_free
    return np.sqrt(252) * excess.mean() / excess.std(ddof=1)


def drawdown(prices):
    peak = np.maximum.accumulate(prices)
    fall = prices / peak - 1
    return fall.min(), int(fall.argmin())


def simulate_paths(rng, spot, drift, volatility, steps, paths):
    dt = 1 / steps
    shocks = rng.standard_normal((paths, steps))
    logs = np.cumsum((drift - 0.5 * volatility**2) * dt + volatility * np.sqrt(dt) * shocks, axis=1)
    return np.maximum(spot * np.exp(logs[:, -1]) - spot, 0).mean()


def bond_prices(coupon, yields, periods):
    t = np.arange(1, periods + 1)
    discount = (1 + yields[:, None] / 2) ** -t
    return (coupon / 2 * discount).sum(axis=1) + 100 * discount[:, -1]


def internal_rate(flows, guess):
    rate, t = guess, np.arange(len(flows))
    for _ in range(50):
        factor = (1 + rate) ** -t
        value = (flows * factor).sum()
        if abs(value) < 1e-9:
            break
        rate += value / (t * flows * factor).sum() * (1 + rate)
    return rate


def portfolio_risk(weights, returns):
    c = np.cov(returns, rowvar=False)
    total = np.sqrt(weights @ c @ weights)
    return total, weights * (c @ weights) / total


def daily_vwap(price, volume, starts):
    return np.add.reduceat(price * volume, starts) / np.add.reduceat(volume, starts)


def bollinger(prices, width):
    windows = np.lib.stride_tricks.sliding_window_view(prices, width)
    middle, spread = windows.mean(axis=-1), windows.std(axis=-1)
    return middle - 2 * spread, middle, middle + 2 * spread


def trade_value(trades):
    signed = np.where(trades["side"] > 0, trades["quantity"], -trades["quantity"])
    return (trades["price"] * signed).sum(), np.abs(signed).sum()


def accrued_interest(start, end, rate, notional):
    days = (end - start) / np.timedelta64(1, "D")
    return notional * rate * days / 365


def relative_strength(prices, width):
    change = np.diff(prices)
    gain, loss = np.where(change > 0, change, 0), np.where(change < 0, -change, 0)
    weights = np.ones(width) / width
    up, down = np.convolve(gain, weights, "valid"), np.convolve(loss, weights, "valid")
    return 100 - 100 / (1 + up / (down + 1e-12))


def value_at_risk(returns, weights, level):
    losses = -(returns @ weights)
    threshold = np.quantile(losses, level)
    return threshold, losses[losses >= threshold].mean()


def rebalance(holdings, prices, target):
    value = holdings * prices
    total = value.sum()
    drift = value / total - target
    if np.abs(drift).max() > 0.05:
        holdings[:] = np.round(target * total / prices, 2)
    return drift


def _option(random, size):
    return 80 + 40 * random.random(size), 80 + 40 * random.random(size), 0.1 + random.random(size), 0.02, 0.3


def _prices(random, size):
    return 100 * np.exp(np.cumsum(0.01 * random.standard_normal(size)))


def _portfolio(random, size):
    weights = random.random(20)
    return weights / weights.sum(), 0.01 * random.standard_normal((size // 20, 20))


def _volumes(random, size):
    return 90 + random.random(size), random.integers(1, 500, size).astype(float), np.arange(0, size, 390)


def _trades(random, size):
    trades = np.zeros(size, TRADE)
    trades["price"], trades["quantity"] = 90 + random.random(size), random.integers(1, 500, size)
    trades["side"] = random.choice([-1, 1], size)
    return (trades,)


def _loans(random, size):
    start = np.datetime64("2020-01-01") + random.integers(0, 900, size).astype("timedelta64[D]")
    return start, start + random.integers(1, 400, size).astype("timedelta64[D]"), 0.05, 1000 * random.random(size)


def _losses(random, size):
    weights, returns = _portfolio(random, size)
    return returns, weights, 0.95


def _holdings(random, size):
    target = random.random(size)
    return 10 * random.random(size), 50 + 50 * random.random(size), target / target.sum()


CASES = [
    Case(black_scholes, _option, 500_000),
    Case(log_returns, lambda random, size: (_prices(random, size).reshape(-1, 4),), 1_000_000),
    Case(sharpe_ratio, lambda random, size: (0.01 * random.standard_normal(size), 1e-4), 5_000),
    Case(drawdown, lambda random, size: (_prices(random, size),), 500_000),
    Case(simulate_paths, lambda random, size: (np.random.default_rng(1), 100.0, 0.03, 0.2, 50, size // 50), 500_000),
    Case(bond_prices, lambda random, size: (5.0, 0.01 + 0.05 * random.random(size), 40), 10_000),
    Case(internal_rate, lambda random, size: (np.r_[-100.0, 5 + 5 * random.random(size)], 0.05), 30, small=30),
    Case(portfolio_risk, _portfolio, 50_000),
    Case(daily_vwap, _volumes, 390_000),
    Case(bollinger, lambda random, size: (_prices(random, size), 20), 100_000),
    Case(trade_value, _trades, 200_000),
    Case(accrued_interest, _loans, 200_000),
    Case(relative_strength, lambda random, size: (_prices(random, size), 14), 200_000),
    Case(value_at_risk, _losses, 400_000),
    Case(rebalance, _holdings, 1_000),
]
