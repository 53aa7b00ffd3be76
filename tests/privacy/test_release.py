"""The public record: what it says, guarantees at other radii, and its JSON."""

import copy
import dataclasses
import json
import math
import pickle
import re

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp.privacy import Bound, Release
from sklearn_balldp.privacy.digest import parameters_digest
from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget
from sklearn_balldp.publish import summary, words


def is_descent(release):
    return release.mechanism == "gradient"


# In words -------------------------------------------------------------------------------------


def test_what_is_shown_is_a_bound(release):
    """In four digits: no less than is promised, and no more noise than there is."""
    text = summary(release)

    def number(pattern):
        return float(re.search(pattern + r"([\d.e+-]+)", text)[1])

    for found, value in (
        (number(r"\(mu="), release.mu),
        (number("zCDP rho="), release.rho),
        (number("at full radius +epsilon="), release.epsilon_full_radius),
    ):
        assert value * (1 - 1e-12) <= found <= value * 1.001
    # Query by query, in their order: what moved them at most, and their noise.
    asked = release.bound.by_query(release.problem)
    if release.head == "BallDPRidgePrototype":
        asked = [("prototypes", release.sensitivity, release.sigma)]
    for title, which, bound in (("sensitivity", 1, np.greater_equal), ("noise scale", 2, np.less)):
        parts = re.search(rf"{title} +([^;]*);", text)[1].split(", ")
        for part, query in zip(parts, asked, strict=True):
            shown, exact = float(part.split()[0]), np.min(query[which])
            assert bound(shown, exact * (1 + (3 - 2 * which) * -1e-12))
            assert shown == pytest.approx(exact, rel=1e-3)


# JSON -------------------------------------------------------------------------------------------


def test_json_round_trip(release):
    """Other tools write floats as whole numbers, too: 2.0 as 2."""

    def rewritten(value):
        if isinstance(value, dict):
            return {key: rewritten(item) for key, item in value.items()}
        if isinstance(value, list):
            return [rewritten(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    record = release.to_dict()
    for written in (json.loads(json.dumps(record, allow_nan=False)), rewritten(record)):
        again = Release.from_dict(written)
        assert again == release == release.checked()
        assert again.to_dict() == record
        assert again.guarantee(0.2) == release.guarantee(0.2)
        assert isinstance(again.epsilon, float)


def test_a_pickle_holds_plain_data_that_is_checked(release):
    assert pickle.loads(pickle.dumps(release)) == release
    assert copy.deepcopy(release) is release
    read, (record,) = release.__reduce__()
    record["problem"]["n_samples"] = 89
    with pytest.raises(ValueError, match=r"n_samples=89|sums_weights|epsilon|checksum"):
        read(record)


def test_numbers_of_numpy_become_those_of_python(release_of):
    release = release_of("prototypes")
    problem = dataclasses.replace(
        release.problem, n_samples=np.int64(90), radius=np.float64(0.5), alpha=np.float64(0.1)
    )
    record = dataclasses.replace(release, problem=problem, delta=np.float64(1e-5)).to_dict()
    assert json.loads(json.dumps(record)) == release.to_dict()


def test_what_follows_from_others_is_stated_where_they_do_not_tell(release_of):
    """A head, and a mechanism, that are none of this package; numbers of protected labels."""
    release = dataclasses.replace(release_of("descent"), head="Mine", mechanism="mine")
    record = release.checked().to_dict()
    assert (record["problem"]["loss"], record["mechanism"]) == ("softmax", "mine")
    hidden = release_of("protected").to_dict()["problem"]
    assert (hidden["n_samples"], hidden["n_classes"]) == (90, 3)
    with pytest.raises(ValueError, match="stated where class_counts are not"):
        dataclasses.replace(release_of("protected").problem, n_samples=None)
    # What follows from released sums is stated nowhere.
    release = release_of("started descent")
    assert release.sensitivity == release.sigma == ()
    assert release_of("minimiser").tol > 0.0 == release.tol


# Numbers ----------------------------------------------------------------------------------------


def test_declared_guarantee_holds(release):
    declared = release.guarantee()
    parameters = delta_from_mu(declared.mu, release.epsilon)
    assert parameters <= release.delta
    assert declared.mu == release.mu <= mu_from_budget(release.epsilon, release.delta)
    assert release.rho == release.mu**2 / 2
    if not is_descent(release) and release.unit == "record" and isinstance(release.sigma, float):
        ratio = np.max(np.divide(release.sensitivity, release.sigma))
        assert ratio <= release.mu
        assert release.mu == pytest.approx(ratio, rel=1e-5)


@pytest.mark.kills(
    "privacy/release.py",
    "mu = math.nextafter(records * mu, math.inf)",
    "mu = math.nextafter((records - 1) * mu, math.inf)",
    attack="discriminant",
)
def test_guarantee_at_other_radii(release):
    half, whole = release.guarantee(release.radius / 2), release.guarantee(2 * math.sqrt(6) + 1)
    assert half.epsilon <= release.guarantee().epsilon <= whole.epsilon
    assert whole.epsilon == pytest.approx(release.epsilon_full_radius)
    assert release.guarantee(release.full_radius).epsilon == pytest.approx(whole.epsilon)
    assert delta_from_mu(whole.mu, whole.epsilon) <= release.delta
    two = release.guarantee(records=2)
    assert two.mu == pytest.approx(2 * release.mu)
    with pytest.raises(ValueError, match="radius must be"):
        release.guarantee("0.5")
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="records must be an integer"):
            release.guarantee(records=bad)


def test_certificate(release):
    if release.domain == "ball":
        # In a ball no candidate is further than its radius from the zero record.
        nearest = release.guarantee(min(release.radius, release.norm_bound))
        assert release.certificate(0.1) == pytest.approx(norm.cdf(norm.ppf(0.1) + nearest.mu))
    power = norm.cdf(norm.ppf(0.1) + release.mu)
    assert release.guarantee().tpr(0.1) == pytest.approx(power)
    assert release.certificate(0.1, radius=release.radius / 2) <= release.certificate(0.1)
    furthest = release.guarantee_of_candidates(release.full_radius)
    assert (furthest.radius < release.full_radius) == (release.domain == "ball")
    assert release.certificate(0.0) == 0
    assert release.certificate(1.0) == 1
    with pytest.raises(ValueError, match=r"^kappa \(a blind guess"):
        release.certificate(1.2)
    with pytest.raises(ValueError, match=r"^fpr \(a rate of false positives"):
        release.guarantee().tpr([0.1, 1.5])
    # Of an array a curve, of one number a number.
    grid = np.linspace(0.0, 1.0, 6).reshape(2, 3)
    curve = release.certificate(grid)
    assert curve.shape == grid.shape
    assert curve.ravel().tolist() == [release.certificate(share) for share in grid.ravel()]
    assert type(release.certificate(np.float64(0.1))) is float


def test_labels_of_the_guarantee(release):
    if release.labels == "public":
        # Class counts are published: no bound, of any kind, is finite for a change of label.
        assert release.bound.mu(release.problem, 0.5, "protected") == math.inf
        with pytest.raises(ValueError, match="protect_labels=True"):
            release.guarantee(labels="protected")
    else:
        same_label = release.guarantee(0.2, labels="public")
        assert same_label.labels == "public"
        assert same_label.mu <= release.guarantee(0.2).mu
        assert release.certificate(0.1, 0.2, "public") <= release.certificate(0.1, 0.2)
    with pytest.raises(ValueError, match="labels must be one of public, protected"):
        release.bound.mu(release.problem, 0.5, "private")


# Words ------------------------------------------------------------------------------------------


def test_a_summary_says_what_matters(release):
    text = summary(release)
    assert f"epsilon={release.epsilon:g}" in text
    assert release.labels in text
    assert release.theorem.split(":")[0] in text
    assert ("NO: the noise was drawn from a seed" in text) == (release.private is False)
    assert ("nobody else has checked it" in text) == bool(release.accepted)
    assert repr(release).startswith(f"<Release of a {release.head}: epsilon={release.epsilon}")


# Models -----------------------------------------------------------------------------------------


def test_words_of_units_and_weights(release_of):
    persons, plain = release_of("persons"), release_of("prototypes")
    assert words.unit_in_words(persons) == "one person (at most 2 records)"
    assert (persons.n_units, plain.n_units) == (45, 90)
    assert "noise of 45 records, for 45 persons" in summary(persons)
    assert words.weights_in_words(plain) == ""
    said = "75 % of the 8 given edits, and all of them for 50 % of the records"
    assert words.hidden_edits(release_of("statistics")) == said


def test_digest_of_parameters():
    """The layout that the documentation states, computed by hand."""
    import hashlib

    named = {
        "weights": np.array([[1.0, -0.0]], dtype=np.float32),
        "classes_": np.array(["a", "é"]),
        "counts": np.array([3, 4], dtype=np.int32),
        "flags": np.array([True, False]),
    }
    body = (
        b'["classes_", "str", [2]]\n'
        + '["a", "é"]'.encode()
        + b'["counts", "i8", [2]]\n'
        + np.array([3, 4], dtype="<i8").tobytes()
        + b'["flags", "b1", [2]]\n\x01\x00'
        + b'["weights", "f8", [1, 2]]\n'
        + np.array([1.0, -0.0], dtype="<f8").tobytes()
    )
    assert parameters_digest(named) == hashlib.sha256(body).hexdigest()
    assert parameters_digest({**named, "weights": named["weights"].T}) != parameters_digest(named)
    order = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert parameters_digest({"w": order}) == parameters_digest({"w": order.copy("C")})


# Bounds of one's own ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stated(Bound):
    """Mu in proportion to the radius, with fields of several kinds."""

    rate: float
    levels: tuple[str, ...] = ("a", "b")
    inner: "Promise | None" = None

    def mu_at(self, problem, radius, labels):
        return self.rate * radius


@dataclasses.dataclass(frozen=True)
class Promise(Bound):
    """Part of another bound."""

    steps: int = 3

    def mu_at(self, problem, radius, labels):
        return 1.0


def test_bounds_of_other_modules_are_named_with_them(release_of, forged):
    """A record made elsewhere is read where its bound is defined; no name is taken twice."""
    bound = Stated(0.7, levels=("c",), inner=Promise(4))
    release = dataclasses.replace(release_of("minimiser"), mechanism="stated", bound=bound)
    record = json.loads(json.dumps(release.checked().to_dict()))
    assert record["bound"] == {
        "type": f"{__name__}:Stated",
        "rate": 0.7,
        "levels": ["c"],
        "inner": {"type": f"{__name__}:Promise", "steps": 4},
    }
    assert Release.from_dict(record) == release
    with pytest.raises(ValueError, match=r"bound.type='elsewhere:Stated' .* import elsewhere"):
        Release.from_dict(forged(release, "bound.type", "elsewhere:Stated"))
    with pytest.raises(ValueError, match="unknown field `levles`"):
        Release.from_dict(forged(release, "bound.levles", []))
    # Same name, and a mu of almost nothing: the built-in one stays what it is.
    fields = {"__module__": "elsewhere", "__qualname__": "Sums", "mu_at": lambda *_: 1e-9}
    type("Sums", (Bound,), fields)
    other = release_of("prototypes")
    assert Release.from_dict(other.to_dict()).mu == other.mu
