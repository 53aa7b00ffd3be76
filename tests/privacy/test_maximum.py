"""The certified search: never below a maximum, hardly above it, and it ends."""

import math
import time

import numpy as np
import pytest

from sklearn_balldp.privacy.maximum import certified_maximum

SETTINGS = {"n_cells": 16, "excess": 1e-6, "max_cells": 50_000}


def hill(low, high):
    """Upper bounds on exp(-|z - (0.3, -0.2)|^2) over cells."""
    centre = np.array([[0.3], [-0.2]])
    nearest = np.clip(centre, low, high)
    return np.exp(-np.sum((nearest - centre) ** 2, axis=0))


def test_maximum_inside_and_at_an_edge():
    assert certified_maximum(hill, [-1, -1], [1, 1], **SETTINGS) == pytest.approx(1.0, rel=2e-6)
    found = certified_maximum(hill, [0.5, -1], [1, 1], **SETTINGS)
    exact = math.exp(-0.04)
    assert exact <= found <= exact * (1 + 2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_never_below_what_a_grid_finds(seed):
    """Sums of bumps, bounded cell by cell by their Lipschitz constant."""
    rng = np.random.default_rng(seed)
    at, width = rng.uniform(-1, 1, (6, 1)), rng.uniform(5, 40, (6, 1))

    def value(z):
        return np.exp(-width * np.abs(z - at)).sum(axis=0)

    def bound(low, high):
        nearest = np.clip(at, low[0], high[0])
        return np.exp(-width * np.abs(nearest - at)).sum(axis=0)

    found = certified_maximum(bound, [-1.0], [1.0], **SETTINGS)
    grid = value(np.linspace(-1, 1, 400_001)).max()
    assert grid <= found <= grid * 1.001


def test_infeasible_cells_do_not_count():
    """Below the diagonal alone, with points that lie there."""
    found = certified_maximum(
        hill,
        [-1, -1],
        [1, 1],
        **SETTINGS,
        feasible=lambda low, high: low[0] <= high[1],
        attained=lambda low, high: np.array([low[0], np.maximum(low[0], high[1])]),
    )
    exact = math.exp(-2 * 0.25**2)
    assert exact * (1 - 1e-12) <= found <= exact * 1.00001


def test_what_is_enough():
    assert certified_maximum(hill, [-1, -1], [1, 1], **SETTINGS, enough=0.9) == 0.9


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_overflow_bounds_anything(bad):
    found = certified_maximum(
        lambda low, high: np.full(low.shape[1], bad), [0.0], [1.0], **SETTINGS
    )
    assert found == math.inf


def test_a_bound_that_never_becomes_tight_ends_the_search():
    """Its own excess is given back, after the most cells or the smallest ones."""

    def loose(low, high):
        return np.where((low == high).all(axis=0), 1.0, 3.0)

    started = time.process_time()
    assert certified_maximum(loose, [0.0], [1.0], **SETTINGS) == 3.0
    assert certified_maximum(loose, [0.0], [1.0], n_cells=1, excess=0.1, max_cells=0) == 3.0
    assert time.process_time() - started < 20
