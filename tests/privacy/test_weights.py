"""Public numbers of weights against brute force, and records that contradict them."""

import dataclasses

import numpy as np
import pytest

from sklearn_balldp.heads.weighing import weights_of
from sklearn_balldp.privacy import Release
from sklearn_balldp.privacy.gaussian import epsilon_from_mu
from sklearn_balldp.privacy.weights import Weights


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.kills("heads/weighing.py", "bincount(owners, rows).max", "bincount(owners, rows).mean")
@pytest.mark.kills("heads/weighing.py", "max(1.0, factor),", "1.0,", attack="ridge prototypes")
def test_public_numbers_are_those_of_a_brute_force(seed):
    rng = np.random.default_rng(seed)
    n, k = 200, 4
    codes, owners = rng.integers(0, k - 1, n), rng.integers(0, 70, n)
    owners = np.unique(owners, return_inverse=True)[1]
    rows = (0.1 + 0.9 * rng.random(n)) / np.bincount(owners)[owners]
    found = weights_of(rows, codes, k, owners)
    held = np.zeros((owners.max() + 1, k))
    np.add.at(held, (owners, codes), rows)
    assert found.total == pytest.approx(rows.sum())
    assert found.largest == pytest.approx(held.sum(axis=1).max())
    assert found.largest >= held.sum(axis=1).max()
    assert found.most_records == np.bincount(owners).max()
    np.testing.assert_allclose(found.class_totals, held.sum(axis=0))
    np.testing.assert_allclose(found.class_largest, held.max(axis=0))
    largest = np.where(held.max(axis=0) > 0, held.max(axis=0), 1.0)
    block_factor = np.sqrt(((held / largest) ** 2).sum(axis=1)).max()
    assert found.block_factor == pytest.approx(block_factor)
    assert found.block_factor >= block_factor
    # Of owners of one record each the record is one.
    alone = weights_of(rows, codes, k, np.arange(n))
    assert alone.largest == rows.max()
    assert (alone.block_factor, alone.most_records, alone.n_units) == (1.0, 1, n)


def test_impossible_weights_are_refused():
    sound = Weights("person", 50, 4, 50.0, 1.0, 1.0, (30.0, 20.0), (1.0, 1.0), 1.2)
    assert sound.effective_size == 50.0
    wrong = {"unit": ["household"], "n_units": [0], "total": [-1.0], "largest": [51.0]}
    wrong |= {"record": [0.0], "block_factor": [0.9], "class_largest": [(1.0, 0.0)]}
    # A class whose records weigh nothing looks like one without records, which gets no noise.
    wrong |= {"class_totals": [None, (30.0, 20.0, 0.0), (50.0, 0.0)]}
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(ValueError, match=r"unit|total"):
            dataclasses.replace(sound, **{name: value})


def test_weights_of_no_records_are_refused(release):
    """A record whose units weigh less than they can would state a fraction of its epsilon."""
    honest = release.problem.sums_weights
    less = {"largest": 0.02 * honest.largest, "record": 0.02 * honest.record}
    more = {"total": 50.0 * honest.total}
    if release.labels == "public":
        less["class_largest"] = tuple(0.02 * largest for largest in honest.class_largest)
        more["class_totals"] = tuple(50.0 * total for total in honest.class_totals)
    fewer, less_together = {"n_units": honest.n_units - 1}, {"largest": 0.3 * honest.largest}
    lies = [less, more, fewer, less_together]
    lies = [{"sums_weights": dataclasses.replace(honest, **changes)} for changes in lies]
    for changes in lies:
        problem = dataclasses.replace(release.problem, **changes)
        try:
            mu = release.bound.mu(problem)
        except ValueError:
            mu = 0.0
        epsilon = epsilon_from_mu(mu, release.delta) * (1.0 + 1e-9) if mu > 0 else 1.0
        lie = dataclasses.replace(release, problem=problem, epsilon=max(epsilon, 1e-3))
        with pytest.raises(ValueError, match=r"weights|units|owners|n_units"):
            Release.from_dict(lie.to_dict())
