"""Sums of public examples: what no examples have is named, and honest ones pass."""

from dataclasses import replace

import numpy as np
import pytest

from sklearn_balldp.mechanisms import Examples
from sklearn_balldp.publish.examples import fault_of

FILE = "publish/examples.py"


def sums(seed=0, n=20, d=6, k=3, classes=None, scale=1.0, **params):
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, d)) + np.arange(n)[:, None] % 3
    return Examples.of(X, np.arange(n) % (classes or k), k, **params)


@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize(
    "of",
    [
        {},
        {"n": 40, "d": 2, "k": 2, "norm_bound": 3.0},
        {"n": 1},
        {"n": 3},
        {"n": 7, "k": 9},
        {"n": 9, "classes": 1},
        {"n": 8, "d": 30, "scale": 100.0},
        {"n": 12, "scale": 0.0},
        {"n": 30, "scale": 1e-9},
    ],
)
def test_sums_of_any_examples_pass(of, domain):
    examples = sums(domain=domain, **of)
    assert fault_of(examples, of.get("n", 20)) is None


@pytest.mark.kills(FILE, "(lengths > 1.0 + _ROUNDING).any()", "False")
@pytest.mark.kills(FILE, "array[e.counts == 0.0].any()", "False")
@pytest.mark.kills(FILE, "for weights in (e.coef, e.intercept):", "for weights in ():")
@pytest.mark.kills(FILE, "e.told.min() < 0.0 or", "")
@pytest.mark.kills(FILE, "1.0 - 1.0 / len(e.counts)", "1.0")
@pytest.mark.kills(FILE, "None if alone and same", "None if same")
@pytest.mark.kills(FILE, "None if alone and same", "None if alone")
@pytest.mark.kills(FILE, "if trace * e.freedom > room", "if 0.0 * trace > room")
@pytest.mark.kills(FILE, "e.spread * (1.0 + 1e-6)", "np.inf")
@pytest.mark.kills(FILE, "e.within.T, _ROUNDING,", "e.within, _ROUNDING,")
@pytest.mark.parametrize(
    ("of", "change", "named"),
    [
        ({}, lambda e: {"counts": e.counts + 1.0}, "other public examples"),
        ({}, lambda e: {"counts": e.counts + np.array([0.5, -0.5, 0.0])}, "other public examples"),
        ({}, lambda e: {"means": e.means * 1.5}, "outside of the domain"),
        ({"k": 4, "classes": 3}, lambda e: {"means": e.means + 0.01}, "without public examples"),
        ({}, lambda e: {"coef": e.coef + 1.0}, "do not add up to zero"),
        ({}, lambda e: {"intercept": e.intercept + 1.0}, "do not add up to zero"),
        ({}, lambda e: {"told": e.told * [-1.0, 1.0]}, "variance or curvature"),
        ({}, lambda e: {"told": np.array([1.0, 0.7])}, "variance or curvature"),
        ({"n": 3}, lambda e: {"within": np.eye(6)}, "a spread of single"),
        ({"n": 3}, lambda e: {"told": e.told * 0.5}, "a spread of single"),
        ({}, lambda e: {"within": e.within * 9.0}, "spread further"),
        ({}, lambda e: {"within": -e.within}, "that no rows have"),
        ({}, lambda e: {"within": np.tril(e.within)}, "that no rows have"),
        ({}, lambda e: {"cross": e.cross * 9.0}, "that no rows have"),
        ({}, lambda e: {"spread": e.spread * 0.0}, "that no rows have"),
        ({"n": 12, "scale": 0.0}, lambda e: {"cross": e.cross + 1.0}, "that no rows have"),
    ],
)
def test_sums_that_no_examples_have_are_named(of, change, named):
    examples = sums(**of)
    assert named in fault_of(replace(examples, **change(examples)), examples.total)
