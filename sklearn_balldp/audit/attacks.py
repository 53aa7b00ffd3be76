"""Attacks of an informed adversary: the audited conversation, with a candidate in place.

The adversary knows every record but those in question, every public number and the law of the
noise. Each noisy answer is a Gaussian observation at a public state, so that the posterior of a
candidate is exact ("Attacks, and what bounds them"; the MAP attack of Margaryan & Gupta).
Mechanisms that ask several queries, and ``noise="mechanism"``, run through a fresh kernel; else
noise is added to the candidates' values of the only query, in their span.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..heads import Released
from ..losses import Array
from ..mechanisms import Kernel, Query, Records, answered, drive, drive_many
from ..privacy.gaussian import gaussian_power
from ..privacy.guarantee import Guarantee
from ..privacy.noise import Noise
from ..privacy.problem import Problem
from ..rows import SINGLE_BLAS_THREAD
from .certificates import (
    enclosing_ball,
    rero_bound,
    rero_bound_dp,
    scaled_models,
    span_coordinates,
    support_bound,
)
from .preparation import PreparedAudit
from .supports import Support, candidate_distances

if TYPE_CHECKING:
    import pandas as pd

Positions = NDArray[np.intp]

# Limit of values in arrays that hold something for each candidate, and of deviates that are kept.
_VALUES = 2**22


class Candidates:
    """Noiseless answers with each candidate in the place of some records, beside the ``others``.

    ``rows`` (n_candidates, n_changed, n_features) and ``codes`` may stand in these places, which
    have ``weights`` in sums.
    """

    def __init__(
        self,
        problem: Problem,
        others: Records,
        rows: NDArray[np.floating],
        codes: Positions,
        weights: Array | None = None,
    ) -> None:
        self.problem, self.others, self._shape = problem, others, codes.shape
        tiled = None if weights is None else np.tile(weights, len(codes))
        self._all = Records(rows.reshape(-1, rows.shape[-1]), codes.ravel(), tiled)
        self._sets = np.repeat(np.arange(len(codes)), codes.shape[1])
        self._asked: dict[Query, Array] = {}

    def __len__(self) -> int:
        return self._shape[0]

    def values(self, queries: Sequence[Query]) -> list[Array]:
        """For each query its values, (n_candidates, ...), in as few passes as they need."""
        fresh = [query for query in dict.fromkeys(queries) if query not in self._asked]
        answers: dict[Query, Array] = {}
        for kind in dict.fromkeys(type(query) for query in fresh):
            some = [query for query in fresh if type(query) is kind]
            each = self._sums(kind, some) if kind.additive else map(self._refitted, some)
            answers |= zip(some, each, strict=True)
        values = [self._asked[q] if q in self._asked else answers[q] for q in queries]
        # Queries that are equal by value are asked again, by every run.
        self._asked |= {q: v for q, v in answers.items() if type(q).__eq__ is not object.__eq__}
        return values

    def _sums(self, kind: type[Query], queries: Sequence[Query]) -> list[Array]:
        """Values of sums over records: those of the others, and what each candidate adds."""
        sums = [
            np.repeat(values[None], len(self), axis=0)
            for values in kind.together(queries, self.problem, self.others)
        ]
        step = max(1, _VALUES // max(sum(values[0].size for values in sums), 1))
        for first in range(0, len(self._all), step):
            some = slice(first, first + step)
            # The same object, where it is all of them: what was computed of it is kept.
            part = self._all if step >= len(self._all) else self._all.at(some)
            alone = kind.together(queries, self.problem, part, each=True)
            for values, added in zip(sums, alone, strict=True):
                if self._shape[1] == 1:
                    values[some] += added
                else:
                    np.add.at(values, self._sets[some], added)
        return sums

    def _refitted(self, query: Query) -> Array:
        """Values of a query that is no sum over records: of each neighbour anew."""
        sets = np.arange(len(self._all)).reshape(self._shape)
        neighbours = (self.others.joined(self._all.at(places)) for places in sets)
        return np.stack([query.values(self.problem, records) for records in neighbours])


@dataclass
class Trials:
    """Results of trials."""

    #: (n_trials, n_candidates), from all that was answered, but for a constant of each trial.
    log_posterior: Array
    distance: Array  # from the first candidate's values, in units of the noise; of the same shape
    #: The noise of the first trials, answer by answer; flat where some values have none.
    deviates: list[list[Array]]


def run_trials(
    released: Released, candidates: Candidates, truths: Sequence[int], noises: Callable[[], Noise]
) -> Trials:
    """Let the mechanism run with candidate ``truths[i]`` in place, and attack every run."""
    problem, size = released.problem, released.bound.runs_at_once
    if released.bound.has_transcript:
        values = math.prod(released.bound.shape(problem)) * len(candidates)
        size = max(1, min(size, _VALUES // values))
    logs, squares = np.zeros((2, len(truths), len(candidates)))
    drawn: list[list[Array]] = []

    def run_together(trials: range) -> None:
        kernels = [_kernel(released, candidates.others, noises()) for _ in trials]
        full = sum(z.size for run in drawn for z in run) >= _VALUES
        kept: list[list[Array]] = [] if full else [[] for _ in trials]

        def answer(runs: Sequence[int], queries: Sequence[Query]) -> list[Array]:
            answers = []
            for run, query, values in zip(runs, queries, candidates.values(queries), strict=True):
                trial = trials[run]
                truth = values[truths[trial]]
                noisy = kernels[run].answer(query, lambda truth=truth: truth)  # type: ignore[misc]
                standard, silent = query.standardised(problem, noisy, values)
                standard = standard.reshape(len(values), -1)
                logs[trial] -= 0.5 * np.vecdot(standard, standard)
                apart = standard - standard[0]
                squares[trial] += np.vecdot(apart, apart)
                if kept:
                    z = standard[truths[trial]].reshape(noisy.shape)
                    kept[run].append(z[~silent] if silent.any() else z)
                answers.append(noisy)
            return answers

        drive_many([released.conversation() for _ in trials], answer)
        drawn.extend(kept)

    with SINGLE_BLAS_THREAD, np.errstate(all="ignore"):
        for first in range(0, len(truths), size):
            run_together(range(len(truths))[first : first + size])
    return Trials(logs, np.sqrt(squares), drawn)


def _kernel(released: Released, records: Records, noise: Noise) -> Kernel:
    """A kernel for one more run of the audited conversation."""
    rules = answered(released.mechanism), released.mechanism.most_queries
    return Kernel(released.problem, records, released.bound, noise, *rules)


def answer_again(released: Released, records: Records, noise: Noise) -> Released:
    """The same conversation with the records once more: nothing of it leaves the audit."""
    kernel = _kernel(released, records, noise)
    answers: list[Array] = []

    def answer(query: Query) -> Array:
        answers.append(kernel(query))
        return answers[-1]

    with SINGLE_BLAS_THREAD, np.errstate(all="ignore"):
        values = drive(released.conversation(), answer)
    return replace(released, values=np.asarray(values), answers=tuple(answers))


def normalised(logs: Array) -> Array:
    """Log-probabilities that add up to one, from any constant of their rows."""
    total = logsumexp(logs, axis=-1, keepdims=True)
    if np.isneginf(total).any():
        raise ValueError("no candidate explains the parameters that are released without noise.")
    return logs - total


def simulated(points: Array, truths: Positions, rng: np.random.Generator) -> Array:
    """Log-likelihoods of all candidates, in trials that hide those at ``truths``.

    ``points`` are their values in coordinates of their span, in units of the noise.
    """
    noisy = points[truths] + rng.standard_normal((len(truths), points.shape[1]))
    return noisy @ points.T - 0.5 * np.vecdot(points, points)


# -- one support of an audit ----------------------------------------------------------------------


@dataclass(frozen=True)
class AuditSetting:
    """What the supports of one audit share."""

    prepared: PreparedAudit
    at_radius: Guarantee  # what the release promises at the distance of the candidates
    #: What it promises for candidates within that distance of one possible record.
    of_candidates: Guarantee
    prior: Array  # the adversary's prior, of shape (n_candidates,)
    uniform: bool  # take every candidate equally often, instead of drawing from the prior
    eta: float  # a guess within this distance of the hidden record succeeds
    n_draws: int  # noise draws for every hidden record
    #: The head's sampler, a new one for each trial; None simulates noise.
    sampler: Callable[[], Noise] | None


@dataclass(frozen=True)
class SupportAudit:
    """Results of one support: for the owner of the records."""

    #: Kappa, success rate, largest distance from the anchor's values, and bounds.
    summary: dict[str, Any]
    trials: pd.DataFrame  # one row per trial
    deviates: list[list[Array]]  # noise of trials with the head's sampler, answer by answer


def audit_support(
    setting: AuditSetting, support: Support, rng: np.random.Generator
) -> SupportAudit:
    """Compute the candidates' values of one support, bound and attack them."""
    import pandas as pd

    prior, released, near = setting.prior, setting.prepared.released, None
    kappa = float(prior.max())
    if setting.eta > 0.0:
        gaps = candidate_distances(support, released.problem.metric)
        near = gaps <= setting.eta
        # No point is within eta of two candidates that are further apart than 2 eta.
        kappa = min(1.0, float(((gaps <= 2.0 * setting.eta) @ prior).max()))
    if setting.uniform:
        truths = np.concatenate([rng.permutation(len(prior)) for _ in range(setting.n_draws)])
    else:
        truths = rng.choice(len(prior), size=len(prior) * setting.n_draws, p=prior)
    candidates = _candidates(setting.prepared, support)
    # Distances of noisy gradients depend on the path, so they bound nothing beforehand.
    bounds = dict.fromkeys(("anchor_bound", "ball_bound", "support_bound"), math.nan)
    drawn: list[list[Array]] = []
    if released.of_one_query:
        points, distance, bounds = _bounds(released, candidates, prior, near, kappa)
    if released.of_one_query and setting.sampler is None:
        logs = simulated(points, truths, rng)
    else:
        noises = setting.sampler or (lambda: Noise(rng))
        trials = run_trials(released, candidates, (truths + 1).tolist(), noises)
        logs = trials.log_posterior[:, 1:]
        distance = distance if released.of_one_query else float(trials.distance[:, 1:].max())
        drawn = trials.deviates if setting.sampler else []
    with np.errstate(divide="ignore"):
        posterior = np.exp(normalised(logs + np.log(prior)))
    # How probably each answer succeeds: exact, so the mean maximum is the Bayes value.
    chances = posterior if near is None else posterior @ near.T
    bounds["bayes_bound"] = float(chances.max(axis=1).mean())
    guess = chances.argmax(axis=1)
    success = guess == truths if near is None else near[guess, truths]
    of_truth = posterior[np.arange(len(truths)), truths]
    columns = {"target": truths, "guess": guess, "success": success, "posterior": of_truth}
    promise = setting.of_candidates
    summary = {
        "n_in_ball": support.n_in_ball,
        "kappa": kappa,
        "success_rate": float(success.mean()),
        "distance": distance,
        "mu": setting.at_radius.mu,
        "dp_bound": rero_bound_dp(kappa, promise.epsilon, promise.delta),
        "rdp_bound": rero_bound(kappa, promise.mu, method="rdp"),
        "direct_bound": promise.certificate(kappa),
        **bounds,
    }
    return SupportAudit(summary, pd.DataFrame(columns), drawn)


def _candidates(prepared: PreparedAudit, support: Support) -> Candidates:
    """The anchor's records, then the candidates."""
    records, places = prepared.records, support.places
    hidden = records.at(places)
    rows = np.concatenate([hidden.X[None].astype(np.float64), support.rows])
    codes = np.concatenate([hidden.codes[None], support.codes])
    others = records.without(places)
    return Candidates(prepared.released.problem, others, rows, codes, hidden.weights)


def _bounds(
    released: Released,
    candidates: Candidates,
    prior: Array,
    near: NDArray[np.bool_] | None,
    kappa: float,
) -> tuple[Array, float, dict[str, float]]:
    """Candidates' values in coordinates of their span, the largest distance, and bounds."""
    query = released.bound
    with SINGLE_BLAS_THREAD, np.errstate(all="ignore"):
        (values,) = candidates.values([query])
    anchor, *others = span_coordinates(scaled_models(values, query.scales(released.problem)))
    points = np.stack(others)
    distance = float(np.linalg.norm(points - anchor, axis=1).max())
    centre, ball = enclosing_ball(points)
    if distance < ball:
        # The ball comes from an iteration, so the anchor may be a better centre.
        centre, ball = anchor, distance
    bounds = {
        "anchor_bound": gaussian_power(kappa, distance),
        "ball_bound": gaussian_power(kappa, ball),
        "support_bound": math.nan,
    }
    if near is None:
        # The shares of this bound add up to one for exact identification only.
        bounds["support_bound"] = support_bound(points, 1.0, prior, centre)
    return points, distance, bounds
