"""Whether a record contradicts itself: what its types and ranges do not tell."""

import datetime
import math
from typing import Any

from .._parameters import MAX_RECORDS
from ..showing import one_line
from .bounds import Bound, tag_of
from .gaussian import epsilon_from_mu, mu_from_budget
from .origins import Declared, Edits
from .problem import Problem
from .weights import Weights

#: Largest relative difference between two machines' values of one formula.
ROUNDING = 1e-9
#: Losses of this package's heads; records of others state theirs.
LOSSES_OF_HEADS = {
    "BallDPLinearDiscriminant": "",
    "BallDPLogisticRegression": "logistic",
    "BallDPRidgePrototype": "",
    "BallDPSquaredHingeSVC": "squared_hinge",
}
#: Mechanisms of this package by their bounds; of noisy sums that of prototypes is another.
_MECHANISMS = {"Minimiser": "output", "DescentBound": "gradient", "Sums": "statistics"}
_OF_SUMS = {"statistics", "prototypes"}


def usual_mechanism(head: str, bound: Bound) -> str:
    """What the mechanism of a head and a bound of this package is called; empty for others."""
    name = _MECHANISMS.get(tag_of(type(bound)), "")
    return "prototypes" if name == "statistics" and head == "BallDPRidgePrototype" else name


def loss_of(head: str, n_classes: int) -> str | None:
    """The loss of a head of this package; None of another."""
    loss = LOSSES_OF_HEADS.get(head)
    return "softmax" if loss == "logistic" and n_classes > 2 else loss


def check(release: Any) -> None:
    """Raise a ValueError if the record contradicts itself."""
    problem, bound, mechanism = release.problem, release.bound, release.mechanism
    try:
        datetime.date.fromisoformat(release.date)
    except ValueError:
        raise ValueError(f"record: date={release.date!r} must be a day, as 2026-01-31.") from None
    _require(release.head.isidentifier(), f"head={release.head!r} must be the name of a class.")
    _check_radius(release)
    _require(
        1 <= problem.n_samples <= MAX_RECORDS,
        f"problem.class_counts add up to {problem.n_samples!r} records.",
    )
    _check_weights(problem)
    tag, loss = tag_of(type(bound)), LOSSES_OF_HEADS.get(release.head)
    usual = usual_mechanism(release.head, bound)
    if mechanism == usual != "":
        # Heads of this package without a loss are made of sums, and the others are not.
        sound = loss is None or (loss == "") == (tag == "Sums")
    elif mechanism in {"", *_MECHANISMS.values(), *_OF_SUMS}:
        sound = loss is None and {mechanism, usual} == _OF_SUMS
    else:
        sound = loss != ""
    _require(
        sound,
        f"mechanism={mechanism!r} is not that of a {one_line(release.head, 60)} whose bound.type "
        f"is {one_line(tag, 80)!r}.",
    )
    pooled, moment = getattr(bound, "pooled", False), getattr(bound, "moment", None)
    _require(
        mechanism not in _OF_SUMS
        or not (pooled or (mechanism == "prototypes" and moment is not None)),
        f"bound.pooled={pooled!r} and bound.moment={moment!r} are not what mechanism="
        f"{mechanism!r} asks for.",
    )
    try:
        bound.check(problem)
    except ValueError as error:
        raise ValueError(f"record: bound: {one_line(error, 200)}") from error
    budget, mu = mu_from_budget(release.epsilon, release.delta), release.mu
    if not 0.0 <= mu <= budget * (1.0 + ROUNDING):
        needed = repr(epsilon_from_mu(mu, release.delta)) if 0.0 <= mu < math.inf else "none"
        raise ValueError(
            f"record: epsilon={release.epsilon!r} does not follow from the rest of it: it should "
            f"be {needed}, as its bound gives mu={mu!r} (delta={release.delta!r})."
        )


def _require(sound: bool, text: str) -> None:
    if not sound:
        raise ValueError(f"record: {text}")


def _check_weights(problem: Problem) -> None:
    """Raise a ValueError unless some records have these weights."""
    counts, sums = problem.class_counts, problem.sums_weights
    persons = sums.unit == "person"
    _require(
        _is_of_persons(sums, problem.n_samples) if persons else sums == problem.uniform_weights,
        f"problem.sums_weights: n_units={sums.n_units!r}, most_records={sums.most_records!r}, "
        f"record={sums.record!r}, total={sums.total!r} are not those of {problem.n_samples!r} "
        f"records, where each {sums.unit} counts once.",
    )
    totals = sums.class_totals
    _require(
        (None if totals is None else [t > 0.0 for t in totals])
        == (None if counts is None else [n > 0 for n in counts]),
        f"problem.sums_weights.class_totals={totals!r} do not go with problem.class_counts="
        f"{counts!r}: the classes with records have a weight.",
    )
    _require(
        not persons or _possible(sums, problem),
        "problem.sums_weights are no weights of these records.",
    )


def _is_of_persons(weights: Weights, n_samples: int) -> bool:
    """Whether so many records can be those of persons who count once each, whatever they have."""
    fewest, most, n = round(1.0 / weights.record), weights.most_records, weights.n_units
    # Sums of many weights are rounded.
    slack = ROUNDING + n_samples * 2.0**-52
    ones = weights.record * fewest, weights.largest, weights.total / n
    # One person has the fewest records, and one the most.
    return all(abs(one - 1.0) <= slack for one in ones) and (
        (n - 1) * fewest + most <= n_samples <= (n - 1) * most + fewest
    )


def _possible(weights: Weights, problem: Problem) -> bool:
    """Whether the records of some persons have these weights."""
    up, largest = 1.0 + ROUNDING, weights.largest
    root = math.sqrt(min(weights.most_records, problem.n_classes))
    # A person has at least the mean of all.
    sound = weights.total <= weights.n_units * largest * up and weights.block_factor <= root * up
    counts, totals, largest_of = problem.class_counts, weights.class_totals, weights.class_largest
    if not sound or counts is None or totals is None or largest_of is None:
        return sound
    classes = zip(counts, totals, largest_of, strict=True)
    return (
        all(t <= min(n, weights.n_units) * s * up for n, t, s in classes)
        and weights.record <= max(largest_of) * up
        and max(largest_of) <= largest * up
        and largest <= weights.block_factor * root * max(largest_of) * up
        and abs(sum(totals) - weights.total) <= (up - 1.0) * weights.total
    )


def _check_radius(release: Any) -> None:
    """Raise a ValueError if the radius cannot have come from where the record says."""
    origin, protected = release.radius_from, release.labels == "protected"
    if isinstance(origin, Edits):
        hidden = origin.share * origin.n
        whole = abs(hidden - round(hidden)) <= ROUNDING * max(1.0, hidden)
        _require(whole, f"radius_from.share={origin.share!r} is no share of {origin.n!r} edits.")
    _require(
        not (protected and isinstance(origin, Declared)),
        "radius_from is Declared, which reads labels: it must not where they are protected.",
    )
