"""Metric moduli, radii and the domain of the rows."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sklearn_balldp.adjacency import METRICS, RowGeometry
from sklearn_balldp.privacy import Problem

CDIST = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


def problem_of(metric, **numbers):
    sizes = {"n_samples": 9, "n_features": 5, "n_classes": 2, "class_counts": (5, 4)}
    return Problem(**{**sizes, "metric": metric, "radius": 0.2, **numbers})


@pytest.mark.parametrize("metric", METRICS)
def test_modulus_is_never_exceeded_and_is_attained(metric):
    rng = np.random.default_rng(1)
    d, problem = 5, problem_of(metric)
    steps = rng.standard_normal((20_000, d)) * rng.choice([0.0, 1.0, 1e3], size=(20_000, d))
    steps = np.vstack([steps, np.ones(d), np.eye(d)])
    steps = steps[np.any(steps != 0, axis=1)]
    steps *= problem.radius / cdist(steps, np.zeros((1, d)), CDIST[metric])
    lengths = np.linalg.norm(steps, axis=1)
    assert lengths.max() == pytest.approx(problem.euclidean_radius, rel=1e-12)
    # Opposite rows of the ball, in every direction, are within the full radius; some reach it.
    apart = 2.0 * np.linalg.norm(steps / lengths[:, None], METRICS[metric].order, axis=1)
    assert apart.max() == pytest.approx(problem.full_radius, rel=1e-12)


def test_radius_is_capped_at_the_diameter():
    for metric in METRICS:
        problem = problem_of(metric, norm_bound=1.5)
        assert problem.euclidean(1e3) == problem.euclidean(problem.full_radius) == 3.0


@pytest.mark.parametrize(
    ("radius", "metric", "name"),
    [
        (-1, "euclidean", "radius"),
        (0, "chebyshev", "radius"),
        (math.nan, "euclidean", "radius"),
        (1, "cosine", "metric"),
    ],
)
def test_bad_radius(radius, metric, name):
    with pytest.raises(ValueError, match=name):
        problem_of(metric).euclidean(radius)


@pytest.mark.kills("adjacency.py", "up = 1.0 + ROW_ALLOWANCE", "up = 1.0")
@pytest.mark.kills("adjacency.py", "min(radius, 2.0 * norm_bound)", "min(radius, norm_bound)")
def test_domain():
    """Its geometry by hand, and the allowance for rounding, once and for all."""
    domain = RowGeometry(2.0, 0.5, 1.5)
    assert domain.augmented == pytest.approx(2.5)
    assert domain.squared_norm_drop == pytest.approx(4 - 1.5**2)
    assert RowGeometry(2.0, 3.0).squared_norm_drop == 4.0
    assert RowGeometry(2.0, 9.0).radius == 4.0
    assert domain.at(1.0) == RowGeometry(2.0, 1.0, 1.5)
    rounded = RowGeometry.of_rounded_rows(2.0, 0.5, 1.5)
    assert rounded.norm_bound == 2.0 * (1 + 1e-6)
    assert rounded.radius == 0.5 * (1 + 1e-6)
    assert rounded.constant == 1.5
    # A small radius is not lost in B^2.
    assert RowGeometry(1.0, 1e-20).squared_norm_drop == pytest.approx(2e-20)
    # Nor do squares of tiny radii vanish; and what is no radius does not become zero.
    assert RowGeometry(1.0, 1e-200).radius == 1e-140
    assert RowGeometry(1.0, 0.0).radius == 0.0
    assert math.isnan(RowGeometry(1.0, math.nan).radius)
    assert RowGeometry(np.float16(1.0), np.float32(0.3)).norm_bound.__class__ is float
