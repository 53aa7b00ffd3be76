"""The four steps of a fit: read the input, promise from public numbers, run, publish.

Only :func:`run` touches the rows, once every active accountant has counted the promise. The other
three know public numbers, and what was released.
"""

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validation import all_finite, caller_level
from .._version import __version__
from ..accounting import charged
from ..adjacency import full_radius_in
from ..privacy.bounds import Bound, as_float_or_tuple
from ..privacy.digest import parameters_digest
from ..privacy.gaussian import delta_from_mu
from ..privacy.guarantee import total_epsilon
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..privacy.weights import Weights, units_of
from ..radius import ChosenRadius
from .mechanism import Array, Budget, Codes, Mechanism, Outcome, Problem, Promise, Rows
from .settings import RULE


@dataclass(frozen=True)
class Input:
    """What a fit was given, read and checked: ``alpha`` is NaN where the mechanism chooses it."""

    problem: Problem
    radius: ChosenRadius
    X: Rows
    codes: Codes
    row_weights: Array | None


@dataclass(frozen=True)
class Pledge:
    """What a fit will release, and what it promises of that: public numbers alone.

    The release is the record as it stands before the run.
    """

    mechanism: Mechanism
    problem: Problem
    promise: Promise
    noise: Noise
    release: Release


def promise(head: Any, problem: Problem, radius: ChosenRadius, noise: Noise) -> Pledge:
    """The mechanism of a fit, what it promises, and the record of it."""
    budget = Budget(float(head.epsilon), float(head.delta))
    mechanism: Mechanism = head._chosen_mechanism(problem, budget)
    if math.isnan(problem.alpha):
        problem = replace(problem, alpha=mechanism.alpha_for(problem, budget))
    promised = _checked(mechanism.name, mechanism.promise(problem, budget), problem, budget)
    bound = promised.bound
    value = radius.value
    if value is None:
        value = full_radius_in(problem.metric, problem.norm_bound, problem.n_features)
    own = bound.scales(problem.radius) is None
    with np.errstate(all="ignore"):
        release = Release(
            head=type(head).__name__,
            mechanism=mechanism.name,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            alpha=problem.alpha,
            norm_bound=problem.norm_bound,
            metric=problem.metric,
            radius=value,
            radius_source="seeded" if radius.seeded else radius.source,
            radius_epsilon=radius.epsilon,
            radius_draw=radius.draw,
            radius_edits=radius.n_edits,
            radius_hides=radius.hidden,
            radius_hides_records=radius.hidden_records,
            epsilon=budget.epsilon,
            delta=budget.delta,
            sampler=noise.name,
            bound=bound,
            version=__version__,
            numpy_version=np.__version__,
            date=datetime.now(UTC).date().isoformat(),
            encoder=None if head.encoder is None else str(head.encoder),
            rule=RULE,
            stated_sensitivity=promised.sensitivity if own else (),
            stated_sigma=promised.sigma if own else (),
        )
    _check_record(mechanism.name, release, problem)
    return Pledge(mechanism, problem, promised, noise, release)


def run(pledge: Pledge, given: Input) -> Outcome:
    """The noisy parameters: counted by every accountant, then made from the rows."""
    problem = pledge.problem.with_rows(given.X, given.codes, given.row_weights)
    # A mechanism of one's own may draw noise elsewhere.
    own = bool(pledge.promise.bound.mechanism)
    spent = charged(pledge.release, lambda: pledge.noise.used or not own)
    # Neither warnings nor errors of arithmetic may depend on the rows; passes take this to their
    # threads and workers.
    with spent, all_finite(), np.errstate(all="ignore"):
        outcome = pledge.mechanism.run(problem, pledge.promise, pledge.noise)
    surplus = [name for name in outcome.attributes if name[-1:] != "_" or name[:1] == "_"]
    if surplus or not np.isfinite(outcome.parameters).all():
        raise ValueError(
            f"mechanism {pledge.mechanism.name}: parameters must be finite, and names of "
            f"attributes end in an underscore (not {surplus}); nothing is published."
        )
    return outcome


def publish(
    pledge: Pledge,
    outcome: Outcome,
    fitted: Mapping[str, Any],
    released: Mapping[str, NDArray[Any]],
) -> tuple[dict[str, Any], Release]:
    """Fitted attributes, and the record with what is known after the run only.

    ``fitted`` are those made of the noisy parameters, ``released`` the values that a digest names.
    """
    late: dict[str, Any] = {"digest": parameters_digest(released)}
    if outcome.sensitivity is not None:
        late["stated_sensitivity"] = as_float_or_tuple(outcome.sensitivity)
    if outcome.sigma is not None:
        late["stated_sigma"] = as_float_or_tuple(outcome.sigma)
    if outcome.mu_ex_post is not None:
        late["epsilon_full_radius_ex_post"] = total_epsilon(
            outcome.mu_ex_post, pledge.release.delta, pledge.release.radius_epsilon
        )
    # What was published, and digested, stands whatever a mechanism names its attributes.
    return {**outcome.attributes, **fitted}, replace(pledge.release, **late)


def warn_of_large_delta(delta: float, weights: Weights | None, n_samples: int) -> None:
    """Warn where a delta would allow a whole record, or all of a person's, to be published."""
    share = 1.0 / units_of(weights, n_samples)
    if delta >= share:
        persons = weights is not None and weights.unit == "person"
        number, units = ("n_persons", "persons") if persons else ("n_samples", "records")
        warnings.warn(
            f"delta={delta!r} is not below 1/{number}={share:.3g}: releasing whole "
            f"{units} at random would satisfy it; choose a smaller delta.",
            UserWarning,
            stacklevel=caller_level(),
        )


def _checked(name: str, promised: Any, problem: Problem, budget: Budget) -> Promise:
    """The promise, with numbers as the record shows them, if it is one for this problem."""
    if not (isinstance(promised, Promise) and isinstance(promised.bound, Bound)):
        raise ValueError(
            f"mechanism {name}: promise() must return a Promise with a Bound, got "
            f"{type(promised).__name__}."
        )
    bound = promised.bound
    if bound.labels != problem.labels:
        raise ValueError(
            f"mechanism {name}: its bound keeps labels {bound.labels}, where this head "
            f"needs them {problem.labels} (protect_labels)."
        )
    if bound.weights != problem.loss_weights:
        raise ValueError(
            f"mechanism {name}: its bound knows nothing of the weights, or the persons, "
            "of this fit (groups, class_weight); give it a field weights, or leave them out."
        )
    mu = float(bound.mu(problem.radius))
    if not (mu >= 0.0 and delta_from_mu(mu, budget.epsilon) <= budget.delta):
        raise RuntimeError(
            f"mechanism {name}: at the radius its promise states mu={mu!r}, which misses "
            f"its own guarantee (at most {budget.mu!r}); nothing was released."
        )
    sensitivity = as_float_or_tuple(np.ravel(promised.sensitivity))
    return Promise(bound, sensitivity, as_float_or_tuple(np.ravel(promised.sigma)))


def _check_record(name: str, release: Release, problem: Problem) -> None:
    """Raise a ValueError unless a mechanism's bound is for these rows, and a plain record."""
    if release.domain != problem.domain:
        raise ValueError(
            f"mechanism {name}: its bound is for rows in the {release.domain}, where this "
            f"head has domain={problem.domain!r}; give the bound a field rows, and bring the "
            "rows there, or set domain to the other."
        )
    if not release.bound.mechanism:
        # Of somebody's own: whether it is a plain record is not known.
        try:
            json.dumps(release.to_dict())
        except TypeError as error:
            raise ValueError(
                f"mechanism {name}: its bound is no plain record ({error}); use Python's "
                "own numbers, strings and tuples for its fields."
            ) from error
