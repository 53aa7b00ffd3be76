"""Whether a record contradicts itself: what its types and ranges do not tell."""

import datetime
import math
from typing import Any

from ..text import one_line
from .bounds import tag_of
from .gaussian import epsilon_from_mu, mu_from_budget
from .problem import Problem
from .record import contradictions
from .weights import Weights, weights_of_classes

#: Largest relative difference between two machines' values of one formula.
ROUNDING = 1e-9
#: Losses of this package's own heads; others need not name theirs.
_LOSSES = {
    "BallDPLinearDiscriminant": "",
    "BallDPLogisticRegression": "logistic",
    "BallDPRidgePrototype": "",
    "BallDPSquaredHingeSVC": "squared_hinge",
}
#: Bounds of this package's own mechanisms.
_BOUNDS = {
    "output": "Minimiser",
    "gradient": "DescentBound",
    "statistics": "Sums",
    "prototypes": "Sums",
}


def check(release: Any) -> None:
    """Raise a ValueError if the record contradicts itself."""
    problem, bound = release.problem, release.bound
    try:
        datetime.date.fromisoformat(release.date)
    except ValueError:
        raise ValueError(f"record: date={release.date!r} must be a day, as 2026-01-31.") from None
    if not release.head.isidentifier():
        raise ValueError(f"record: head={release.head!r} must be the name of a class.")
    _check_radius(release)
    counts = problem.class_counts
    if (counts is None) != (problem.labels == "protected"):
        raise ValueError(
            f"record: problem.labels={problem.labels!r} and problem.class_counts do not go "
            "together: counts of classes are public where labels are, and nowhere else."
        )
    shape = problem.n_classes, problem.n_samples
    if counts is not None and (len(counts), sum(counts)) != shape:
        raise ValueError(
            f"record: problem.class_counts has {len(counts)} counts, which add up to "
            f"{sum(counts)}; there are {shape[0]} classes of {shape[1]} records."
        )
    _check_weights(release)
    _check_loss(release)
    expected = _BOUNDS.get(release.mechanism)
    if expected is not None and tag_of(type(bound)) != expected:
        raise ValueError(
            f"record: mechanism={release.mechanism!r} promises a {expected}; bound.type is "
            f"{one_line(tag_of(type(bound)), 80)!r}."
        )
    pooled, moment = getattr(bound, "pooled", False), getattr(bound, "moment", None)
    alone = release.mechanism == "prototypes"
    if expected == "Sums" and (pooled or (alone and moment is not None)):
        raise ValueError(
            f"record: bound.pooled={pooled!r} and bound.moment={moment!r} are not what "
            f"mechanism={release.mechanism!r} asks for."
        )
    with contradictions("bound"):
        bound.check(problem)
    budget, mu = mu_from_budget(release.epsilon, release.delta), release.mu
    if not 0.0 <= mu <= budget * (1.0 + ROUNDING):
        needed = repr(epsilon_from_mu(mu, release.delta)) if 0.0 <= mu < math.inf else "none"
        raise ValueError(
            f"record: epsilon={release.epsilon!r} does not follow from the rest of it: it should "
            f"be {needed}, as its bound gives mu={mu!r} (delta={release.delta!r})."
        )


def _check_loss(release: Any) -> None:
    """Raise a ValueError unless the loss is that of the head, and of so many classes."""
    loss, n_classes = release.problem.loss, release.problem.n_classes
    expected = _LOSSES.get(release.head, loss)
    if expected in ("logistic", "softmax"):
        expected = "logistic" if n_classes == 2 else "softmax"
    if loss != expected:
        raise ValueError(
            f"record: problem.loss={loss!r} is not that of a {one_line(release.head, 60)} of "
            f"{n_classes} classes: it should be {expected!r}."
        )


def _check_weights(release: Any) -> None:
    """Raise a ValueError unless both weights are of these records, and of the same units."""
    problem, counts = release.problem, release.problem.class_counts
    sums, loss = problem.sums_weights, problem.loss_weights
    for name, weights in (("sums_weights", sums), ("loss_weights", loss)):
        alone = weights.most_records == weights.block_factor == 1
        alone = alone and weights.n_units == problem.n_samples
        if not (alone if weights.unit == "record" else weights.n_units <= problem.n_samples):
            raise ValueError(
                f"record: problem.{name}: n_units={weights.n_units!r}, most_records="
                f"{weights.most_records!r} and block_factor={weights.block_factor!r} are not those "
                f"of {problem.n_samples!r} records, the unit being a {weights.unit}."
            )
        totals = weights.class_totals
        if (None if totals is None else [t > 0.0 for t in totals]) != (
            None if counts is None else [n > 0 for n in counts]
        ):
            raise ValueError(
                f"record: problem.{name}.class_totals={totals!r} do not go with "
                f"problem.class_counts={counts!r}: the classes with records have a weight."
            )
    same = ("unit", "n_units", "most_records")
    if any(getattr(sums, name) != getattr(loss, name) for name in same):
        raise ValueError(
            "record: problem.sums_weights and problem.loss_weights are not of the same units."
        )
    for name, weights in (("sums_weights", sums), ("loss_weights", loss)):
        if not _possible(weights, problem):
            raise ValueError(f"record: problem.{name} are no weights of these records.")


def _possible(weights: Weights, problem: Problem) -> bool:
    """Whether some records have these weights; of records alone, which weights they have."""
    if problem.sums_weights.by_class is not None:
        return False
    if weights.unit == "record":
        if weights.by_class is None or problem.class_counts is None:
            return weights == problem.uniform_weights
        return weights == weights_of_classes(weights.by_class, problem.class_counts)
    if problem.loss_weights.by_class is None and problem.loss_weights != problem.sums_weights:
        return False
    up, most, largest = 1.0 + ROUNDING, weights.most_records, weights.largest
    root = math.sqrt(min(most, problem.n_classes))
    # A unit has at least the mean of all, and no more than all of its records.
    sound = (
        weights.record <= largest * up
        and largest <= min(most * weights.record, weights.total) * up
        and weights.total <= weights.n_units * largest * up
        and problem.n_samples <= weights.n_units * most
        and weights.block_factor <= root * up
    )
    counts, totals, most_of = problem.class_counts, weights.class_totals, weights.class_largest
    if not sound or counts is None or totals is None or most_of is None:
        return sound
    classes = zip(counts, totals, most_of, strict=True)
    return (
        all(t <= min(n, weights.n_units) * s * up for n, t, s in classes)
        and weights.record <= max(most_of) * up
        and max(most_of) <= largest * up
        and largest <= weights.block_factor * root * max(most_of) * up
        and abs(sum(totals) - weights.total) <= (up - 1.0) * weights.total
    )


def _check_radius(release: Any) -> None:
    """Raise a ValueError unless the radius and what it spent go with where it came from."""
    drawn = release.radius_source in ("private", "seeded")
    if (release.radius_epsilon > 0.0) != drawn or bool(release.radius_draw) != drawn:
        raise ValueError(
            f"record: radius_source={release.radius_source!r}, radius_epsilon="
            f"{release.radius_epsilon!r} and radius_draw={one_line(release.radius_draw, 40)!r} do "
            "not go together: a private quantile spends epsilon and is identified, no other "
            "radius is."
        )
    n_edits, hides = release.radius_edits, release.radius_hides
    if release.radius_source == "edits":
        hidden = hides * n_edits
        whole = abs(hidden - round(hidden)) <= ROUNDING * max(1.0, hidden)
        sound = n_edits > 0 and whole and hides > 0.0
    else:
        sound = n_edits == 0 and hides == 0.0 and release.radius_hides_records is None
    if not sound:
        raise ValueError(
            f"record: radius_source={release.radius_source!r}, radius_edits="
            f"{release.radius_edits!r} and radius_hides={release.radius_hides!r} do not go "
            "together: a radius read off edits hides a share of them, no other radius does."
        )
    without_labels = ("number", "reference", "edits")
    if release.labels == "protected" and release.radius_source not in without_labels:
        raise ValueError(
            f"record: radius_source={release.radius_source!r} reads labels, which must not be "
            "where they are protected."
        )
    if release.weights.most_records > 1 and drawn:
        raise ValueError(
            f"record: radius_source={release.radius_source!r} hides one record, where the "
            "release hides all of one person."
        )
