"""One support of an audit: candidate models, their bounds, and trials with independent noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..heads import Neighbours, PrivateProblem, ReleasedModel
from ..privacy.gaussian import gaussian_power
from ..privacy.guarantee import Guarantee
from .certificates import (
    bayes_success,
    enclosing_ball,
    rero_bound,
    rero_bound_dp,
    scaled_models,
    span_coordinates,
    support_bound,
)
from .identification import decode, log_posterior
from .supports import Support, candidate_distances
from .tolerance import guesses_within
from .transcripts import TranscriptTrials

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

#: Noise draws of the Bayes value of one support.
BAYES_DRAWS = 10_000


@dataclass(frozen=True)
class AuditSetting:
    """What the supports of one audit share."""

    model: ReleasedModel
    #: As many records as the release: the known ones and one to replace.
    problem: PrivateProblem
    #: Position of a placeholder for the hidden record; None replaces the anchor of each support.
    placeholder: int | None
    #: Noiseless values with one record replaced; None for noisy gradients.
    neighbours: Neighbours | None
    #: What the release states at the distance of the candidates.
    guarantee: Guarantee
    #: What it states for candidates within that distance of one possible record.
    stated: Guarantee
    #: The adversary's prior, of shape (n_candidates,).
    weights: Array
    #: Take every candidate equally often, instead of drawing from the prior.
    uniform: bool
    #: A guess within this distance of the hidden record succeeds.
    eta: float
    #: Noise draws for every hidden record.
    n_draws: int
    #: Release with the head's own sampler, instead of simulating noise.
    mechanism: bool


@dataclass(frozen=True)
class SupportAudit:
    """Results of one support: for the owner of the records."""

    #: Kappa, success rate, largest distance from the anchor's model, and bounds.
    summary: dict[str, Any]
    #: One row per trial.
    trials: pd.DataFrame
    #: Candidate models in units of the noise, in coordinates of their span; None for transcripts.
    points: Array | None
    #: Which candidates each answer hits, for ``eta > 0``.
    hits: NDArray[np.bool_] | None


def audit_support(
    setting: AuditSetting, support: Support, rng: np.random.Generator
) -> SupportAudit:
    """Solve the candidate models of one support, bound and attack them."""
    hits, kappa, exact = None, float(setting.weights.max()), True
    if setting.eta > 0.0:
        metric = setting.model.record.metric
        gaps = candidate_distances(support, metric)
        found = guesses_within(support.rows, gaps, setting.weights, setting.eta, metric)
        hits, kappa, exact = found.hits, found.kappa, found.exact
    n_trials = len(support.codes) * setting.n_draws
    target = hidden_records(setting.weights, setting.uniform, n_trials, rng)
    points = None
    if setting.neighbours is None:
        trials, bounds = _audit_transcripts(setting, support, target, hits, rng)
    else:
        trials, bounds, points = _audit_models(
            setting, setting.neighbours, support, target, hits, rng
        )
    stated = setting.stated
    summary = {
        "n_in_ball": support.n_in_ball,
        "kappa": kappa,
        "kappa_is_exact": exact,
        "success_rate": float(trials["success"].mean()),
        "distance": bounds["distance"],
        "mu": setting.guarantee.mu,
        "dp_bound": rero_bound_dp(kappa, stated.epsilon, stated.delta),
        "rdp_bound": rero_bound(kappa, stated.mu_total, method="rdp"),
        "direct_bound": stated.certificate(kappa),
        # Distances of noisy gradients depend on the path, so they bound nothing beforehand.
        "anchor_bound": math.nan if points is None else gaussian_power(kappa, bounds["distance"]),
        "ball_bound": math.nan if points is None else gaussian_power(kappa, bounds["ball"]),
        "support_bound": math.nan if points is None else bounds["support"],
        "bayes_bound": bounds["bayes"],
    }
    return SupportAudit(summary, trials, points, hits)


def _candidates(setting: AuditSetting, support: Support) -> tuple[Any, Array, Positions]:
    """Positions of the hidden records; rows and codes of the anchor, then of the candidates."""
    problem, places = setting.problem, support.places
    anchor_rows = problem.X[places][None].astype(np.float64)
    rows = np.concatenate([anchor_rows, support.rows])
    codes = np.concatenate([problem.codes[places][None], support.codes])
    if setting.placeholder is not None:
        places = np.array([setting.placeholder])
    if problem.loss_weights is None:
        # Custom mechanisms may expect one position and two-dimensional rows.
        return int(places[0]), rows[:, 0], codes[:, 0]
    return places, rows, codes


def _audit_models(
    setting: AuditSetting,
    neighbours: Neighbours,
    support: Support,
    target: Positions,
    hits: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, dict[str, float], Array]:
    """Trials, distances and bounds of noise on parameters; candidate models."""
    models, sigma = neighbours.models(*_candidates(setting, support)), neighbours.sigma
    points = span_coordinates(scaled_models(models, sigma))
    anchor, points = points[0], points[1:]
    distance = float(np.linalg.norm(points - anchor, axis=1).max())
    centre, ball = enclosing_ball(points)
    if distance < ball:
        # The ball comes from an iteration, so the anchor may be a better centre.
        centre, ball = anchor, distance
    bayes = bayes_success(
        points, 1.0, setting.weights, n_draws=BAYES_DRAWS, random_state=rng, hits=hits
    )
    # The shares of the support bound add up to one for exact identification only.
    exact = math.nan if hits is not None else support_bound(points, 1.0, setting.weights, centre)
    if setting.mechanism:
        trials = released_trials(setting, models[1:], sigma, target, hits)
    else:
        trials = simulated_trials(points, target, setting.weights, hits, rng)
    found = {"distance": distance, "ball": ball, "support": exact, "bayes": bayes.value}
    return trials, found, points


def _audit_transcripts(
    setting: AuditSetting,
    support: Support,
    target: Positions,
    hits: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Trials, largest distance and Bayes value of noisy gradients.

    The posterior is exact, so its mean maximum is the Bayes value.
    """
    runs = TranscriptTrials(setting.model, setting.problem, *_candidates(setting, support))
    found = runs.run(target, setting.weights, rng, setting.mechanism)
    trials = _judge(found["map"], target, hits)
    for name in ("last_iterate", "replay"):
        if name in found:
            trials[name] = _judge(found[name], target, hits)["success"].astype(float)
    posterior = np.exp(found["map"])
    best = posterior.max(axis=1) if hits is None else (posterior @ hits.T).max(axis=1)
    return trials, {"distance": float(found["distance"].max()), "bayes": float(best.mean())}


def hidden_records(
    weights: Array, uniform: bool, n_trials: int, rng: np.random.Generator
) -> Positions:
    """Positions of the hidden records: every candidate equally often, or draws from the prior."""
    if uniform:
        # In random order: the replay attack uses every other trial, which must favour no candidate.
        rounds = [rng.permutation(len(weights)) for _ in range(-(-n_trials // len(weights)))]
        return np.concatenate(rounds)[:n_trials]
    return rng.choice(len(weights), size=n_trials, p=weights)


def simulated_trials(
    points: Array,
    target: Positions,
    weights: Array,
    hits: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Attacks on independent unit noise in the span of the candidate models.

    Noise outside the span is independent of the hidden record, so nothing is lost.
    """
    released = points[target] + rng.standard_normal((len(target), points.shape[1]))
    return _judge(log_posterior(released, points, 1.0, weights), target, hits)


def released_trials(
    setting: AuditSetting,
    models: Array,
    sigma: ArrayLike,
    target: Positions,
    hits: NDArray[np.bool_] | None,
) -> pd.DataFrame:
    """Attacks on releases by the head's own sampler, one per trial.

    Beside the MAP attack, two that guess the noise: "replay" takes that of the release before,
    whose record an adversary may know; "transfer" takes that of a block which all candidates
    share. Against independent noise both do worse than the MAP attack.
    """
    weights = setting.weights
    sigma = np.broadcast_to(np.asarray(sigma, dtype=np.float64), models.shape[1:])
    spread = np.ptp(models, axis=0).reshape(models.shape[1], -1).max(axis=1)
    noisy = sigma.reshape(len(sigma), -1)[:, 0] > 0.0
    shared = np.flatnonzero((spread == 0.0) & noisy)
    logs: dict[str, list[Array]] = {"map": [], "replay": [], "transfer": []}
    used: dict[str, list[int]] = {"map": [], "replay": [], "transfer": []}
    previous = None
    for trial, truth in enumerate(target):
        released = setting.model.noise()(models[truth], sigma)
        scale = np.where(sigma > 0.0, sigma, 1.0)
        noise = (released - models[truth]) / scale
        guesses = {"map": 0.0, "replay": previous}
        if len(shared):
            guesses["transfer"] = noise[shared[0]]
        for name, guess in guesses.items():
            if guess is not None:
                less = released - guess * sigma
                logs[name].append(log_posterior(less, models, sigma, weights))
                used[name].append(trial)
        # Each release is used once, so that the replays are independent.
        previous = noise if previous is None else None
    trials = _judge(np.array(logs["map"]), target, hits)
    for name in ("replay", "transfer"):
        if logs[name]:
            judged = _judge(np.array(logs[name]), target[used[name]], hits)["success"]
            trials[name] = np.nan
            trials.loc[used[name], name] = judged.to_numpy(dtype=float)
    return trials


def _judge(logs: Array, target: Positions, hits: NDArray[np.bool_] | None) -> pd.DataFrame:
    """Answers from log-posteriors, and whether they succeed.

    An answer that may err is shown by the likeliest candidate that it hits.
    """
    import pandas as pd

    guess = answer = decode(logs, hits)
    success = guess == target
    if hits is not None:
        guess = np.where(hits[answer], logs, -np.inf).argmax(axis=1)
        success = hits[answer, target]
    posterior = np.exp(logs[np.arange(len(target)), target])
    return pd.DataFrame(
        {"target": target, "guess": guess, "success": success, "posterior": posterior}
    )
