"""Quantiles of same-label distances."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sklearn_balldp.policy import radius as module
from sklearn_balldp.policy.adjacency import METRICS
from sklearn_balldp.policy.radius import same_label_quantile

CDIST = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


@pytest.mark.parametrize("metric", METRICS)
def test_quantile_of_all_pairs(ball_rows, metric):
    X, y = ball_rows
    expected = []
    for label in range(3):
        rows = X[y == label]
        distances = cdist(rows, rows, CDIST[metric])[np.triu_indices(len(rows), 1)]
        expected.append(np.quantile(distances, 0.8))
    assert same_label_quantile(X, y, 0.8, metric=metric) == pytest.approx(max(expected))


@pytest.mark.parametrize("metric", METRICS)
def test_sampled_pairs_estimate_the_same_quantile(ball_rows, metric, monkeypatch):
    X, y = ball_rows
    exact = same_label_quantile(X, y, metric=metric)
    monkeypatch.setattr(module, "ALL_PAIRS", 10)
    assert same_label_quantile(X, y, metric=metric) == pytest.approx(exact, rel=0.02)


def test_errors(ball_rows):
    X, y = ball_rows
    with pytest.raises(ValueError, match="quantile"):
        same_label_quantile(X, y, 1.5)
    with pytest.raises(ValueError, match="metric"):
        same_label_quantile(X, y, metric="cosine")
    with pytest.raises(ValueError, match="two reference rows"):
        same_label_quantile(X[:2], [0, 1])
