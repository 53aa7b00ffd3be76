"""What is asked of the records: sensitivities are reached and never exceeded, values are right."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import softmax

from sklearn_balldp.audit.attacks import Candidates
from sklearn_balldp.heads.weighing import fit_weights
from sklearn_balldp.mechanisms import MeanGradient, Minimiser, Query, Records, Sums, minimiser
from sklearn_balldp.mechanisms.whitening import PublicMap
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.rows import rows_in_domain

N, D, K, B = 60, 3, 3, 1.5
Y = np.arange(N) % K
UNITS = {
    "records": {},
    # Pairs and triples of one class, and single records.
    "persons of one class": {"groups": np.r_[np.arange(9) % 3, np.arange(9, 60)]},
    "persons of several classes": {"groups": np.r_[np.zeros(6, int), 1 + np.arange(54) // 2]},
}
PROTECTED = {"class_counts": None}


def problem_of(unit="records", **public):
    """A problem, and the weights of its records in sums."""
    given = {"n_samples": N, "n_features": D, "n_classes": K, "class_counts": (20, 20, 20)}
    given |= {"radius": 0.5, "norm_bound": B, **public}
    counts = given["class_counts"]
    codes = np.repeat(np.arange(K), counts) if public.get("class_counts") else Y
    found = fit_weights(N, counts, codes, **UNITS[unit])
    return Problem(**given, sums_weights=found.public), found.rows


def units_of(unit, weights):
    """The classes and weights that records of one unit have, without repetitions."""
    groups = UNITS[unit].get("groups", np.arange(N))
    weights = np.ones(N) if weights is None else weights
    found = set()
    for person in np.unique(groups):
        own = groups == person
        found.add(tuple((c, weights[own & (c == Y)].sum()) for c in np.unique(Y[own])))
    return sorted(found)


def pairs(radius, domain, *, apart=False, seed=0, d=D, b=B):
    """Rows and others within the radius: at its ends, along it, across it, and at random."""
    rng, e = np.random.default_rng(seed), np.eye(d) * b
    first, second = [], []
    for chord in np.linspace(0.0, 1.0, 41) * min(radius, 2.0 * b):
        half = math.asin(0.5 * chord / b)
        for turn in (0.0, half):
            first.append(math.cos(turn) * e[0] + math.sin(turn) * e[1])
            turn -= 2.0 * half
            second.append(math.cos(turn) * e[0] + math.sin(turn) * e[1])
        first.append(e[0])
        second.append((1.0 - chord / b) * e[0])
    if apart:
        first += [e[0], e[0], e[0]]
        second += [e[1], -e[0], 0.0 * e[0]]
    found = np.array(first), np.array(second)
    rows = rng.standard_normal((400, d))
    rows *= b * rng.uniform(0.2, 1.0, (400, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    steps = rng.standard_normal((400, d))
    steps *= radius / np.linalg.norm(steps, axis=1, keepdims=True)
    found = [np.concatenate(both) for both in zip(found, (rows, rows + steps), strict=True)]
    found = [rows_in_domain(rows, b, domain) for rows in found]
    near = np.linalg.norm(found[0] - found[1], axis=1) <= radius * (1.0 + 1e-12)
    return found if apart else [rows[near] for rows in found]


def alone(query, problem, records):
    """The values of every record by itself: of sums by hand, which takes less time."""
    if not isinstance(query, Sums):
        return type(query).together([query], problem, records, each=True)[0]
    rows = rows_in_domain(records.X, problem.norm_bound, problem.domain)
    weights = np.ones(len(rows)) if records.weights is None else records.weights
    belongs = np.eye(query.n_sums(problem))[0 * records.codes if query.pooled else records.codes]
    moment = np.einsum("n,ni,nj->nij", weights, rows, rows)
    belongs = weights[:, None] * belongs
    return query._flat(problem, belongs[..., None] * rows[:, None], moment, belongs)


def largest_move(query, problem, unit, weights, radius, labels="public"):
    """Furthest that one unit moves the values, in units of the noise."""
    scale, largest = np.ravel(query.scales(problem)), 0.0
    noisy = np.broadcast_to(scale, math.prod(query.shape(problem))) > 0.0
    scale = np.broadcast_to(scale, noisy.shape)[noisy]
    for change in (0, 1) if labels == "protected" else (0,):
        rows = pairs(radius, problem.domain, apart=bool(change), b=problem.norm_bound)
        units = units_of(unit, weights)
        if problem.labels == "protected" and not change:
            # Nobody knows the classes: all that a person has may be in one.
            units.append(((0, max(sum(w for _, w in held) for held in units)),))
        for held in units:
            moved = 0.0
            for sign, some in zip((1.0, -1.0), rows, strict=True):
                for code, weight in held:
                    code = (code + change * (sign < 0)) % K
                    # Records of two classes might swap them: all go to one.
                    code = 0 if change and len(held) > 1 and sign > 0 else code
                    code = 1 if change and len(held) > 1 and sign < 0 else code
                    own = Records(some, np.full(len(some), code), np.full(len(some), weight))
                    moved = moved + sign * alone(query, problem, own)
            moved = moved.reshape(len(moved), -1)[:, noisy] / scale
            largest = max(largest, float(np.linalg.norm(moved, axis=1).max()))
    return largest


SCALES = {"one scale": 1.0, "a scale each": (1.0, 2.0, 0.5)}
SUMS = [
    # (unit, public numbers, query, least share of the sensitivity that is reached)
    *(
        (unit, {"domain": domain}, Sums(scales), 0.999)
        for unit, domain, scales in itertools.product(
            ("records", "persons of one class"), ("ball", "sphere"), SCALES.values()
        )
    ),
    ("persons of several classes", {}, Sums(1.0), 0.999),
    ("persons of several classes", {}, Sums((1.0, 2.0, 0.5)), 0.6),
    ("persons of several classes", PROTECTED, Sums(1.0, constant=0.7), 0.999),
    *(
        (unit, {"domain": domain}, Sums(1.0, moment), 0.97)
        for unit, domain, moment in itertools.product(
            ("records", "persons of one class"), ("ball", "sphere"), (0.3, 1.0, 3.0)
        )
    ),
    ("records", {"class_counts": (30, 30, 0)}, Sums((1.0, 1.0, 0.0)), 0.999),
    ("records", {}, Sums((1.0, 2.0, 0.5), 1.0), 0.97),
    ("records", {}, Sums(1.0, pooled=True), 0.999),
    ("persons of several classes", {}, Sums(1.0, pooled=True), 0.999),
    ("records", PROTECTED, Sums(1.0, pooled=True), 0.999),
    ("records", PROTECTED, Sums(1.0, constant=0.0), 0.999),
    ("records", PROTECTED, Sums(1.0, constant=0.7), 0.999),
    ("persons of one class", PROTECTED, Sums(1.0, 2.0, constant=0.7), 0.97),
    ("records", PROTECTED | {"domain": "sphere"}, Sums(1.0, 0.5, constant=0.7), 0.97),
]


@pytest.mark.parametrize("radius", [0.1, 0.9, 2.2, 3.0])
@pytest.mark.parametrize(("unit", "public", "query", "least"), SUMS, ids=str)
@pytest.mark.kills(
    "mechanisms/sums.py",
    "return largest * sums, largest * moment",
    "return largest * sums / 1.05, largest * moment",
    attack="ridge prototypes",
)
@pytest.mark.kills("mechanisms/sums.py", "sums if self.constant >", "0.0 * sums if self.constant >")
def test_sums_reach_their_sensitivity_and_never_exceed_it(unit, public, query, least, radius):
    problem, weights = problem_of(unit, **public)
    for labels in {problem.labels, "public"}:
        moved = largest_move(query, problem, unit, weights, radius, labels)
        ratio = query.ratio(problem, radius, labels)
        assert moved <= ratio
        assert moved >= least * ratio, (moved / ratio, labels)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("moment", [None, 0.3, 1.0])
@pytest.mark.kills("mechanisms/sums.py", "sums * share", "0.99 * sums * share")
def test_persons_in_several_classes_move_no_further(moment, scales):
    """Nine records of one class and one of the other, each class at its own angle."""
    labels, groups = np.array([0] * 9 + [1] + [1] * 9 + [0]), np.repeat([0, 1], 10)
    weighed = fit_weights(20, (10, 10), labels, groups)
    public = {"n_samples": 20, "n_features": 2, "n_classes": 2, "class_counts": (10, 10)}
    problem = Problem(**public, radius=2.0, domain="sphere", sums_weights=weighed.public)
    query, moved = Sums(scales, moment), []
    for pair in itertools.product(np.linspace(0.05, np.pi, 20), repeat=2):
        half = np.repeat(pair, [9, 1]) / 2.0
        sums = []
        for sign in (1, -1):
            rows = np.stack([np.cos(half), sign * np.sin(half)], axis=1)
            person = Records(rows, labels[:10], weighed.rows[:10])
            sums.append(alone(query, problem, person).sum(axis=0))
        moved.append(float(np.linalg.norm((sums[0] - sums[1]) / query.scales(problem))))
    ratio = query.ratio(problem, 2.0, "public")
    assert 0.9 * ratio <= max(moved) <= ratio
    if moment is None and scales == (1.0, 1.0):
        assert ratio <= 1.00001 * max(moved)


@pytest.mark.kills("mechanisms/kernel.py", "(ratio + self.slack(problem), math.", "(ratio, math.")
def test_slack_of_the_grid_is_part_of_mu():
    """Rounding to the sampler's grid counts for every query, once for each of its values."""
    problem, _ = problem_of(loss="softmax", alpha=0.1)
    for query in (Sums(1.0), MeanGradient(np.zeros((K, D)), 1.0), Minimiser(1e-6)):
        ratio = query.ratio(problem, 0.5, "public")
        slack = query.slack(problem)
        assert slack >= math.sqrt(math.prod(query.shape(problem))) * 2.0**-50
        assert query.mu(problem) >= ratio + slack
        assert query.mu(problem) == pytest.approx(ratio + slack, rel=1e-12)
        for mu in (1e-6, 1.0, 50.0):
            spent = query.calibrated(problem, mu).mu(problem)
            assert mu * (1.0 - 1e-5) <= spent <= mu
        with pytest.raises(ValueError, match="epsilon is too small"):
            query.calibrated(problem, slack)


# -- gradients -------------------------------------------------------------------------------------

MAP = PublicMap(np.full(D, 0.3), np.eye(D)[:, :1], np.full(1, 0.5), 1.3, 0.9)


@pytest.mark.parametrize("radius", [0.1, 1.2, 3.0])
@pytest.mark.parametrize(
    ("loss", "unit", "public", "given", "least"),
    [
        # At zero all residuals of a class are alike, and clipped: s clip r / W.
        *(
            (
                "softmax",
                unit,
                {"domain": domain},
                {"clip": 0.1},
                0.65 if "several" in unit else 0.97,
            )
            for unit, domain in itertools.product(UNITS, ("ball", "sphere"))
        ),
        ("squared_hinge", "persons of several classes", {}, {"clip": 0.1, "constant": 0.4}, 0.55),
        ("softmax", "records", PROTECTED, {"clip": 0.1, "constant": 0.4}, 0.7),
        ("squared_hinge", "persons of one class", PROTECTED, {"clip": 0.1}, 0.7),
        ("softmax", "records", {}, {"clip": 0.1, "whitening": MAP, "constant": 0.4}, 0.5),
        ("softmax", "records", {}, {"clip": None, "constant": 0.4}, 0.7),
        ("squared_hinge", "records", {}, {"clip": 3.0}, 0.7),
    ],
    ids=str,
)
@pytest.mark.kills("mechanisms/gradients.py", "problem.effective_size + 2", "problem.n_samples + 2")
@pytest.mark.kills("mechanisms/gradients.py", "+ 2.0 * rounding", "/ 1.1")
@pytest.mark.kills(
    "mechanisms/gradients.py",
    "clip=self.clip, labels=labels)\n        rounding",
    'clip=self.clip, labels="public")\n        rounding',
    attack="descent from zero",
)
def test_mean_gradients_reach_their_sensitivity_and_never_exceed_it(
    loss, unit, public, given, least, radius
):
    problem, weights = problem_of(unit, loss=loss, **public)
    shape = K, D + int("constant" in given)
    rng, reached = np.random.default_rng(1), 0.0
    for size in (0.0, 0.3, 2.0, *(20.0, 1e3, 1e6) * 2):
        query = MeanGradient(size * rng.standard_normal(shape), 0.01, **given)
        for labels in {problem.labels, "public"}:
            moved = largest_move(query, problem, unit, weights, radius, labels)
            ratio = query.ratio(problem, radius, labels)
            assert moved <= ratio
            if labels == problem.labels:
                reached = max(reached, moved / ratio)
    if radius != 3.0 or given.get("clip"):
        assert reached >= (least if radius < 3.0 else 0.5 * least), reached


@pytest.mark.kills("mechanisms/gradients.py", "=mapped is not None and mapped.shortens,", "=False,")
def test_rows_through_a_map_move_as_far_as_the_smaller_ball_allows():
    """The gap is that of rows of norm tau; the rounding that of rows before they are shortened."""
    problem, _ = problem_of(loss="softmax")
    theta = np.random.default_rng(0).standard_normal((K, D))
    plain = MeanGradient(theta)
    moved = MeanGradient(
        theta, whitening=replace(MAP, directions=np.empty((D, 0)), factors=np.empty(0))
    )
    assert moved.ratio(problem, 3.0, "public") < 0.75 * plain.ratio(problem, 3.0, "public")
    # The same gap, and more rounding.
    least = [
        MeanGradient(theta, whitening=seen).ratio(problem, 1e-30, "public")
        for seen in (replace(MAP, directions=np.empty((D, 0)), factors=np.empty(0)), MAP)
    ]
    assert least[1] > least[0] > 0.0


# -- the minimiser ---------------------------------------------------------------------------------


@pytest.mark.kills("mechanisms/minimiser.py", "- self.rounding(problem)[1])", ")")
def test_the_minimiser_is_certified(monkeypatch):
    """Its gradient, computed by other code, is within the tolerance that noise covers.

    The solver accepts less, by at least what rounding may add.
    """
    accepted, solve = [], minimiser.minimise
    monkeypatch.setattr(
        minimiser, "minimise", lambda own, tol: accepted.append(tol) or solve(own, tol=tol)
    )
    problem, weights = problem_of("persons of several classes", loss="softmax", alpha=0.05)
    X = np.random.default_rng(0).standard_normal((N, D))
    for tol in (0.0, 1e-18, 1e-4):
        query = Minimiser(tol).certifiable(problem)
        assert query.tol >= tol
        theta = query.values(problem, Records(X, Y, weights))
        rows = X * np.minimum(1.0, B / np.linalg.norm(X, axis=1))[:, None]
        scores = rows @ theta.T
        residuals = softmax(scores, axis=1) - np.eye(K)[Y]
        gradient = (residuals * weights[:, None]).T @ rows / weights.sum() + 0.05 * theta
        assert np.linalg.norm(gradient) <= query.tol
        assert accepted[-1] == query.accepted(problem) <= 0.9 * query.tol
        assert accepted[-1] + query.rounding(problem)[1] <= query.tol * (1.0 + 1e-12)
    with pytest.raises(ValueError, match="alpha=1e-30 is too small"):
        Minimiser(0.0).certifiable(replace(problem, alpha=1e-30))


# -- values ----------------------------------------------------------------------------------------


def brute_force(query, X, weights):
    """Sums of placed rows, one after the other."""
    sums, moment, counts = np.zeros((K, D)), np.zeros((D, D)), np.zeros(K)
    for row, code, weight in zip(X, Y, weights, strict=True):
        code = 0 if query.pooled else code
        sums[code] += weight * row
        counts[code] += weight
        moment += weight * np.outer(row, row)
    return sums[:1] if query.pooled else sums, moment, counts


QUERIES = [
    Sums(1.0),
    Sums((1.0, 2.0, 0.5), 1.0),
    Sums(1.0, pooled=True),
    MeanGradient(np.random.default_rng(2).standard_normal((K, D)), clip=0.3),
    MeanGradient(np.random.default_rng(3).standard_normal((K, D + 1)), constant=0.3, whitening=MAP),
]
HIDDEN = [Sums(1.0, constant=0.7), Sums(1.0, 2.0, constant=0.7)]


@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.kills("mechanisms/gradients.py", "residuals[..., None]", "1.01 * residuals[..., None]")
def test_values_are_sums_of_those_of_each_record_and_brute_force(unit, domain):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * rng.uniform(0.1, 3.0, (N, 1))
    placed = np.array([rows_in_domain(row[None], B, domain)[0] for row in X])
    for public, queries in (({}, QUERIES), (PROTECTED, HIDDEN)):
        if public and unit == "classes weighted":
            continue
        problem, weights = problem_of(unit, loss="softmax", domain=domain, **public)
        records = Records(X, Y, weights)
        steps = [query for query in queries if isinstance(query, MeanGradient)]
        steps += [replace(query, theta=-query.theta) for query in steps]
        for one, own in zip(
            MeanGradient.together(steps, problem, records),
            MeanGradient.together(steps, problem, records, each=True),
            strict=True,
        ):
            np.testing.assert_allclose(own.sum(axis=0), one, atol=1e-12)
            np.testing.assert_allclose(one, steps.pop(0).values(problem, records), atol=1e-15)
        for query in queries:
            values = query.values(problem, records)
            assert values.shape == query.shape(problem)
            each = alone(query, problem, records)
            np.testing.assert_allclose(each.sum(axis=0), values, atol=1e-12)
            parts = [query.values(problem, records.at(slice(i, i + 1))) for i in (0, 7, 59)]
            np.testing.assert_allclose(parts, each[[0, 7, 59]], atol=1e-14)
            if isinstance(query, Sums):
                found = query.statistics(problem, values)
                own = np.ones(N) if weights is None else weights
                sums, moment, counts = brute_force(query, placed, own)
                np.testing.assert_allclose(found.class_sums, sums, atol=1e-12)
                if query.moment is not None:
                    np.testing.assert_allclose(found.second_moment, moment, atol=1e-12)
                if not query.pooled:
                    np.testing.assert_allclose(found.counts, counts, atol=1e-12)
                assert found.total == pytest.approx(own.sum())


@pytest.mark.kills("mechanisms/kernel.py", "if last != key:", "if last is None:")
@pytest.mark.kills("mechanisms/gradients.py", "(problem, *seen)", "(problem, *seen[:2])")
def test_views_of_the_records_are_those_of_the_question():
    """What is kept between passes is not given to a question that sees the rows otherwise."""
    problem, _ = problem_of(loss="softmax")
    X = np.random.default_rng(0).standard_normal((N, D))
    records, theta = Records(X, Y), np.ones((K, D))
    other = PublicMap(*vars(MAP).values())
    short = replace(MAP, centre=np.zeros(D))
    for seen, clip in ((None, 0.2), (MAP, 0.2), (other, 0.2), (short, 0.2), (short, None)):
        query = MeanGradient(theta, clip=clip, whitening=seen)
        fresh = query.values(problem, Records(X, Y))
        np.testing.assert_array_equal(query.values(problem, records), fresh)
    halved = replace(problem, norm_bound=0.5 * B)
    query = MeanGradient(theta)
    assert not np.allclose(query.values(problem, records), query.values(halved, records))


@dataclass(frozen=True)
class Lengths(Query):
    """No sum over records, of which it says nothing: whole data sets are asked."""

    shape = ratio = None  # which nobody asks for

    def values(self, problem, records):
        return np.hypot(Sums(1.0).values(problem, records), 0.1)


def brute_neighbour(records, places, rows_there, codes_there):
    """All records, some of them replaced."""
    rows, codes = np.asarray(records.X).copy(), records.codes.copy()
    rows[places], codes[places] = rows_there, codes_there
    return Records(rows, codes, records.weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize(
    "query",
    [*QUERIES, *HIDDEN, Minimiser(1e-9), Lengths(), MeanGradient(np.zeros((K, D)))],
    ids=str,
)
def test_candidates_are_values_of_neighbours(query, domain, dtype):
    """What an audit compares: sums of the known records and of one more, or fits from scratch."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((N, D)) * 0.8).astype(dtype)
    public = {"loss": "softmax", "alpha": 0.5, "domain": domain}
    public |= PROTECTED if query in HIDDEN else {}
    problem, weights = problem_of("persons of several classes", **public)
    records, rows = Records(X, Y, weights), rng.standard_normal((3, 3, D)).astype(dtype)
    rows[0] *= 10.0
    for places in ([0], [17], [0, 3, 59]):
        n = len(places)
        codes = np.array([Y[places], [0] * n, [1] * n])
        known = records.without(places)
        candidates = Candidates(problem, known, rows[:, :n], codes, weights[places])
        (found,) = candidates.values([query])
        assert len(candidates) == len(found) == 3
        for values, own, own_codes in zip(found, rows[:, :n], codes, strict=True):
            exact = query.values(problem, brute_neighbour(records, places, own, own_codes))
            atol = 1e-12 + 4.0 * getattr(query, "tol", 0.0) / problem.alpha
            np.testing.assert_allclose(values, exact, rtol=0.0, atol=atol)
        # The candidates really differ, by far more than that.
        assert np.linalg.norm(found[0] - found[1]) > 1e-4
        own = Candidates(problem, known, X[[places]], Y[[places]], weights[places])
        (values,) = own.values([query])
        np.testing.assert_allclose(values[0], query.values(problem, records), atol=atol)
