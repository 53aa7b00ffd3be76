"""Do weights carry the stated noise: what must be convicted, what cannot be, and false alarms."""

import copy
import dataclasses
import math
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
)
from sklearn_balldp.audit import residuals
from sklearn_balldp.audit.residuals import (
    CANNOT_CHECK,
    FAIL,
    FALSE_ALARM,
    PASS,
    Residuals,
    epsilon_after_redraws,
    residual_checks,
    size_check,
    transcript_fault,
    weight_checks,
)
from sklearn_balldp.heads import Mechanism, Outcome, Promise, ReleasedModel
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.bounds import MinimizerBound
from sklearn_balldp.privacy.gaussian import delta_from_mu

N, D, K = 600, 40, 4


def data(seed=0, n_classes=K, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % n_classes
    X = rng.standard_normal((N, D)) + 3 * np.eye(D)[y]
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype), y


KEPT = GradientPerturbation(n_steps=8, keep_transcript=True, start="zero")
STARTED = GradientPerturbation(n_steps=8, keep_transcript=True, start="statistics")
HEADS = {
    "started descent": BallDPLogisticRegression(4.0, radius=0.5, mechanism=STARTED),
    "prototypes": BallDPRidgePrototype(4.0, radius=0.5),
    "statistics": BallDPLinearDiscriminant(4.0, radius=0.5),
    "protected statistics": BallDPLinearDiscriminant(
        4.0, domain="sphere", protect_labels=True, classes=range(K)
    ),
    "one scale": BallDPRidgePrototype(4.0, radius=0.5, counts="worst"),
    "protected": BallDPRidgePrototype(4.0, protect_labels=True, classes=range(K)),
    "softmax": BallDPLogisticRegression(4.0, radius=0.5, mechanism="output"),
    "hinge": BallDPSquaredHingeSVC(4.0, radius=0.5, fit_intercept=True, mechanism="output"),
    "descent": BallDPLogisticRegression(4.0, radius=0.5, mechanism=KEPT),
    "hinge descent": BallDPSquaredHingeSVC(4.0, radius=0.5, mechanism=KEPT, fit_intercept=False),
}


def fitted(name, **params):
    return copy.deepcopy(HEADS[name]).set_params(**params).fit(*data())


def checks(head, *rows, **options):
    model = ReleasedModel(head)
    return weight_checks(model, model.on(*(rows or data())), **options)


def verdicts(head, *rows, **options):
    return {check.name: check.verdict for check in checks(head, *rows, **options)}


def convicted(head, *rows, **options):
    return FAIL in verdicts(head, *rows, **options).values()


def size_verdict(head):
    return size_check(ReleasedModel(head)).verdict


NOISE = Noise.__call__


def normal(values):
    return np.random.default_rng().standard_normal(np.shape(values))


def copied(sign):
    """Noise of the first class in the second."""

    def call(self, values, sigma):
        z = normal(values)
        z[1] = sign * z[0]
        return values + sigma * z

    return call


@contextmanager
def noise_as(call):
    """Let ``call`` add the noise of what is fitted meanwhile; it takes the place of a method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "__call__", call)
        yield


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, np.float64) for name in HEADS),
        *(
            (name, np.float16)
            for name in ("started descent", "prototypes", "statistics", "softmax")
        ),
    ],
)
def test_honest_releases_pass(name, dtype):
    X, y = data(dtype=dtype)
    head = copy.deepcopy(HEADS[name]).fit(X, y)
    found = verdicts(head, X, y)
    assert set(found.values()) == {PASS}
    assert set(found) == {
        "scale of the noise",
        "law of the noise",
        "mean of the noise",
        "reuse of noise",
    }


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_noise_of_another_scale_is_convicted_from_one_release(name, factor):
    with noise_as(lambda self, values, sigma: NOISE(self, values, factor * np.asarray(sigma))):
        head = fitted(name)
    assert convicted(head)


@pytest.mark.parametrize("block", [0, K - 1])
@pytest.mark.parametrize("name", ["prototypes", "hinge"])
def test_a_block_whose_noise_was_forgotten(name, block):
    """One class of four: the length of all of it is still that of noise, its own is not."""

    def call(self, values, sigma):
        released = NOISE(self, values, sigma)
        released[block] = values[block]
        return released

    with noise_as(call):
        head = fitted(name)
    assert verdicts(head)["scale of the noise"] == FAIL


@pytest.mark.parametrize("name", ["prototypes", "softmax", "hinge"])
def test_other_weights_are_convicted(name):
    # Little noise: what is hidden cannot be told apart from what it hides.
    head = fitted(name, alpha=0.1, epsilon=4.0 if name == "prototypes" else 1000.0)
    weights = "prototypes_" if name == "prototypes" else "coef_"
    values = getattr(head, weights)
    forgeries = {
        "garbage": np.full_like(values, 123.0),
        "reversed columns": values[:, ::-1],
        "reversed classes": values[::-1],
        "no weights": np.zeros_like(values),
        "scaled": 0.9 * values if name == "prototypes" else 0.5 * values,
    }
    for what, forged in forgeries.items():
        other = copy.deepcopy(head)
        setattr(other, weights, forged.copy())
        assert convicted(other), what
    # Another dataset, and labels of others.
    assert convicted(head, *data(seed=1))


def _jittered(values):
    return values + 1e-6 * np.random.default_rng(0).standard_normal(values.shape)


@pytest.mark.parametrize("name", ["descent", "hinge descent"])
def test_forged_transcripts_are_convicted(name):
    head = fitted(name)
    transcript = head.transcript_
    X, y = data()
    assert convicted(head, *data(seed=1))
    for field in ("gradients", "iterates", "sigma"):
        for change in (lambda v: v * (1 + 1e-9), lambda v: v[::-1].copy(), _jittered):
            forged = dataclasses.replace(transcript, **{field: change(getattr(transcript, field))})
            assert convicted(head, X, y, transcript=forged), field
    for forged in (
        dataclasses.replace(transcript, gradients=transcript.gradients[:-1]),
        dataclasses.replace(transcript, gradients=np.full_like(transcript.gradients, np.nan)),
        fitted(name).transcript_,
    ):
        assert transcript_fault(ReleasedModel(head), forged) is not None
    other = copy.deepcopy(head)
    other.coef_ = other.coef_ * (1 + 1e-9)
    assert "coef_" in transcript_fault(ReleasedModel(other), transcript)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_fault_of_a_descent_is_named_in_any_precision(dtype):
    head = copy.deepcopy(HEADS["descent"]).fit(*data(dtype=dtype))
    model, honest = ReleasedModel(head), head.transcript_
    assert transcript_fault(model, honest) is None
    late = honest.gradients.copy()
    late[4] *= 2.0
    forged = dataclasses.replace(honest, gradients=late)
    assert "the iterate of step 5 does not follow" in transcript_fault(model, forged)
    forged = dataclasses.replace(honest, sigma=honest.sigma / 2.0)
    half = tuple(np.asarray(head.release_.sigma) / 2.0)
    record = copy.copy(head.release_)
    object.__setattr__(record, "stated_sigma", half)
    assert "the noise scale of step 0" in transcript_fault(ReleasedModel(head, record), forged)
    stated = head.release_.epsilon_full_radius_ex_post / 2.0
    record = copy.copy(head.release_)
    object.__setattr__(record, "epsilon_full_radius_ex_post", stated)
    fault = transcript_fault(ReleasedModel(head, record), honest)
    assert fault.startswith(f"epsilon_full_radius_ex_post={stated!r} is ")
    other = copy.deepcopy(head)
    other.coef_ = other.coef_ * (1 + 1e-9)
    assert "coef_ does not follow" in transcript_fault(ReleasedModel(other), honest)


def test_a_descent_without_transcript_cannot_be_checked():
    head = BallDPLogisticRegression(4.0, radius=0.5, mechanism="gradient").fit(*data())
    (check,) = checks(head)
    assert check.verdict == CANNOT_CHECK
    assert "transcript" in check.found
    assert size_verdict(fitted("descent")) == CANNOT_CHECK


def test_noise_used_twice_is_convicted():
    """In two classes, with its sign turned, or that of an earlier release."""
    earlier = fitted("prototypes")
    for sign in (1.0, -1.0):
        with noise_as(copied(sign)):
            head = fitted("prototypes")
        assert verdicts(head)["reuse of noise"] == FAIL
    head = fitted("prototypes")
    model = ReleasedModel(earlier)
    exact = model.mechanism.noiseless(model.on(*data()), Promise(earlier.release_.bound))[0]
    head.prototypes_ = exact - (earlier.prototypes_ - exact)
    assert verdicts(head)["reuse of noise"] == PASS
    found = verdicts(head, earlier=[model])
    assert found.pop("reuse of noise") == FAIL
    assert set(found.values()) == {PASS}


def test_steps_that_repeat_their_noise():
    drawn = {}

    def call(self, values, sigma):
        return values + sigma * drawn.setdefault(np.shape(values), normal(values))

    with noise_as(call):
        head = fitted("descent")
    assert verdicts(head)["reuse of noise"] == FAIL


def test_steps_that_copy_another_class():
    state = {}

    def call(self, values, sigma):
        z = normal(values)
        z[0] = state.get("last", z[0])
        state["last"] = z[1]
        return values + sigma * z

    with noise_as(call):
        head = fitted("hinge descent")
    assert verdicts(head)["reuse of noise"] == FAIL


def test_another_law_of_the_same_variance():
    def call(self, values, sigma):
        most = math.sqrt(3)
        return values + sigma * np.random.default_rng().uniform(-most, most, np.shape(values))

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 4000)) / 70.0, np.arange(60) % 3
    with noise_as(call):
        head = BallDPRidgePrototype(4.0, radius=0.5).fit(*rows)
    assert verdicts(head, *rows)["law of the noise"] == FAIL


def test_a_shift_along_the_solution_is_convicted():
    """Shrunken weights: noise of the right scale around the wrong place."""
    head = fitted("softmax", epsilon=200.0)
    model = ReleasedModel(head)
    values, sigma = model.mechanism.noiseless(model.on(*data()), Promise(head.release_.bound))
    direction = values / np.linalg.norm(values)
    shifted = copy.deepcopy(head)
    moved = np.hstack([head.coef_, head.intercept_[:, None]]) + 12.0 * sigma * direction
    shifted.coef_, shifted.intercept_ = moved[:, :-1], moved[:, -1]
    assert verdicts(head)["mean of the noise"] == PASS
    assert verdicts(shifted)["mean of the noise"] == FAIL


def test_absent_classes_are_published_without_noise():
    X, y = data()
    head = BallDPRidgePrototype(4.0, radius=0.5, classes=range(K + 1)).fit(X, y)
    assert not convicted(head, X, y)
    head.prototypes_[K, 0] = 1e-9
    (check,) = checks(head, X, y)
    assert (check.name, check.verdict) == ("values without noise", FAIL)


# What no test can find: these pass, and the documentation says so -------------------------------


def test_clever_lies_pass():
    def known_seed(self, values, sigma):
        return values + sigma * np.random.default_rng(7).standard_normal(values.shape)

    def nine_directions(self, values, sigma):
        released = NOISE(self, values, sigma)
        released[:3, :3] = values[:3, :3]
        return released

    with noise_as(known_seed):
        assert not convicted(fitted("prototypes", epsilon=1.0))
    with noise_as(nine_directions):
        head = fitted("prototypes", epsilon=1.0)
    # 9 of 160 values: the lengths are those of noise, though three rows lack part of it.
    assert verdicts(head)["scale of the noise"] == PASS
    # Ten records of others.
    X, y = data()
    X[:10] = np.roll(X[:10], 1, axis=1)
    assert not convicted(fitted("prototypes", epsilon=1.0), X, y)
    # Draws selected until the publisher likes them.
    draws = [fitted("prototypes") for _ in range(5)]
    liked = min(draws, key=lambda head: float(np.abs(head.prototypes_).max()))
    assert not convicted(liked)


# The tests of the tests ------------------------------------------------------------------------


def p_values(blocks, monkeypatch, **options):
    found = []
    monkeypatch.setattr(residuals, "_verdict", lambda p: found.append(p) or PASS)
    residual_checks(Residuals(blocks, **options))
    return found


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 10, 64), (1, 1, 400), (6, 3, 20)])
def test_p_values_of_honest_noise_are_no_smaller_than_uniform(monkeypatch, shape):
    rng = np.random.default_rng(0)
    n_runs = 800
    direction = {"a direction": rng.standard_normal(shape)}
    runs = [
        p_values(rng.standard_normal(shape), monkeypatch, directions=direction)
        for _ in range(n_runs)
    ]
    for ps in np.array(runs).T:
        for level in (0.01, 0.05, 0.2):
            # Three binomial standard deviations over the level.
            allowed = level + 3.5 * math.sqrt(level * (1 - level) / n_runs)
            assert np.mean(ps <= level) <= allowed


def test_levels_add_up_to_the_false_alarm():
    """Scale, law, mean, reuse and size: five tests of a fifth each."""
    assert pytest.approx(FALSE_ALARM) == 5 * residuals._LEVEL
    assert residuals._verdict(residuals._LEVEL * 0.99) == FAIL
    assert residuals._verdict(residuals._LEVEL * 1.01) == PASS


def test_noise_halved_in_128_values_is_convicted():
    z = 0.5 * np.random.default_rng(0).standard_normal((1, 1, 128))
    assert residual_checks(Residuals(z))[0].verdict == FAIL


def test_the_tolerance_widens_every_test():
    """A shift that the solver's tolerance allows convicts nobody, however large."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1, 4, 50))
    direction = np.ones_like(z)
    moved = z + 9.0 * direction / np.linalg.norm(direction)
    strict = residual_checks(Residuals(moved, {"ones": direction}))
    assert FAIL in [check.verdict for check in strict]
    lenient = residual_checks(Residuals(moved, {"ones": direction}, shift=9.0))
    assert {check.verdict for check in lenient} == {PASS}
    for factor in (1.5, 0.6):
        scaled = z * factor * math.sqrt(z.size) / np.linalg.norm(z)
        assert residual_checks(Residuals(scaled))[0].verdict == FAIL
        off = abs(factor - 1.0) * math.sqrt(z.size)
        assert residual_checks(Residuals(scaled, shift=off))[0].verdict == PASS


@pytest.mark.parametrize("name", ["prototypes", "one scale", "softmax", "hinge"])
def test_sizes_that_noise_allows(name):
    head = fitted(name)
    assert size_verdict(head) == PASS
    other = copy.deepcopy(head)
    weights = "prototypes_" if hasattr(head, "prototypes_") else "coef_"
    setattr(other, weights, np.full_like(getattr(head, weights), 123.0))
    assert size_verdict(other) == FAIL
    # Much noise: a noiseless model is too short for it, which takes no records to see.
    noisy = {"epsilon": 0.01, "radius": 1.5}
    with noise_as(lambda self, values, sigma: np.array(values)):
        assert size_verdict(fitted(name, **noisy)) == FAIL
    assert size_verdict(fitted(name, **noisy)) == PASS


def test_drawing_again_costs_delta():
    """The formula, against the worst case that it is for: failures hide one of two worlds."""
    epsilon, delta = epsilon_after_redraws(8.0, 1e-6, 1e-6)
    assert delta == pytest.approx(3e-3, rel=0.02)
    assert epsilon == pytest.approx(8.0, abs=2e-6)
    mu, level = 2.0, 0.05
    for eps in (0.5, 2.0, 4.0):
        # Draws of N(0, 1) above a quantile are drawn again; the neighbour's are all kept.
        cut = norm.isf(level)
        eps_after, delta_after = epsilon_after_redraws(eps, delta_from_mu(mu, eps), level)
        grid = np.linspace(-8, 12, 200_001)
        width = grid[1] - grid[0]
        kept = np.where(grid < cut, norm.pdf(grid) / (1 - level), 0.0)
        other = norm.pdf(grid, mu)
        spent = np.sum(np.maximum(other - math.exp(eps_after) * kept, 0.0)) * width
        assert spent <= delta_after + 1e-6


@dataclasses.dataclass(frozen=True)
class OwnBound(MinimizerBound):
    """A bound of one's own: this package's go with its own mechanisms."""


class Shifted(Mechanism):
    """Publishes its noisy values after a step that is not the identity."""

    name = "shifted"
    needs_alpha = True

    def __init__(self, *, factor=1.0):
        self.factor = factor

    def promise(self, problem, budget):
        shared = ("loss", "n_samples", "n_features", "n_classes", "alpha", "norm_bound")
        given = {name: getattr(problem, name) for name in (*shared, "fit_intercept", "labels")}
        bound = OwnBound(**given, method="tight", tol=0.0)
        return Promise(bound.calibrated(problem.radius, budget.mu))

    def run(self, problem, promise, noise):
        sums = np.array([problem.X[problem.codes == c].mean(axis=0) for c in range(K)])
        return Outcome(self.factor * noise(sums, promise.bound.sigma[0]))


def released_by(mechanism):
    settings = {"alpha": 0.01, "radius": 0.5, "fit_intercept": False, "norm_bound": 2.0}
    return BallDPSquaredHingeSVC(4.0, mechanism=mechanism, **settings).fit(*data())


def test_mechanisms_of_ones_own():
    """Their noise can be read off parameters that are the noisy values as they are."""
    plain = released_by(Shifted())
    assert set(verdicts(plain).values()) == {PASS}
    plain.coef_ = plain.coef_[:, ::-1].copy() * 3
    assert convicted(plain)
    assert set(verdicts(released_by(Shifted(factor=2.0))).values()) == {CANNOT_CHECK}


def test_a_check_draws_nothing_from_the_heads_generator():
    X, y = data()
    generator = np.random.default_rng(0)
    head = BallDPRidgePrototype(4.0, radius=0.5, random_state=generator).fit(X, y)
    before = copy.deepcopy(generator.bit_generator.state)
    assert not convicted(head, X, y)
    assert generator.bit_generator.state == before


# Mistakes that were once made ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("n_classes", "n_steps"), [(2, 3), (4, 1), (4, 3)])
def test_the_owner_computes_the_gradients_of_the_fit(noise_free, dtype, n_classes, n_steps):
    """To the last bit: single precision rounds all records alike, far above little noise."""
    X, y = data(n_classes=n_classes, dtype=dtype)
    kept = GradientPerturbation(n_steps=n_steps, keep_transcript=True, start="zero")
    head = BallDPLogisticRegression(1e6, radius=1e-3, mechanism=kept).fit(X, y)
    wider = (X, X.astype(np.float64)) if n_steps > 1 and dtype != np.float64 else (X,)
    for rows in wider:
        found = residuals._residuals(ReleasedModel(head), ReleasedModel(head).on(rows, y))
        assert isinstance(found, Residuals), found
        assert not found.blocks.any()


def test_transcripts_of_plain_lists():
    head = fitted("descent")
    kept = head.transcript_
    plain = dataclasses.replace(kept, **{name: v.tolist() for name, v in vars(kept).items()})
    assert set(verdicts(head, transcript=plain).values()) == {PASS}


def test_a_tolerance_makes_weights_longer():
    """The released minimiser is one within tol / alpha of the longest there may be."""
    X, y = np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.array([1, 0, 1, 0])
    head = BallDPLogisticRegression(
        1000.0, radius=1e-3, alpha=0.3, fit_intercept=False, mechanism=OutputPerturbation(tol=0.27)
    )
    for _ in range(20):
        assert size_verdict(head.fit(X, y)) == PASS


def test_softmax_copies_with_the_sign_turned():
    """Centring leaves of them sums and differences of another length."""
    rng = np.random.default_rng(0)
    # Three classes: the rotated blocks have nothing in common then.
    X, y = rng.standard_normal((N, 300)), np.arange(N) % 3
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    with noise_as(copied(-1.0)):
        head = BallDPLogisticRegression(4.0, radius=0.5, mechanism="output").fit(X, y)
    assert verdicts(head, X, y)["reuse of noise"] == FAIL


def test_two_values_a_block_are_too_few():
    z = np.random.default_rng(0).standard_normal((1, 3, 2))
    assert residual_checks(Residuals(z))[3].verdict == CANNOT_CHECK


class Halved(OutputPerturbation):
    """Inherits how noise is read, and releases something else."""

    name = "halved"

    def promise(self, problem, budget):
        bound = super().promise(problem, budget).bound
        return Promise(
            OwnBound(**{f.name: getattr(bound, f.name) for f in dataclasses.fields(bound)})
        )

    def run(self, problem, promise, noise):
        return Outcome(0.5 * noise(*self.noiseless(problem, promise)))


class Clipping(Shifted):
    name = "clipping"

    def run(self, problem, promise, noise):
        released = super().run(problem, promise, noise).parameters
        return Outcome(np.clip(released, -5.0, 5.0))


class Refusing(Shifted):
    name = "refusing"

    def run(self, problem, promise, noise):
        if type(noise) is not Noise:
            raise RuntimeError("no other sampler")
        return super().run(problem, promise, noise)


@pytest.mark.parametrize("mechanism", [Halved(), Clipping(), Refusing()])
def test_mechanisms_whose_noise_cannot_be_read(mechanism):
    head = released_by(mechanism)
    assert set(verdicts(head).values()) == {CANNOT_CHECK}
    assert size_verdict(head) == CANNOT_CHECK
