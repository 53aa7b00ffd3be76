"""Linear heads of rows that are scaled to the sphere: each row by its direction alone."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.audit.attacks import transcript_log_posterior
from sklearn_balldp.mechanisms import MeanGradient, gradients
from sklearn_balldp.mechanisms.gradients import Gradients
from sklearn_balldp.privacy import Release
from sklearn_balldp.rows import rows_in_domain
from sklearn_balldp.rows.passes import copy_rows
from sklearn_balldp.rows.sources import squarable

N, D, K = 300, 10, 3
DESCENT = GradientPerturbation(n_steps=4, clip=0.1, keep_transcript=True)
FROM_MEAN = GradientPerturbation(n_steps=4, start="mean", keep_transcript=True)


def with_mechanism(Head, mechanism, **params):
    return Head(8.0, 1e-4, mechanism=mechanism, **params)


HIDDEN = {"protect_labels": True, "classes": range(K)}
EXACT = OutputPerturbation(tol=1e-10)
HEADS = {
    "descent": with_mechanism(BallDPLogisticRegression, DESCENT),
    "unclipped": with_mechanism(
        BallDPSquaredHingeSVC, clone(DESCENT).set_params(clip=None), fit_intercept=False
    ),
    "from zero": with_mechanism(
        BallDPLogisticRegression, clone(FROM_MEAN).set_params(start="zero")
    ),
    "protected": with_mechanism(BallDPLogisticRegression, DESCENT, **HIDDEN),
    "mean": with_mechanism(BallDPLogisticRegression, FROM_MEAN),
    "protected mean": with_mechanism(BallDPSquaredHingeSVC, FROM_MEAN, **HIDDEN),
    "balanced": with_mechanism(
        BallDPLogisticRegression, DESCENT, class_weight={0: 1.0, 1: 3.0, 2: 2.0}
    ),
    "minimiser": with_mechanism(BallDPLogisticRegression, EXACT, alpha=0.01),
    "SVC minimiser": with_mechanism(BallDPSquaredHingeSVC, EXACT, alpha=0.01),
    "discriminant": BallDPLinearDiscriminant(8.0, 1e-4, share=0.5),
}
DESCENTS = [name for name in HEADS if "minimiser" not in name and name != "discriminant"]


def directions(k=K, n=N, seed=0):
    """Rows of norm one, most of it in common."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = 0.4 * rng.standard_normal((n, D)) + 0.8 * np.eye(k, D)[y] + np.eye(D)[D - 1]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def head_of(name, **params):
    given = {"radius": 0.3, "domain": "sphere", "norm_bound": 2.0, "random_state": 0, **params}
    return clone(HEADS[name]).set_params(**given)


def of_any_length(X, dtype, seed=1):
    """The same rows in a precision, some of them as long and as short as it holds."""
    limits = {np.float16: (-6, 4), np.float32: (-44, 38), np.float64: (-320, 307)}[dtype]
    exponents = np.random.default_rng(seed).uniform(*limits, len(X))
    with np.errstate(under="ignore"):
        return (X * 10.0 ** exponents[:, None]).astype(dtype)


def scaled(X):
    """Long hand: by the largest entry, and then by the norm."""
    X = X.astype(np.longdouble)
    X = X / np.maximum(np.abs(X).max(axis=1, keepdims=True), np.finfo(np.longdouble).tiny)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return (X / np.where(norms > 0.0, norms, 1.0)).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "dtype", "k", "kept"),
    [
        *itertools.product(
            ("descent", "from zero", "mean", "minimiser", "SVC minimiser", "discriminant"),
            (np.float16, np.float64),
            (K,),
            (True,),
        ),
        ("descent", np.float32, 2, False),
        ("discriminant", np.float32, 2, True),
        ("unclipped", np.float64, K, False),
    ],
)
def test_lengths_of_rows_do_not_matter(name, dtype, k, kept, monkeypatch, recwarn):
    monkeypatch.setattr(gradients, "KEPT_BYTES", 2**20 if kept else 0)
    X, y = directions(k)
    rows = of_any_length(X, dtype)
    rows[3] = 0.0
    X = scaled(rows)
    # What rounding may hide follows the precision, and so does the noise.
    peer = X.astype(np.float64 if dtype == np.float64 else np.float32)
    head, other = (head_of(name).fit(own, y) for own in (rows, peer))
    rough = 1e-7 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(head.coef_, other.coef_, rtol=rough, atol=rough)
    scores = head.decision_function(X)
    np.testing.assert_allclose(head.decision_function(rows), scores, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.ravel(scores[3]), head.intercept_, atol=1e-6)
    assert not recwarn.list
    # In the ball short rows stay short.
    if dtype == np.float64:
        ball = head_of(name, domain="ball").fit(rows, y)
        assert np.abs(ball.coef_ - head.coef_).max() > 0.1


@pytest.mark.parametrize(
    ("name", "dtype", "bad"),
    [
        ("descent", np.float16, np.nan),
        ("minimiser", np.float64, np.inf),
        ("mean", np.float32, np.nan),
        ("discriminant", np.float32, np.nan),
    ],
)
@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_rows_that_are_not_finite_are_refused(name, dtype, bad, domain, refused):
    X, y = directions()
    X = X.astype(dtype)
    X[5, 2] = bad
    refused(head_of(name, domain=domain), X, y, "NaN or infinity")


def neighbours(X, y, radius, n_trials, seed=0, labels=False):
    """Records replaced by rows within the radius once both are scaled, of any other length.

    With ``labels`` every other one changes its label, and goes anywhere.
    """
    rng = np.random.default_rng(seed)
    turn = 2.0 * math.asin(0.5 * radius)
    for trial in range(n_trials):
        place = int(rng.integers(len(X)))
        row = scaled(X[place][None])[0]
        step = rng.standard_normal(D)
        if trial % 2:
            # Against the others of its class, where it moves the sums most.
            step = -X[y == y[place]].mean(axis=0)
        step -= (step @ row) * row
        row = math.cos(turn) * row + math.sin(turn) * step / np.linalg.norm(step)
        code = int(y[place])
        if labels and trial % 2:
            code, row = (code + 1) % K, X[rng.integers(len(X))]
        elif radius >= 1.0 and trial % 5 == 0:
            row = np.zeros(D)
        yield place, row * 10.0 ** rng.uniform(-3, 3), code


@pytest.mark.parametrize(
    ("name", "further", "dtype"),
    [
        *itertools.product(DESCENTS, (1.0, 3.5), (np.float64,)),
        *itertools.product(("descent", "mean"), (1.0, 1.5), (np.float32,)),
    ],
)
def test_the_joint_distance_of_neighbours_never_exceeds_mu(name, further, dtype, apart, asked):
    """Sums and the gradients at the iterates that occurred, over their noise: brute force.

    Also further away than the radius of the release, where zero rows are neighbours too.
    """
    X, y = directions(n=60)
    X = of_any_length(X, np.float16).astype(dtype)
    # Of rows of norm 2.
    radius = 0.6
    head = head_of(name, radius=radius, epsilon=60.0, delta=1e-3).fit(X, y)
    bound, problem = head.release_.bound, head.release_.problem
    first = next(query for query, _ in asked(head) if isinstance(query, MeanGradient))
    assert (first.seen is not None) == (name not in ("unclipped", "from zero"))
    labels, records, largest = "protected" in name, head._records(X, y), 0.0
    for place, row, code in neighbours(X, y, 0.5 * radius * further, 60, labels=labels):
        rows, codes = X.copy(), y.copy()
        rows[place], codes[place] = row.astype(dtype), code
        largest = max(largest, apart(head, records, head._records(rows, codes)))
    allowed = bound.mu(problem, radius * further)
    assert (0.35 if further == 1.0 else 0.1) * allowed < largest <= allowed


@pytest.mark.parametrize("name", ["descent", "minimiser"])
def test_the_record_names_the_domain(name):
    release = head_of(name).fit(*directions()).release_
    assert release.domain == "sphere" == release.problem.domain
    assert any("scaled" in line for line in release.assumptions)
    assert "as the head sees them scaled to norm 2" in release.card()
    assert Release.from_dict(release.to_dict()) == release
    problem = dataclasses.replace(release.problem, domain="cube")
    with pytest.raises(ValueError, match="domain"):
        dataclasses.replace(release, problem=problem).checked()


@pytest.mark.parametrize("name", ["descent", "from zero", "protected mean", "SVC minimiser"])
def test_models_are_verified_with_their_rows(name):
    X, y = directions()
    X = of_any_length(X, np.float16).astype(np.float32)
    head = head_of(name, random_state=None).fit(X, y)
    assert head.released_.problem.domain == "sphere"
    verdict = verify(head, private=(X, y))
    assert not verdict.failed, str(verdict)
    # The rows of a release are those that it was fitted to, whatever is asked for next.
    assert not verify(copy.copy(head).set_params(domain="ball"), private=(X, y)).failed


def test_prototypes_know_nothing_of_the_sphere(refused):
    prototypes = BallDPRidgePrototype()
    prototypes.domain = "sphere"
    refused(prototypes, *directions(), "domain must be one of ball; got 'sphere'")


@pytest.mark.parametrize(("name", "noise"), [("descent", "simulated"), ("minimiser", "mechanism")])
def test_audits_hold(name, noise):
    X, y = directions(2, n=200)
    Xp, yp = directions(2, n=400, seed=1)
    X, Xp = (of_any_length(rows, np.float16).astype(np.float64) for rows in (X, Xp))
    head = head_of(name, radius=1.0, epsilon=40.0, random_state=None)
    auditor = ReconstructionAuditor(
        head, n_draws=3, n_supports=3, n_candidates=6, noise=noise, random_state=0
    ).fit(X, y, Xp, yp)
    assert auditor.guarantee_holds_, auditor.failures_
    assert auditor.report_["success"].max() > 0.2


def test_policies_know_of_the_sphere():
    X, y = directions()
    head = head_of("descent", radius=RadiusPolicy(0.5, source="reference"))
    rows = of_any_length(X, np.float16).astype(np.float64)
    one, other = (
        head.fit(own, y, X_public=own, y_public=y).release_.radius
        for own in (rows, 2.0 * scaled(rows))
    )
    assert one == pytest.approx(other, rel=1e-9)


def test_the_posterior_of_candidates_is_exact(exact_log_posterior):
    X, y = directions()
    X = of_any_length(X, np.float16).astype(np.float64)
    head = head_of("descent", epsilon=200.0).fit(X, y)
    candidates = X[7] * (1.0 + 0.5 * np.random.default_rng(0).standard_normal((5, D)))
    # What points the same way is the same record.
    candidates[0], candidates[1] = X[7], 1e-5 * X[7]
    known = np.arange(N) != 7
    logs = transcript_log_posterior(head, X[known], y[known], candidates, np.full(5, y[7]))
    assert logs[0] == pytest.approx(logs[1], abs=1e-6)
    assert np.argmax(logs) in (0, 1)
    np.testing.assert_allclose(logs, exact_log_posterior(head, X, y, 7, candidates), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_rows_are_the_same_to_the_last_bit(dtype, asked):
    """What single precision rests on: a changed row, however odd, moves no other row's bits."""
    X, y = directions()
    X = X.astype(dtype)
    head = head_of("descent").fit(X, y)
    problem, query = head.release_.problem, asked(head)[-1][0]
    given = {"seen": query.seen, "constant": query.constant, "clip": query.clip}

    def stored(rows):
        passes = Gradients(problem, head._records(rows, y), **given, dtype=dtype)
        (part,) = passes._table.each(lambda part: part)
        return passes._kept, part.column("last")

    assert query.seen is not None
    tiny, huge = (1e-45, 3e38) if dtype == np.float32 else (1e-310, 1e305)
    before, keep = stored(X), np.arange(N) != 7
    for row in (np.zeros(D), np.full(D, tiny), np.full(D, huge), X[7] * dtype(1e-3), np.eye(D)[0]):
        after = stored(np.where(keep[:, None], X, row.astype(dtype)))
        for own, moved in zip(before, after, strict=True):
            np.testing.assert_array_equal(own[keep], moved[keep])


def test_rows_are_scaled_to_the_bound_in_every_precision():
    """However long or short; a zero row stays zero, and what is no number is refused."""
    X, _ = directions()
    for dtype in (np.float16, np.float32, np.float64):
        rows = of_any_length(X, dtype).astype(np.float64)
        rows[5] = 0.0
        found = rows_in_domain(rows, 2.0, "sphere")
        norms = np.where(np.arange(N) == 5, 0.0, 2.0)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), norms, rtol=1e-14)
        np.testing.assert_allclose(found, 2.0 * scaled(rows), rtol=1e-12, atol=1e-300)
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        rows_in_domain(np.array([[np.nan, 1.0]]), 1.0, "sphere")


@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_no_row_decides_how_another_is_tamed(domain):
    """Squares err: what they show of a block must hold for each of its rows, at the very edge."""
    for d in (*range(1, 10), 16, 17, 31, 33, 64, 79):
        for edge in (1e-100, 1e140, 1e-100 / math.sqrt(d), 1e140 / math.sqrt(d)):
            for entry in (np.nextafter(edge, 0.0), edge, np.nextafter(edge, np.inf)):
                row = np.full((1, d), entry)
                for other in (np.ones((1, d)), np.full((1, d), 1e-150), np.full((1, d), 1e300)):
                    together = squarable(np.vstack([other, row]), domain)
                    np.testing.assert_array_equal(together[1:], squarable(row, domain))


def test_half_precision_times_any_factors_is_rounded_once():
    rng = np.random.default_rng(0)
    rows = of_any_length(directions()[0], np.float16)
    rows[0], rows[1, 0] = 0.0, np.float16(6e-8)
    for largest in (1.0, 2.0**14, 2.0**30):
        factors = (rng.uniform(0.1, 1.0, N) * largest).astype(np.float32)
        out = np.empty(rows.shape, dtype=np.float32)
        copy_rows(out, rows, factors)
        np.testing.assert_array_equal(out, rows.astype(np.float32) * factors[:, None])
