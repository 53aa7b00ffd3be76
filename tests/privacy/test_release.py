"""The public record: round trips, guarantees at other radii, what it says of itself."""

import copy
import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy import Bound, Release
from sklearn_balldp.privacy.bounds import ParameterBound
from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget

VARIANTS = [
    {},
    {"counts": "min", "radius": 0.3},
    {"counts": "worst", "radius": 0.3, "metric": "manhattan"},
    {"metric": "chebyshev", "radius": 0.1, "random_state": 0},
    {"protect_labels": True, "classes": [0, 1, 2], "radius": 0.5},
    {"epsilon": 0.5, "radius": 0.5, "counts": "min"},
]


@pytest.fixture(params=VARIANTS, ids=lambda v: ",".join(v) or "default")
def release(request, ball_rows):
    return BallDPRidgePrototype(**request.param).fit(*ball_rows).release_


def test_json_round_trip(release):
    text = json.dumps(release.to_dict(), allow_nan=False)
    again = Release.from_dict(json.loads(text))
    assert again == release
    assert again.guarantee(0.2) == release.guarantee(0.2)
    assert pickle.loads(pickle.dumps(release)) == release


@pytest.mark.parametrize("name", ["bound", "n_samples", "bound.n_samples", "bound.alpha"])
def test_a_record_of_another_version_names_what_it_lacks(name):
    release = BallDPRidgePrototype().fit(np.eye(4), [0, 0, 1, 1]).release_
    state = dict(vars(release))
    if name.startswith("bound."):
        state["bound"] = copy.copy(release.bound)
        del vars(state["bound"])[name.removeprefix("bound.")]
    else:
        del state[name]
    with pytest.raises(ValueError, match=f"record: {name} missing"):
        object.__new__(Release).__setstate__(state)
    # What has a default may be missing.
    del (state := dict(vars(release)))["digest"]
    (again := object.__new__(Release)).__setstate__(state)
    assert again == dataclasses.replace(release, digest="")


def test_record_is_frozen(release):
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.epsilon = 0.1


def test_declared_guarantee_holds(release):
    at_ball = release.guarantee()
    assert at_ball.delta_at(release.epsilon) <= release.delta
    assert at_ball.epsilon == pytest.approx(release.epsilon, rel=1e-6)
    assert release.mu == pytest.approx(mu_from_budget(release.epsilon, release.delta))
    ratio = np.max(np.divide(release.sensitivity, release.sigma))
    assert at_ball.mu == release.mu
    assert release.mu >= ratio
    assert release.mu == pytest.approx(ratio, rel=1e-6)


def test_guarantee_at_other_radii(release):
    half, whole = release.guarantee(release.radius / 2), release.guarantee(2 * math.sqrt(6) + 1)
    if release.labels == "public" and release.metric == "euclidean":
        assert half.mu == pytest.approx(release.mu / 2, rel=1e-5)
    assert half.epsilon <= release.guarantee().epsilon <= whole.epsilon
    assert whole.epsilon == pytest.approx(release.epsilon_full_radius)
    assert whole.delta_at(whole.epsilon) == pytest.approx(release.delta, rel=1e-6)
    assert delta_from_mu(whole.mu, whole.epsilon) <= release.delta


def test_certificate(release):
    # In a ball no candidate is further than its radius from the zero record.
    nearest = release.guarantee(min(release.radius, release.norm_bound))
    assert release.certificate(0.1) == pytest.approx(norm.cdf(norm.ppf(0.1) + nearest.mu))
    assert release.certificate(0.1, radius=release.radius / 2) <= release.certificate(0.1)
    assert release.certificate(0.0) == 0
    assert release.certificate(1.0) == 1
    with pytest.raises(ValueError, match="blind guess"):
        release.certificate(1.2)


def test_text_and_html_say_what_matters(release):
    for text in (repr(release), release._repr_html_()):
        assert f"epsilon={release.epsilon:g}" in text
        assert release.labels in text
        assert release.theorem.split(":")[0] in text
        assert ("NO: the noise was drawn from a seed" in text) == (release.private is False)


def test_labels_of_the_guarantee(release):
    if release.labels == "public":
        with pytest.raises(ValueError, match="protect_labels=True"):
            release.guarantee(labels="protected")
    else:
        same_label = release.guarantee(0.2, labels="public")
        expected = 2 * 0.2 / (2 + release.alpha * release.n_samples) / release.sigma
        assert same_label.mu == pytest.approx(expected, rel=1e-5)
        assert same_label.labels == "public"
        assert release.certificate(0.1, 0.2, "public") < release.certificate(0.1, 0.2)


@dataclasses.dataclass(frozen=True)
class Blocks(ParameterBound):
    """Blocks of given sensitivity, whatever the radius."""

    moves: tuple[float, ...]
    labels: str = "public"
    n_values: int = 1
    sigma: tuple[float, ...] = ()
    theorem = "as stated"

    def sensitivity(self, radius, labels=None):
        return np.array(self.moves)


def test_mu_is_the_largest_ratio_over_blocks():
    assert Blocks((1.0, 2.0, 0.0), sigma=(1.0, 1.0, 0.0)).mu(1.0) == pytest.approx(2)
    assert Blocks((1.0, 1.0), sigma=(1.0, 0.5)).mu(1.0) == pytest.approx(2)
    assert Blocks((3.0,), sigma=(2.0,)).mu(1.0) == pytest.approx(1.5)
    assert Blocks((0.0, 0.0), sigma=(1.0, 1.0)).mu(1.0) == 0


def test_calibration_is_undone_by_mu():
    """The noise that makes a bound mu-GDP, slack of the sampler included."""
    for n_values in (1, 10**6):
        bound = Blocks((1.0, 3.0), n_values=n_values).calibrated(0.5, 0.7)
        assert bound.mu(0.5) == pytest.approx(0.7, rel=1e-5)
        assert bound.mu(0.5) <= 0.7
        assert bound.sigma[1] == pytest.approx(3 * bound.sigma[0])
    with pytest.raises(ValueError, match="epsilon is too small"):
        Blocks((1.0,), n_values=10**6).calibrated(0.5, 1e-9)


def test_bounds_of_other_modules_are_named_with_them(ball_rows):
    """A record made elsewhere is read where its bound is defined; no name is taken twice."""
    bound = Blocks((1.0, 2.0), sigma=(0.5, 0.5))
    record = json.loads(json.dumps(bound.to_dict()))
    assert record["type"] == f"{__name__}:Blocks"
    release = BallDPRidgePrototype(1.0, radius=0.5).fit(*ball_rows).release_
    # Same name, and a mu of almost nothing: the built-in one stays what it is.
    fields = {
        "__module__": "elsewhere",
        "__qualname__": "PrototypeBound",
        "theorem": "none",
        "mu_at": lambda self, radius, labels: 1e-9,
    }
    type("PrototypeBound", (Bound,), fields)
    assert Release.from_dict(release.to_dict()).guarantee() == release.guarantee()
    assert release.to_dict()["bound"]["type"] == "PrototypeBound"


def test_public_labels_promise_nothing_of_changes(release):
    """Class counts are published: no bound, of any kind, is finite for a change of label."""
    bound = release.bound
    if release.labels == "public":
        assert bound.mu(0.5, "protected") == math.inf
    else:
        assert bound.mu(0.5, "public") <= bound.mu(0.5)
    with pytest.raises(ValueError, match="labels must be one of public, protected"):
        bound.mu(0.5, "private")


def test_records_state_zcdp_beside_mu(release):
    assert release.rho == release.mu**2 / 2


def test_a_radius_of_next_to_nothing_is_none():
    X, y = np.eye(4), [0, 1] * 2
    release = BallDPRidgePrototype(2.0, radius=1e-30).fit(X, y).release_
    with pytest.raises(ValueError, match="record: radius must be a positive number"):
        dataclasses.replace(release, radius=1e-310)
