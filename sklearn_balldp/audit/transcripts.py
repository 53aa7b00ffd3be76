r"""Attacks on noisy gradient descent: on its transcript, and on the released model alone.

The adversary knows every record but one and sees every released gradient, so that each step is a
Gaussian observation at a known iterate, and the posterior of candidate i is exact:

.. math:: \log \pi_i - \sum_s \frac{1}{2 \sigma_s^2}
          \| g_s - \tfrac1n (\sum_{known} g(\theta_{s-1}; z) + g(\theta_{s-1}; z_i)) \|^2 ,

and likewise for the noisy sums that a descent may start from.

An attacker who sees only the released model knows less, so report the success on the transcript.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from ..heads import (
    Initialisation,
    Iterates,
    MeanGradient,
    Neighbours,
    PrivateProblem,
    Promise,
    ReleasedModel,
    StatisticsPerturbation,
    as_sets,
    initialise,
    mean_gradient,
)
from ..losses import clip_residuals
from ..privacy.noise import Noise
from ..privacy.weights import total_of
from ..rows import SINGLE_BLAS_THREAD, rows_in_domain
from .certificates import check_prior

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

# Most values in the runs that advance together: an array of them takes tens of megabytes.
_RUN_VALUES = 2**22


class Candidates:
    """Candidates for the missing record (or sets of records), and what each adds to a gradient.

    A record's gradient is its residual times its augmented row. An inner product with it takes one
    product of rows for each score, so the gradients need not be stored.

    ``rows`` are of shape (n_candidates, n_changed, n_features), ``codes`` of (n_candidates,
    n_changed), and ``weights`` in the loss of (n_changed,), all 1 by default. ``begun`` holds the
    map that the steps see the rows through.
    """

    def __init__(
        self,
        rows: NDArray[np.floating],
        codes: Positions,
        norm_bound: float,
        begun: Initialisation,
        weights: Array | None = None,
        domain: str = "ball",
    ) -> None:
        bound, d = begun.bound, rows.shape[-1]
        flat = rows.reshape(-1, d).astype(np.float64)
        inside: NDArray[np.floating] = rows_in_domain(flat, norm_bound, domain)
        if begun.map is not None:
            inside = begun.map.place(inside)
        constants = np.full((len(inside), bound.shape[1] - d), bound.constant)
        self.rows = np.hstack([inside, constants]).reshape(*rows.shape[:2], -1)
        self._products = self.rows @ self.rows.swapaxes(1, 2)
        self._first = np.einsum("imd,nd->imn", self.rows, self.rows[0])
        self._codes, self._clip, self._loss = codes, bound.descent.clip, bound.kind
        self._weights = weights

    def residuals(self, thetas: Array) -> Array:
        """Weighted residuals, of shape (n_candidates, n_changed, n_runs, n_scores)."""
        flat = self.rows.reshape(-1, self.rows.shape[-1])
        scores = np.tensordot(flat, thetas, axes=(1, 2))
        found = self._loss.residuals(scores, self._codes.ravel())
        if self._clip is not None:
            found = clip_residuals(found, self._clip)
        residuals: Any = found.reshape(*self.rows.shape[:2], *found.shape[1:])
        if self._weights is not None:
            residuals = residuals * self._weights[:, None, None]
        return residuals  # type: ignore[no-any-return]

    def gradients(self, residuals: Array, places: Positions) -> Array:
        """For each run, the gradient of the candidate that ``places`` names."""
        own = residuals[places, :, np.arange(len(places))]
        return np.einsum("rmk,rmd->rkd", own, self.rows[places])

    def log_likelihoods(self, gradients: Array, residuals: Array) -> Array:
        """Log-likelihood of each candidate, given noisy gradients in units of the noise.

        It is minus half the squared distance from the candidate's gradient, up to a constant of the
        run; of shape (n_runs, n_candidates), for gradients of shape (n_runs, n_scores, n_columns).
        """
        products = np.tensordot(gradients, self.rows, axes=(2, 2))
        inner = np.einsum("rkim,imrk->ri", products, residuals)
        return inner - 0.5 * self._squares(residuals)

    def apart(self, residuals: Array) -> Array:
        """Squared distance of each gradient from the first candidate's, (n_runs, n_candidates)."""
        squares, runs = self._squares(residuals), residuals.transpose(0, 2, 3, 1)
        inner = np.einsum("irkn,rkn->ri", runs @ self._first[:, None], runs[0])
        return squares + squares[:, :1] - 2.0 * inner

    def _squares(self, residuals: Array) -> Array:
        """Squared norms of the candidates' gradients."""
        runs = residuals.transpose(0, 2, 3, 1)
        return np.einsum("irkn,irkn->ri", runs @ self._products[:, None], runs)


class TranscriptTrials:
    """Runs of the mechanism with each candidate as the missing record.

    ``left_out`` is its position in the problem, or those of the records of one person. ``rows`` and
    ``codes`` are the anchor's, then the candidates', as :class:`.Neighbours` takes them.
    """

    def __init__(
        self,
        model: ReleasedModel,
        problem: PrivateProblem,
        left_out: Any,
        rows: NDArray[np.floating],
        codes: Positions,
    ) -> None:
        self._model, self._problem = model, problem
        bound: Any = model.record.bound
        self._bound = bound
        self._left_out, self._rows, self._codes = as_sets(left_out, rows, codes)
        # The noiseless sums that the descent starts from, with each candidate.
        self._sums: Neighbours | None = None
        if bound.start is not None:
            self._sums = StatisticsPerturbation().neighbours(problem, Promise(bound.start))
            self._tables = self._sums.models(self._left_out, self._rows, self._codes)
        self._shared: _Runs | None = None

    @property
    def _size(self) -> int:
        """Number of runs that advance together: one, if each has a whitening map of its own."""
        return 1 if self._bound.whitened else max(1, _RUN_VALUES // self._bound.step_values)

    def _runs(self, tables: Array) -> "_Runs":
        """Runs that start from released sums (empty arrays if there is no start)."""
        begun = [initialise(table, self._problem, self._bound) for table in tables]
        if self._bound.whitened or self._shared is None:
            self._shared = _Runs(self._problem, self._left_out, self._rows, self._codes, begun)
        return self._shared.from_here(begun)

    def noiseless(self) -> Array:
        """Models that a descent without noise gives with each candidate."""
        places, models = np.arange(1, len(self._rows)), []
        tables = np.empty((len(places), 0)) if self._sums is None else self._tables[1:]
        for i in range(0, len(places), self._size):
            runs, own = self._runs(tables[i : i + self._size]), places[i : i + self._size]
            for _ in range(self._bound.descent.n_steps):
                residuals = runs.candidates.residuals(runs.iterates.thetas)
                runs.iterates.advance(runs.noiseless(residuals, own))
            models.append(runs.released(self._bound.constant))
        return np.concatenate(models)

    def run(
        self, target: Positions, weights: Array, rng: np.random.Generator, mechanism: bool
    ) -> dict[str, Array]:
        """Run the mechanism once for each hidden record, and attack every run."""
        size = self._size
        with SINGLE_BLAS_THREAD:
            models = self.noiseless()
            parts = [
                self._run(target[i : i + size], weights, models, rng, mechanism)
                for i in range(0, len(target), size)
            ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _run(
        self,
        target: Positions,
        weights: Array,
        models: Array,
        rng: np.random.Generator,
        mechanism: bool,
    ) -> dict[str, Array]:
        bound = self._bound
        total = total_of(bound.weights, self._problem.n_samples)
        places, n_runs = target + 1, len(target)
        streams = [self._model.noise() for _ in target if mechanism]
        with np.errstate(divide="ignore"):
            prior = np.log(weights)
        shape = (n_runs, len(self._rows))
        seen, replayed, apart = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        released = np.empty((n_runs, 0))
        if self._sums is not None:
            released, seen[:], apart[:] = self._start(places, streams, rng)
        runs = self._runs(released)
        iterates, candidates, own_bound = runs.iterates, runs.candidates, runs.bound
        noise_square = np.zeros(n_runs)
        before: tuple[Array, Array] | None = None
        for number, gain in enumerate(iterates.gains()):
            thetas = iterates.thetas
            scales = [own_bound.step(t, number, runs.known.rounding(t))[1] for t in thetas]
            sigma = np.array(scales)
            residuals = candidates.residuals(thetas)
            noiseless = runs.noiseless(residuals, places)
            if mechanism:
                steps = zip(streams, noiseless, sigma.tolist(), strict=True)
                gradients = np.stack([noise(gradient, scale) for noise, gradient, scale in steps])
            else:
                noise = rng.standard_normal(noiseless.shape)
                gradients = noiseless + sigma[:, None, None] * noise
            # What the missing record and the noise added, in units of the noise.
            added = candidates.gradients(residuals, places) / total
            excess = (gradients - noiseless + added) / sigma[:, None, None]
            shares = residuals / (total * sigma[:, None])
            seen += candidates.log_likelihoods(excess, shares)
            apart += candidates.apart(shares)
            noise_square += (gain * sigma) ** 2
            if before is not None:
                # Noise that is used twice cancels in the difference of two steps.
                replayed += 0.5 * candidates.log_likelihoods(excess - before[0], shares - before[1])
            before = (excess, shares)
            iterates.advance(gradients)
        logs = {"map": seen[:, 1:], "last_iterate": self._released(runs, models, noise_square)}
        if mechanism and bound.descent.n_steps > 1:
            logs["replay"] = replayed[:, 1:]
        found = {name: _normalised(log + prior) for name, log in logs.items()}
        return {**found, "distance": np.sqrt(apart[:, 1:].max(axis=1))}

    def _start(
        self, places: Positions, streams: list[Noise], rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Released sums of every run; log-likelihoods of the candidates, up to a constant of it.

        Also squared distances from the first candidate's sums, in units of the noise.
        """
        sums: Any = self._sums
        scale = np.broadcast_to(np.asarray(sums.sigma), self._tables.shape[1:])
        noisy = scale > 0.0
        points = (self._tables - self._tables[0])[:, noisy] / scale[noisy]
        released = np.empty((len(places), *scale.shape))
        logs = np.empty((len(places), len(points)))
        for run, place in enumerate(places):
            if streams:
                released[run] = streams[run](self._tables[place], scale)
            else:
                released[run] = self._tables[place] + scale * rng.standard_normal(scale.shape)
            z = (released[run] - self._tables[0])[noisy] / scale[noisy]
            logs[run] = points @ z - 0.5 * np.vecdot(points, points)
        return released, logs, np.vecdot(points, points)

    def _released(self, runs: "_Runs", models: Array, noise_square: Array) -> Array:
        """Approximate log-likelihoods of the candidates, given the released models alone.

        They take the noise of all steps as equal in all directions, and as not reduced by later
        steps.
        """
        centre = models.mean(axis=0)
        points = (models - centre).reshape(len(models), -1)
        released = (runs.released(self._bound.constant) - centre).reshape(len(noise_square), -1)
        inner = released @ points.T - 0.5 * np.vecdot(points, points)
        return inner / noise_square[:, None]


class _Runs:
    """Descents that share a whitening map, with the known records and candidates mapped by it."""

    def __init__(
        self,
        problem: PrivateProblem,
        left_out: Positions,
        rows: NDArray[np.floating],
        codes: Positions,
        begun: list[Initialisation],
    ) -> None:
        self.bound = begun[0].bound
        self._alpha = problem.alpha
        self._total = total_of(self.bound.weights, problem.n_samples)
        self.known = known_gradients(problem, begun[0], left_out)
        weights = problem.loss_row_weights
        own = None if weights is None else weights[left_out]
        self.candidates = Candidates(rows, codes, problem.norm_bound, begun[0], own, problem.domain)

    def from_here(self, begun: list[Initialisation]) -> "_Runs":
        """Set the runs to these starts, before their first step."""
        self._begun = begun
        thetas = np.stack([run.theta for run in begun])
        self.iterates = Iterates(len(begun), self.bound, self._alpha, self.known.dtype, thetas)
        return self

    def noiseless(self, residuals: Array, places: Positions) -> Array:
        """Mean gradients, for each run with the candidate that ``places`` names."""
        added = self.candidates.gradients(residuals, places)
        return self.known(self.iterates.thetas) + added / self._total

    def released(self, constant: float) -> Array:
        """Released parameters, for rows where they were, augmented by the constant."""
        pairs = zip(self._begun, self.iterates.released(), strict=True)
        found = np.stack([run.parameters(theta) for run, theta in pairs])
        if constant > 0.0:
            found[:, :, -1] /= constant
        return found


def transcript_log_posterior(
    head: Any,
    X_known: ArrayLike,
    y_known: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    prior: ArrayLike | None = None,
) -> Array:
    """How probable each candidate is as the missing record, given a kept transcript.

    Parameters
    ----------
    head : estimator
        Fitted with ``GradientPerturbation(keep_transcript=True)``.
    X_known : array-like of shape (n_samples - 1, n_features)
        Every other record.
    y_known : array-like of shape (n_samples - 1,)
        Their labels.
    X : array-like of shape (n_candidates, n_features)
        Candidates.
    y : array-like of shape (n_candidates,)
        Their labels.
    prior : array-like of shape (n_candidates,), optional
        What the attacker believes beforehand; uniform by default.

    Returns
    -------
    ndarray of shape (n_candidates,)
        Log-posterior, normalised.

    Raises
    ------
    ValueError
        If the head keeps no transcript, was fitted with owners or weights, or the records are not
        one less than it was fitted on.
    """
    if not hasattr(head, "transcript_"):
        raise ValueError(
            "head keeps no transcript_; fit it with GradientPerturbation(keep_transcript=True)."
        )
    if head.release_.weights is not None:
        raise ValueError(
            "head was fitted with owners or weights, which this function does not take; use "
            "ReconstructionAuditor."
        )
    model = ReleasedModel(head)
    known, (rows, codes) = model.on(X_known, y_known), model.coded(X, y)
    transcript, bound = head.transcript_, head.release_.bound
    n_samples = head.release_.n_samples
    if len(known.X) != n_samples - 1:
        raise ValueError(
            f"X_known has {len(known.X)} records, but the head was fitted on {n_samples}: pass all "
            "of them but one."
        )
    begun = transcript.initialisation(bound)
    candidates = Candidates(
        rows[:, None], codes[:, None], known.norm_bound, begun, domain=known.domain
    )
    log = np.zeros(len(rows))
    if bound.start is not None:
        # A copy of a known record marks the place of the missing one.
        whole = known.with_rows(
            np.concatenate([known.X, known.X[:1]]), np.concatenate([known.codes, known.codes[:1]])
        )
        sums = StatisticsPerturbation().neighbours(whole, Promise(bound.start))
        scale = np.asarray(sums.sigma)
        noisy = scale > 0.0
        tables = sums.models(n_samples - 1, rows, codes)
        z = (transcript.start - tables)[:, noisy] / scale[noisy]
        log -= 0.5 * np.vecdot(z, z)
    size = max(1, _RUN_VALUES // bound.step_values)
    with SINGLE_BLAS_THREAD:
        gradients = mean_gradient(known, begun, total=float(n_samples))
        for i in range(0, bound.descent.n_steps, size):
            steps = slice(i, i + size)
            thetas, sigma = transcript.iterates[steps], transcript.sigma[steps, None, None]
            excess = (transcript.gradients[steps] - gradients(thetas)) / sigma
            shares = candidates.residuals(thetas) / (n_samples * sigma[:, :, 0])
            log += candidates.log_likelihoods(excess, shares).sum(axis=0)
    with np.errstate(divide="ignore"):
        log += np.log(check_prior(prior, len(log)))
    return _normalised(log[None])[0]


def known_gradients(problem: PrivateProblem, begun: Initialisation, left_out: Any) -> MeanGradient:
    """What all records except those left out add to the mean gradient of all records."""
    total = total_of(begun.bound.weights, problem.n_samples)
    return mean_gradient(problem.without(left_out), begun, total=total)


def _normalised(logs: Array) -> Array:
    return logs - logsumexp(logs, axis=1, keepdims=True)
