"""The accountant: every release is counted, wherever it is made, and limits hold.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import copy
import json
import math
import pickle
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import sklearn
from counted_heads import FITTED, MU, X, Y, head_of, interrupted
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler, scale

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyAccountant,
    RadiusPolicy,
    ReconstructionAuditor,
    compose_releases,
)
from sklearn_balldp.accounting import BudgetExceededError, OtherRelease, PrivateAccuracy
from sklearn_balldp.accounting.accountant import NOT_COVERED
from sklearn_balldp.mechanisms import Sums
from sklearn_balldp.privacy.gaussian import compose, epsilon_from_mu
from sklearn_balldp.privacy.noise import SEEDED_SAMPLER, Noise
from sklearn_balldp.showing import UP, rounded

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
PROTECTED = {"protect_labels": True, "classes": [0, 1, 2]}


def search(head, **options):
    return GridSearchCV(head, {"alpha": [0.01, 0.1, 1.0]}, **{"cv": 5, **options})


def test_a_search_and_its_private_scores_are_counted_everywhere(counts):
    scores = PrivateAccuracy(1.0, accountant=counts)
    with joblib.parallel_config("loky", n_jobs=2):
        search(head_of(counts), scoring=scores, n_jobs=2).fit(X, Y)
    assert (len(counts.releases), len(counts.records)) == (16, 31)
    total = counts.total()
    assert (total.n_releases, total.kind, total.private) == (31, "ex post", True)
    assert total.mu == pytest.approx(math.sqrt(31) * MU, rel=1e-9)
    assert total.epsilon == pytest.approx(epsilon_from_mu(total.mu, 1e-6), rel=1e-8)
    # Other radii: each release's sensitivity there.
    mus = [release.guarantee(1.3).mu for release in counts.releases]
    assert counts.total(1.3).mu == pytest.approx(compose([*mus, *[MU] * 15]), rel=1e-9)
    assert counts.total(1.3).radius == 1.3


def test_wrappers_that_clone_are_counted(counts):
    pipeline = make_pipeline(Normalizer(), head_of(counts))
    vote = VotingClassifier([("a", pipeline), ("b", head_of(counts))])
    cross_val_score(vote, X, Y, cv=3)
    assert counts.total().n_releases == 6
    OneVsRestClassifier(head_of(counts)).fit(X, Y)
    CalibratedClassifierCV(head_of(counts), cv=3).fit(X, Y)
    assert counts.total().n_releases == 12
    auditor = ReconstructionAuditor(head_of(counts), n_candidates=2, n_supports=1, radius=1.5)
    cross_val_score(auditor, X, Y, cv=2)
    # Audits solve and simulate; what they release is one head each.
    assert counts.total().n_releases == 14


def test_copies_share_the_accountant_and_pickles_find_it(counts):
    head = head_of(counts)
    for other in (clone(head), copy.copy(head), copy.deepcopy(head)):
        assert other.accountant is counts
    again = pickle.loads(pickle.dumps(head))
    assert again.accountant == counts
    # Fitted heads come back from workers, and may be fitted again.
    pickle.loads(pickle.dumps(again.fit(X, Y))).fit(X, Y)
    scores = clone(search(head, scoring=PrivateAccuracy(0.5, accountant=counts))).scoring
    assert (scores.epsilon, scores.accountant) == (0.5, counts)
    assert counts.total().n_releases == 2
    assert FITTED.with_rule(priors="uniform").accountant is None
    assert again.with_rule(priors="uniform").accountant == counts
    assert counts.total().n_releases == 2  # another rule costs nothing


def test_a_head_without_an_accountant_is_not_counted(counts):
    head_of().fit(X, Y)
    assert (counts.total().n_releases, counts.total().epsilon) == (0, 0.0)
    for spends in (
        lambda: head_of("budget.ledger").fit(X, Y),
        lambda: RadiusPolicy(source="declared", accountant=PrivacyAccountant).fit(X, Y),
        lambda: PrivateAccuracy(1.0, accountant=1),
    ):
        with pytest.raises(ValueError, match="accountant must be a PrivacyAccountant or None"):
            spends()


def test_attach_finds_every_part(counts):
    policy = RadiusPolicy(source="declared")
    inner, other = head_of(radius=policy), BallDPLinearDiscriminant(radius=0.5)
    scores, frozen = PrivateAccuracy(1.0), FrozenEstimator(head_of())
    vote = VotingClassifier([("a", make_pipeline(Normalizer(), inner)), ("b", frozen)])
    grid = [{"a__n": [1]}, {"b": np.array([other, None], dtype=object)}]
    model = GridSearchCV(ReconstructionAuditor(vote), grid, scoring={"one": scores}, refit="one")
    assert counts.attach(model) is model
    assert inner.accountant is policy.accountant is other.accountant is scores.accountant is counts
    assert frozen.estimator.accountant is None
    columns = ColumnTransformer([("radius", policy, [0, 1])])
    assert PrivacyAccountant().attach(columns).transformers[0][1].accountant != counts

    class Own(BallDPRidgePrototype):
        def __init__(self, epsilon=1.0):
            super().__init__(epsilon)

    for odd, match in ((LogisticRegression(), "no part of this"), (Own(), "no parameter")):
        with pytest.raises(ValueError, match=match):
            counts.attach(odd)


def test_over_the_limit_nothing_is_fitted(monkeypatch):
    summed, values = [], Sums.values
    monkeypatch.setattr(Sums, "values", lambda *given: summed.append(1) or values(*given))
    limit = epsilon_from_mu(math.sqrt(3.5) * MU, 1e-6)
    accountant = PrivacyAccountant(radius=0.5, limit=limit)
    for _ in range(3):
        head_of(accountant).fit(X, Y)
    head = head_of(accountant)
    for rows in (X, np.full(X.shape, np.nan)):
        # It is told before the rows are looked at.
        with pytest.raises(BudgetExceededError, match=r"above limit.* 3 release"):
            head.fit(rows, Y)
    assert not hasattr(head, "release_")
    assert len(summed) == 3
    # A cheaper one still fits in.
    head_of(accountant, 0.3).fit(X, Y)
    total, further = accountant.total(), accountant.total(2.0)
    assert (total.n_releases, total.kind, total.limit) == (4, "a priori", limit)
    assert total.epsilon <= limit
    # It was enforced at the radius alone.
    assert (further.kind, further.limit) == ("ex post", None)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_together_keep_the_limit(backend):
    accountant = PrivacyAccountant(radius=0.5, limit=epsilon_from_mu(math.sqrt(5.5) * MU, 1e-6))
    fails = pytest.warns(Warning, match="fits failed")
    with joblib.parallel_config(backend, n_jobs=2), fails:
        scores = cross_val_score(head_of(accountant), X, Y, cv=12, error_score=np.nan)
    assert accountant.total().n_releases == 5
    assert np.isfinite(scores).sum() == 5


@pytest.mark.kills("accounting/ledger.py", "if mu_of([*earlier, charge]) <", "if mu_of(earlier) <")
def test_what_remains_can_be_spent_to_the_last_and_no_more():
    for n_fits in (1, 7):
        accountant = PrivacyAccountant(delta=1e-6, radius=0.5, limit=3.0)
        assert accountant.remaining() == pytest.approx(3.0, rel=1e-6)
        epsilon = accountant.remaining(n_fits)
        for _ in range(n_fits - 1):
            head_of(accountant, epsilon).fit(X, Y)
        assert accountant.remaining() == pytest.approx(epsilon, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            head_of(accountant, epsilon * 1.001).fit(X, Y)
        head_of(accountant, epsilon).fit(X, Y)
        assert accountant.total().epsilon == pytest.approx(3.0, rel=1e-4)
        assert accountant.total().epsilon <= 3.0
        with pytest.raises(BudgetExceededError):
            head_of(accountant, 0.05).fit(X, Y)
        assert max(accountant.remaining(), accountant.remaining(3)) < 1e-3
    with pytest.raises(ValueError, match="n_fits must be an integer"):
        accountant.remaining(0.5)
    with pytest.raises(ValueError, match="limit=None"):
        PrivacyAccountant().remaining()


def test_odd_terms(path):
    odd = {"delta": (0.0, "x"), "radius": (-1.0, True), "limit": (0.0, "1", 10**400)}
    odd |= {"unit": ("owner",), "labels": ("hidden",)}
    for name, value in ((name, value) for name, values in odd.items() for value in values):
        with pytest.raises(ValueError, match=f"^{name} must"):
            PrivacyAccountant(path, **{name: value})
    assert not path.exists()


VALUES = ("mechanisms.Sums.values", "radius.rows_to_read", "accounting.scoring.accuracy_of")
DRAWS = ("privacy.noise.Noise.__call__", "radius.same_label_quantile")


@pytest.mark.parametrize("places", [VALUES, DRAWS])
@pytest.mark.kills(
    "radius.py",
    "count(accountant, spent)\n        rows, others = rows_to_read(policy, rows, others)\n",
    "rows, others = rows_to_read(policy, rows, others)\n        count(accountant, spent)\n",
)
def test_a_charge_is_never_taken_back(counts, monkeypatch, places):
    """Whatever fails once a query was accepted may depend on private rows."""
    for place in places:
        monkeypatch.setattr(f"sklearn_balldp.{place}", interrupted)
    for spends in (
        head_of(counts).fit,
        BallDPLogisticRegression(1.0, radius=0.5, accountant=counts).fit,
        RadiusPolicy(source="declared", accountant=counts).fit,
        partial(PrivateAccuracy(0.5, accountant=counts), FITTED),
    ):
        with pytest.raises(KeyboardInterrupt):
            spends(X, Y)
    assert len(counts.records) == 4


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.kills("accounting/ledger.py", 'any"} == {more} else less', 'any"} >= {more} else less')
def test_releases_that_cover_others_count_as_those(order):
    """Protected labels cover public ones, and persons records: the total states what all hide."""
    owners = {"groups": np.arange(120) // 2}
    wide, narrow = PrivacyAccountant(radius=0.5), PrivacyAccountant(radius=0.5)
    fits = [(head_of(wide), {}), (head_of(wide, **PROTECTED), {}), (head_of(wide), owners)]
    releases = [head.fit(X, Y, **given).release_ for head, given in fits[::order]]
    mu = compose(release.guarantee(0.5).mu for release in releases)
    for total in (wide.total(), compose_releases(releases, radius=0.5)):
        assert (total.labels, total.unit, total.n_releases) == ("public", "record", 3)
        assert total.mu == pytest.approx(mu)
    # Each hides a substitution of one label, of one record, at least as well as that.
    assert mu >= compose(release.guarantee(0.5, "public").mu for release in releases)
    for _ in range(2):
        head_of(narrow, **PROTECTED).fit(X, Y, **owners)
    PrivateAccuracy(1.0)(FITTED, X, Y)
    assert (narrow.total().labels, narrow.total().unit) == ("protected", "person")
    assert "all records of a person are hidden together" in str(narrow.total())


def test_terms_refuse_what_hides_less():
    groups, grid = np.arange(len(Y)) // 3, {"epsilon": [0.5, 1.0]}
    person, protected = PrivacyAccountant(unit="person"), PrivacyAccountant(labels="protected")
    plain = GridSearchCV(head_of(person), grid, cv=GroupKFold(4), error_score="raise")
    # Without metadata routing a search keeps groups= for its splitter.
    with pytest.raises(ValueError, match=r"was given no groups=.*set_fit_request"):
        plain.fit(X, Y, groups=groups)
    for terms in (person, protected):
        with pytest.raises(ValueError, match="this private radius"):
            terms.attach(RadiusPolicy(source="declared")).fit(X, Y)
    with pytest.raises(ValueError, match="this private accuracy"):
        PrivateAccuracy(1.0, accountant=person)(FITTED, X, Y)
    with pytest.raises(ValueError, match="takes them for public"):
        head_of(protected).fit(X, Y)
    with sklearn.config_context(enable_metadata_routing=True):
        # With routing, scikit-learn asks what becomes of them.
        with pytest.raises(UnsetMetadataPassedError, match="set_fit_request"):
            plain.fit(X, Y, groups=groups)
        assert not person.records + protected.records
        plain.estimator.set_fit_request(groups=True)
        plain.fit(X, Y, groups=groups)
    head_of(protected, **PROTECTED).fit(X, Y)
    assert person.total().unit == "person"
    assert protected.total().labels == "protected"


def test_different_adjacencies_are_refused():
    """Rows scaled by four have radii four times as long: what heads declare is compared."""
    accountant = PrivacyAccountant(radius=0.5, limit=50.0)
    # None declares nothing, and hides no disagreement of those that do.
    for name in (None, "minilm", None, "minilm"):
        head_of(accountant, encoder=name).fit(X, Y)
    sphere = BallDPLinearDiscriminant(radius=0.5, domain="sphere", accountant=accountant)
    for other, rows, name in (
        (head_of(accountant, norm_bound=2.0), X, "norm_bound .*each kind in a ledger of its"),
        (sphere, X, "domain"),
        (head_of(accountant), X[:, :3], "n_features"),
        (head_of(accountant, encoder="minilm, times 4"), X, "encoder"),
        (head_of(accountant, encoder=""), X, "encoder"),
    ):
        with pytest.raises(ValueError, match=f"differ in {name}"):
            other.fit(rows, Y)
        assert not hasattr(other, "release_")
    releases = accountant.releases
    assert [r.encoder for r in releases] == [None, "minilm", None, "minilm"]
    other = replace(releases[0], encoder="resnet")
    for order in ([releases[0], releases[1], other], [other, releases[2], releases[1]]):
        with pytest.raises(ValueError, match="differ in encoder"):
            compose_releases(order)


def test_what_is_made_by_hand_is_counted():
    accountant = PrivacyAccountant(radius=0.5, limit=1.5)
    head_of(accountant).fit(X, Y)
    accountant.spend(mu=0.5 * MU, what="histogram")
    with pytest.raises(BudgetExceededError):
        accountant.spend(mu=MU, what="another")
    for mu in (0.0, np.nan, np.inf, "1"):
        with pytest.raises(ValueError, match="mu must be a number"):
            accountant.spend(mu=mu, what="x")
    with pytest.raises(ValueError, match="what must name"):
        accountant.spend(mu=MU, what="")
    assert accountant.total().mu == pytest.approx(math.hypot(MU, 0.5 * MU))
    assert [r.what for r in accountant.records if isinstance(r, OtherRelease)] == ["histogram"]


def test_a_seeded_release_counts_as_infinite(counts):
    head_of(counts, random_state=0).fit(X, Y)
    total = counts.total()
    assert total.epsilon == total.mu == math.inf
    assert total.private is False
    limited = PrivacyAccountant(radius=0.5, limit=100.0)
    with pytest.raises(BudgetExceededError):
        head_of(limited, random_state=0).fit(X, Y)
    with pytest.raises(BudgetExceededError):
        PrivateAccuracy(epsilon=1.0, random_state=0, accountant=limited)(FITTED, X, Y)
    assert not limited.records


def test_declared_radii_are_conditional(monkeypatch):
    """They are noted before rows are read, alone or for a head, whose fit may fail later."""
    policy, owners = RadiusPolicy(source="declared"), {"groups": np.arange(120) // 2}
    with pytest.raises(ValueError, match="a plan has none"):
        head_of(radius=policy).plan(120, 4, y=Y)
    for model, number, given in ((policy, 1, {}), (head_of(radius=clone(policy)), 2, owners)):
        accountant = PrivacyAccountant(radius=0.2, unit="person" if given else "record")
        accountant.attach(model).fit(X, Y, **given)
        assert accountant.total().private == "conditional"
        assert accountant.total().n_releases == number
    tight = PrivacyAccountant(limit=0.5)
    with pytest.raises(BudgetExceededError) as refusal:
        head_of(tight, radius=policy.set_params(accountant=None)).fit(X, Y)
    # Not even by what it costs: it was read off private rows.
    assert not re.search("costs|alone", str(refusal.value))
    with pytest.raises(
        BudgetExceededError, match=r"costs epsilon=.*own epsilon=1 holds within 0\.5"
    ):
        head_of(tight).fit(X, Y)
    monkeypatch.setattr("sklearn_balldp.radius.same_label_quantile", interrupted)
    for model in (policy, head_of(radius=clone(policy))):
        accountant = PrivacyAccountant(radius=0.2).attach(model).accountant
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        assert [record.private for record in accountant.records] == ["conditional"]


def test_compose_releases_from_json():
    releases = [
        FITTED.release_,
        BallDPLogisticRegression(2.0, radius=0.9, mechanism="output").fit(X, Y).release_,
    ]
    texts = [json.loads(json.dumps(release.to_dict())) for release in releases]
    for radius in (0.3, 0.9, None):
        total = compose_releases(texts, radius=radius, delta=1e-7)
        mus = [release.guarantee(radius or 2.0).mu for release in releases]
        assert total.mu == pytest.approx(compose(mus), rel=1e-9)
        assert total.epsilon == pytest.approx(epsilon_from_mu(compose(mus), 1e-7))
        assert total.kind == "ex post"
    # Of one radius the total is that within it, and says what it is at any distance.
    one, alike = releases[0], compose_releases([releases[0]] * 2, delta=1e-7)
    assert (alike.radius, compose_releases(releases).epsilon_full_radius) == (one.radius, None)
    for radius, epsilon in ((one.radius, alike.epsilon), (2.0, alike.epsilon_full_radius)):
        expected = epsilon_from_mu(compose([one.guarantee(radius).mu] * 2), 1e-7)
        assert epsilon == pytest.approx(expected, rel=1e-9)
    assert f"any distance  epsilon={rounded(alike.epsilon_full_radius, 4, UP)}" in str(alike)
    with pytest.raises(ValueError, match="seed"):
        compose_releases([replace(releases[0], sampler=SEEDED_SAMPLER)])
    with pytest.raises(ValueError, match="empty"):
        compose_releases([])
    other = replace(releases[0].problem, metric="manhattan")
    with pytest.raises(ValueError, match="differ in metric"):
        compose_releases([releases[0], replace(releases[0], problem=other)])


def test_bounds_are_shown_rounded_up():
    """Rounded to the nearest number, one in two would state less than was spent."""
    accountant = PrivacyAccountant(radius=0.5)
    for epsilon in (0.30104, 0.7, 1.1):
        accountant.ledger.add(head_of(epsilon=epsilon).fit(X, Y).release_)
        total, own = accountant.total(), str(accountant.total())
        found = re.search(r"epsilon=(\S+), delta.*\(mu=(\S+), zCDP rho=(\S+)\)", own)
        exact = total.epsilon, total.mu, 0.5 * total.mu**2
        for shown, value in zip(map(float, found.groups()), exact, strict=True):
            assert value <= shown <= value * 1.001
        assert f"epsilon={found[1]}, n_releases" in repr(accountant)
    spent = accountant.total().epsilon
    tight = PrivacyAccountant(radius=0.5, limit=spent + 0.01)
    for record in accountant.releases:
        tight.ledger.add(record)
    with pytest.raises(BudgetExceededError) as refusal:
        head_of(tight, 0.30104).fit(X, Y)
    said = [float(text) for text in re.findall(r" epsilon=(\S+) within", str(refusal.value))]
    assert spent <= said[0] <= spent * 1.001
    assert 0.30104 <= said[1] <= 0.30104 * 1.001


def test_totals_read_like_releases():
    accountant = PrivacyAccountant(radius=0.5, limit=6.0)
    for _ in range(2):
        head_of(accountant, 2.0).fit(X, Y)
    assert "given no groups" not in str(PrivacyAccountant().total())
    shown = str(accountant.total())
    assert shown.startswith("Total\n  releases")
    for part in ("within 0.5", "of the limit 6", "a priori", "the fits of heads", "zCDP rho"):
        assert part in shown
    assert "NOT known: a fit was given no groups=" in shown
    # What no total covers is one list, which every total shows.
    assert all(point in shown and point in PrivacyAccountant.__doc__ for point in NOT_COVERED)


def test_labels_are_scored_in_every_form_that_a_fit_takes():
    names = np.array(["a", "b", "c"])[Y]
    head, strange = head_of(epsilon=100.0).fit(X, names), names.astype(np.dtypes.StringDType())
    assert head.score(X, strange, np.arange(120)) == head.score(X, names, np.arange(120)) > 0.4
    seeded = [PrivateAccuracy(1.0, random_state=0)(head, X, y) for y in (names, strange)]
    assert seeded[0] == seeded[1]


def test_private_accuracy_law(monkeypatch):
    """One row moves the accuracy by 1 / n: the noise is normal, that over mu, and no less."""
    scorer, sigma = PrivateAccuracy(epsilon=1.0), 1 / (len(X) * MU)
    draws = np.array([scorer(FITTED, X, Y) for _ in range(200)])
    # Six and a half standard errors of a normal mean and standard deviation.
    assert abs(draws.mean() - FITTED.score(X, Y)) < 6.5 * sigma / math.sqrt(200)
    assert abs(draws.std() / sigma - 1) < 6.5 / math.sqrt(400)
    sigmas = []
    monkeypatch.setattr(
        Noise, "__call__", lambda self, values, sigma: sigmas.append(sigma) or np.array(values)
    )
    assert scorer(FITTED, X, Y) == FITTED.score(X, Y)
    assert 1 <= sigmas[0] / sigma <= 1 + 1e-9
    with pytest.raises(ValueError, match="epsilon"):
        PrivateAccuracy(epsilon=-1.0)


@pytest.mark.kills("accounting/scoring.py", "if others:", "if others is None:")
def test_a_score_hides_only_what_the_model_hides(counts):
    scorer = PrivateAccuracy(0.5, accountant=counts)
    voted = VotingClassifier([("a", head_of()), ("b", LogisticRegression())]).fit(X, Y)
    private, leaking = PrivateAccuracy(1.0), {"return_train_score": True}
    frozen = FrozenEstimator(FunctionTransformer(scale))
    searched = {"scoring": private, "return_train_score": False}
    for model in (
        LogisticRegression().fit(X, Y),
        voted,
        OneVsRestClassifier(head_of()).fit(X, Y),
        CalibratedClassifierCV(head_of(), cv=2).fit(X, Y),
        # What a fit finds beside the heads, by their scores on the same rows.
        search(head_of(), cv=2).fit(X, Y),
        search(head_of(), cv=2, scoring=private, **leaking).fit(X, Y),
        search(head_of(), cv=2, scoring=PrivateAccuracy(1.0, random_state=0)).fit(X, Y),
        make_pipeline(StandardScaler(), head_of()).fit(X, Y),
        # What learns nothing may compare rows all the same.
        make_pipeline(frozen, head_of()).fit(X, Y),
        # What says of itself that it was released, or chosen.
        SimpleNamespace(release_=None, predict=FITTED.predict),
        SimpleNamespace(best_estimator_=FITTED, predict=FITTED.predict, **searched),
    ):
        with pytest.raises(ValueError, match="not all comes from a release"):
            scorer(model, X, Y)
    with pytest.raises(ValueError, match="functiontransformer is not known to map each row"):
        scorer(make_pipeline(FunctionTransformer(scale), FITTED), X, Y)
    assert not counts.records
    models = (
        FITTED,
        make_pipeline(FrozenEstimator(StandardScaler().fit(X)), head_of()).fit(X, Y),
        search(head_of(), cv=KFold(2), scoring=private).fit(X, Y),
    )
    for model in models:
        assert scorer(model, X, Y) > -9.0
    assert len(counts.records) == len(models)
    with pytest.raises(ValueError, match="not all comes from a release"):
        cross_val_score(LogisticRegression(), X, Y, scoring=scorer, error_score="raise")
