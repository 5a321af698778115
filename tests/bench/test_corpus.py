"""The corpus of NumPy functions at small sizes: accelerated, each does what NumPy does, at the first call and at later ones."""

import json
import warnings

import numpy as np
import pytest

import fuser
from bench.corpus import CASES, FIELDS, run
from bench.corpus.check import copied, difference, restore
from fuser.errors import FuserError

# Python needs a value
UNTRACED = {
    "separable_blur",
    "stretch_contrast",
    "largest_region",
    "zero_crossings",
    "find_peaks",
    "jacobi",
    "advance_with_limit",
    "count_labels",
    "label_entropy",
    "trimmed_mean",
    "fill_missing",
    "drawdown",
    "internal_rate",
    "trade_value",
    "accrued_interest",
    "rebalance",
    "projectile",
    "power_iteration",
    "fit_polynomial",
    "conjugate_gradient",
    "random_walk_matrix",
}


def test_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES) >= 120


@pytest.mark.parametrize("field", FIELDS)
def test_accelerated_functions_do_what_numpy_does(field):
    wrong = {}
    for case in FIELDS[field]:
        words = _words(case)
        if words:
            wrong[case.name] = words
    assert wrong == {}


def _words(case):
    pristine = case.make(np.random.default_rng(0), case.small)
    wanted_given = copied(pristine)
    wanted = case.function(*wanted_given)
    accelerated, given = fuser.accelerate(case.function), copied(pristine)
    for _ in range(2):
        restore(given, pristine)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = accelerated(*given)
        except FuserError as error:
            return None if case.name in UNTRACED else str(error)
        words = difference(found, wanted) or difference(given, wanted_given, "arguments")
        if words:
            return words
    return None


def test_differences_are_found():
    x = np.arange(4.0)
    assert difference(x, x) is None
    assert difference(x.astype("f4"), x) == "result: float32[4], not float64[4]"
    assert difference((x, 1.0), (x, 1)) == "result[1]: a float, not a int"
    assert "off by" in difference(x + 1e-6, x)
    assert "generator" in difference(np.random.default_rng(1), np.random.default_rng(2))


def test_a_run_reports_ratios(tmp_path, capsys):
    path = tmp_path / "rows.json"
    assert run.main(["rebalance", "push_samples", "--no-peers", "--rounds", "3", "--json", str(path)]) in (0, 1)
    row = json.loads(path.read_text())["rows"][1]
    assert row["name"] == "push_samples" and row["fuser_s"] > 0 and row["numpy_s"] > 0
    assert "geometric means" in capsys.readouterr().out
    assert run.main(["none of them"]) == 2
