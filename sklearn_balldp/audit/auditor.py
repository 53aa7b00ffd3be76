"""ReconstructionAuditor: fit a head, then attack it as an informed adversary would."""

import numbers
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from ..heads.base import BaseBallDPClassifier, Problem, check_option, check_positive
from ..policy.adjacency import ROUNDING, clip_entries, project_onto_ball
from .certificates import check_prior, success_interval
from .supports import STRATEGIES, Support, draw_supports, duplicates
from .trials import Setting, SupportAudit, audit_support, hidden_records, simulated_trials

#: Probability, at most, that one attack convicts a release which keeps its certificate.
FALSE_ALARM = 1e-6
# Keeps the auditor's stream apart from that of a head with the same seed.
_STREAM = int.from_bytes(b"audit", "big")


def _estimator_has(name: str) -> Callable[[Any], bool]:
    """Whether the (fitted) estimator has a method, for ``available_if``."""

    def check(auditor: "ReconstructionAuditor") -> bool:
        getattr(getattr(auditor, "estimator_", auditor.estimator), name)
        return True

    return check


class FailedGuaranteeWarning(UserWarning):
    """An audit contradicts the guarantee that a release states."""


class ReconstructionAuditor(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Fit a Ball-DP head and measure what an informed adversary reconstructs from it.

    For each support, one training record (the anchor) is taken out and ``n_candidates`` records
    near it, that were not trained on, take its place in turn. The adversary knows every other
    record, the candidates and the law of the noise, and names the candidate of largest posterior
    probability. The success rate over independent noise is compared with blind guessing and with
    every certificate that applies.

    Audit results are noiseless functions of private records: for their owner, not for
    publication. They stay on the auditor; ``estimator_`` alone is what may be published.

    Parameters
    ----------
    estimator : estimator
        A Ball-DP head; a Pipeline whose last step is one (its transformers run once); or either
        in a ``FrozenEstimator``, which is audited as released, without refitting.
    n_candidates : int, default=10
        Candidates of a support, each of which is the hidden record in turn.
    n_supports : int, default=4
        Supports, around different random training records.
    support : {"farthest", "random", "nearest"}, default="farthest"
        How candidates are chosen within the ball; "farthest" favours the attack.
    prior : array-like of shape (n_candidates,) or None, default=None
        The adversary's prior over candidates; None is uniform. Hidden records are drawn from it.
    eta : float, default=0.0
        A guess within this distance of the hidden record succeeds, in the release's metric.
    confidence : float, default=0.95
        Coverage of the intervals.
    n_draws : int, default=1
        Independent noise draws for every hidden record.
    n_repeats : int, default=1
        Independent repetitions with supports of their own: the paper's setup seeds.
    radius : float or None, default=None
        Distance of the candidates from the anchor, in the release's metric; certificates are
        stated at it. None is the release's own radius.
    candidate_labels : {"same", "any"}, default="same"
        Whether candidates share the anchor's label. "any" is for releases that protect labels:
        where counts are public, the adversary knows the missing label.
    holdout : float, default=0.2
        Share of the training rows kept for candidates when ``X_public`` is not given; the head
        is then fitted on the others.
    noise : {"simulated", "mechanism"}, default="simulated"
        "simulated": noise of the scale that the release states, drawn in the span of the
        candidate models. "mechanism": every trial is a release by the head's own sampler, which
        also finds noise that is reused from release to release or from block to block; slower.
    n_jobs : int or None, default=None
        Threads over supports.
    random_state : None, int, Generator or RandomState, default=None
        Draws hold-out, supports and simulated noise. It never seeds the released model.

    Attributes
    ----------
    estimator_ : estimator
        The fitted (or frozen) model, free of audit results.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    report_ : DataFrame
        One row a trial: repeat, support, hidden record and guess (positions among the support's
        candidates), whether the guess succeeded, and the posterior of the truth. With
        ``noise="mechanism"`` also whether attacks that assume reused noise succeeded.
    supports_ : DataFrame
        One row a support: anchor (position in ``X``), label, rows in its ball, candidates
        (positions in the public or, without one, the training rows), kappa, success rate, largest
        distance between a candidate's model and the anchor's in units of the noise, and bounds.
    success_rate_ : float
        Share of trials that succeeded.
    success_interval_ : dict
        "clopper_pearson": exact binomial interval of these supports' success probability.
        "seed_first": t interval over repeats (over supports when ``n_repeats=1``), which includes
        how supports vary.
    baseline_ : float
        Success probability kappa of the best blind guess.
    certificate_ : Series
        Upper bounds on the success probability, means over supports: "dp", "rdp", "direct" as the
        release states them; "anchor", "ball" (reference: centre of a small enclosing ball) and
        "support" from the candidate models; "bayes", the best attack's success by simulation.
        "support" is missing for ``eta > 0``.
    guarantee_holds_ : bool
        False when an exact test (level 1e-6, so that searches of many fits raise no false alarm)
        puts the success of an attack above the direct certificate, or when candidate models lie
        further from the anchor's than the release's sensitivity allows.
    n_passed_over_ : int
        Anchors that had too few candidates.
    n_features_in_ : int
        Number of features, where ``estimator_`` has it.
    feature_names_in_ : ndarray
        Feature names, where ``estimator_`` has them.

    Warns
    -----
    FailedGuaranteeWarning
        If ``guarantee_holds_`` is False.

    References
    ----------
    Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
    Noise" (the audit, its supports and bounds); the ball at the enclosing centre and the Bayes
    value are this package's.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, ReconstructionAuditor
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.6)
    >>> auditor = ReconstructionAuditor(head, n_draws=10, random_state=0).fit(normalize(X), y)
    >>> auditor.baseline_
    0.1
    >>> bool(auditor.success_rate_ < auditor.certificate_["direct"])
    True
    """

    def __init__(
        self,
        estimator,
        *,
        n_candidates=10,
        n_supports=4,
        support="farthest",
        prior=None,
        eta=0.0,
        confidence=0.95,
        n_draws=1,
        n_repeats=1,
        radius=None,
        candidate_labels="same",
        holdout=0.2,
        noise="simulated",
        n_jobs=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.n_candidates = n_candidates
        self.n_supports = n_supports
        self.support = support
        self.prior = prior
        self.eta = eta
        self.confidence = confidence
        self.n_draws = n_draws
        self.n_repeats = n_repeats
        self.radius = radius
        self.candidate_labels = candidate_labels
        self.holdout = holdout
        self.noise = noise
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        for name, least in (("n_candidates", 2), ("n_supports", 1), ("n_draws", 1),
                            ("n_repeats", 1)):  # fmt: skip
            value = getattr(self, name)
            if not (isinstance(value, numbers.Integral) and value >= least):
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
        check_option("support", self.support, STRATEGIES)
        check_option("candidate_labels", self.candidate_labels, ("same", "any"))
        check_option("noise", self.noise, ("simulated", "mechanism"))
        if self.radius is not None:
            check_positive("radius", self.radius, " or None for the release's radius")
        for name in ("confidence", "holdout"):
            value = getattr(self, name)
            if not (isinstance(value, numbers.Real) and 0.0 < value < 1.0):
                raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
        if not (isinstance(self.eta, numbers.Real) and self.eta >= 0.0):
            raise ValueError(f"eta must be a non-negative number, got {self.eta!r}.")
        check_prior(self.prior, self.n_candidates)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
    ) -> "ReconstructionAuditor":
        """Fit the estimator (unless it is frozen) and audit it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records, as the estimator takes them. For a frozen estimator: the records it
            was fitted on, or all of them but one (the known records, to which each candidate is
            added).
        y : array-like of shape (n_samples,)
            Their labels.
        X_public : array-like of shape (n_public, n_features), optional
            Records that were not trained on, to draw candidates from. Without it a share
            ``holdout`` of ``X`` is kept back from training; a frozen estimator needs it.
        y_public : array-like of shape (n_public,), optional
            Their labels.

        Returns
        -------
        self
            The auditor.

        Raises
        ------
        ValueError
            If a parameter or the data is invalid, the estimator is not a Ball-DP head, or an
            anchor has too few candidates. Nothing is fitted then.
        """
        self._forget()
        try:
            for name, value in self._fit(X, y, X_public, y_public).items():
                setattr(self, name, value)
        except BaseException:
            self._forget()
            raise
        if not self.guarantee_holds_:
            warnings.warn(
                "FAILED GUARANTEE: this audit contradicts what the release states. Do not publish "
                "the model; compare success_interval_ and supports_ with certificate_.",
                FailedGuaranteeWarning,
                stacklevel=2,
            )
        return self

    def _forget(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("__")]:
            delattr(self, name)

    def _fit(
        self, X: ArrayLike, y: ArrayLike, X_public: ArrayLike | None, y_public: ArrayLike | None
    ) -> dict[str, Any]:
        self._check_parameters()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        y = column_or_1d(y, warn=True)
        X, y = indexable(X, y)
        if (X_public is None) != (y_public is None):
            raise ValueError("X_public and y_public go together: pass both or neither.")
        rng = _stream(self.random_state)
        transformers, head, frozen = _parts(self.estimator)
        position = np.arange(len(y))
        pool_position = None
        if X_public is None:
            if frozen:
                raise ValueError(
                    "X_public=None: a frozen estimator was fitted on all of X, so candidates must "
                    "come from elsewhere; pass X_public and y_public."
                )
            public_labels = not head.protect_labels
            position, pool_position = _hold_out(y, float(self.holdout), public_labels, rng)
            X_public, y_public = _take(X, pool_position), y[pool_position]
            X, y = _take(X, position), y[position]
        X_public, y_public = indexable(X_public, column_or_1d(y_public, warn=True))

        if frozen:
            check_is_fitted(head)
            X = X if transformers is None else transformers.transform(X)
        elif transformers is not None:
            transformers = clone(transformers)
            X = transformers.fit_transform(X, y)
        if transformers is not None:
            X_public = transformers.transform(X_public)
        if not frozen:
            head = clone(head)
            # Rows held out of the private ones are no public reference for a radius policy.
            reference = (
                {} if pool_position is not None else {"X_public": X_public, "y_public": y_public}
            )
            head.fit(X, y, **reference)

        setting = self._setting(head, X, y)
        pool, pool_codes, kept = _pool(head, X_public, y_public)
        supports, n_passed_over = self._draw_supports(setting, pool, pool_codes, rng)
        results = self._audit(setting, [support for _, support in supports], rng)

        summaries, trials = [], []
        for i, ((repeat, support), result) in enumerate(zip(supports, results, strict=True)):
            candidates = kept[support.positions]
            if pool_position is not None:
                candidates = pool_position[candidates]
            place = {
                "repeat": repeat,
                "support": i,
                "anchor": int(position[support.anchor]),
                "label": head.classes_[setting.problem.codes[support.anchor]],
                "candidates": tuple(candidates.tolist()),
            }
            summaries.append({**place, **result.summary})
            trials.append(_placed(result.trials, repeat, i))
        table, report = pd.DataFrame(summaries), pd.concat(trials, ignore_index=True)

        fitted: dict[str, Any] = {
            "estimator_": self.estimator if frozen else _joined(self.estimator, transformers, head),
            "classes_": head.classes_,
            "report_": report,
            "supports_": table,
            "n_passed_over_": n_passed_over,
            "success_rate_": float(report["success"].mean()),
            "baseline_": float(table["kappa"].mean()),
            "certificate_": _certificate(table),
            "_supports_": results,
        }
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted["estimator_"], name):
                fitted[name] = getattr(fitted["estimator_"], name)
        unit = "repeat" if self.n_repeats > 1 else "support"
        fitted["success_interval_"] = {
            "clopper_pearson": _binomial(report["success"], self.confidence),
            "seed_first": _t_interval(report.groupby(unit)["success"].mean(), self.confidence),
        }
        stated = fitted["certificate_"]["direct"]
        convicted = any(
            _convicts(report[name].dropna(), stated)
            for name in ("success", "replay", "transfer")
            if name in report
        )
        further = (table["distance"] > table["rho"] * (1.0 + ROUNDING)).any()
        fitted["guarantee_holds_"] = not (convicted or bool(further))
        return fitted

    def _setting(self, head: BaseBallDPClassifier, X: Any, y: NDArray[Any]) -> Setting:
        release = head.release_
        if self.candidate_labels == "any" and release.labels != "protected":
            raise ValueError(
                "candidate_labels='any': labels and counts of this release are public, so the "
                "adversary knows the missing label; use 'same', or protect_labels=True."
            )
        problem, left_in = _completed(head, head._known(X, y))
        labels = "protected" if self.candidate_labels == "any" else "public"
        return Setting(
            head=head,
            problem=problem,
            left_in=left_in,
            neighbours=head._neighbours(problem, release.bound),
            guarantee=release.guarantee(self.radius, labels),
            weights=check_prior(self.prior, self.n_candidates),
            uniform=self.prior is None,
            eta=float(self.eta),
            n_draws=int(self.n_draws),
            mechanism=self.noise == "mechanism",
        )

    def _draw_supports(
        self,
        setting: Setting,
        pool: NDArray[np.floating],
        pool_codes: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> tuple[list[tuple[int, Support]], int]:
        """Supports of every repeat, with its number, and how many anchors were passed over."""
        problem = setting.problem
        drawn: list[tuple[int, Support]] = []
        n_passed_over = 0
        for repeat in range(self.n_repeats):
            supports, passed_over = draw_supports(
                problem.X,
                problem.codes,
                pool,
                pool_codes,
                setting.guarantee.radius,
                anchors=_anchors(setting),
                norm_bound=problem.norm_bound,
                n_supports=self.n_supports,
                n_candidates=self.n_candidates,
                strategy=self.support,
                random_state=rng,
                metric=setting.head.release_.metric,
                any_label=self.candidate_labels == "any",
            )
            drawn += [(repeat, support) for support in supports]
            n_passed_over += passed_over
        return drawn, n_passed_over

    def _audit(
        self, setting: Setting, supports: list[Support], rng: np.random.Generator
    ) -> list[SupportAudit]:
        jobs = [
            joblib.delayed(audit_support)(setting, support, stream)
            for support, stream in zip(supports, rng.spawn(len(supports)), strict=True)
        ]
        threads = joblib.Parallel(self.n_jobs, prefer="threads", return_as="generator")
        # Shown on a terminal, and only for audits of more than a few seconds.
        progress = tqdm(
            threads(jobs),
            total=len(jobs),
            desc="audit",
            unit="support",
            delay=3.0,
            disable=None,
            leave=False,
        )
        return list(progress)

    def attack(self, n_trials: int, random_state: Any = None) -> pd.DataFrame:
        """Further trials on the fitted supports, with fresh simulated noise.

        Parameters
        ----------
        n_trials : int
            Number of trials, spread evenly over supports.
        random_state : None, int, Generator or RandomState, default=None
            Draws hidden records and noise.

        Returns
        -------
        DataFrame
            As ``report_``.
        """
        check_is_fitted(self)
        if not (isinstance(n_trials, numbers.Integral) and n_trials >= 1):
            raise ValueError(f"n_trials must be a positive integer, got {n_trials!r}.")
        rng = _stream(random_state)
        weights = check_prior(self.prior, self.n_candidates)
        shares = np.diff(np.linspace(0, n_trials, len(self._supports_) + 1).astype(int))
        frames = []
        for i, (result, share) in enumerate(zip(self._supports_, shares, strict=True)):
            target = hidden_records(weights, self.prior is None, int(share), rng)
            trials = simulated_trials(result.points, target, weights, result.near, rng)
            frames.append(_placed(trials, int(self.supports_["repeat"].iloc[i]), i))
        return pd.concat(frames, ignore_index=True)

    def plot(self, **kwargs: Any) -> Any:
        """Draw the success rate with its interval, blind guessing and the certificates.

        Parameters
        ----------
        **kwargs
            Passed to :meth:`~sklearn_balldp.audit.displays.ReconstructionDisplay.plot`.

        Returns
        -------
        ReconstructionDisplay
        """
        from .displays import ReconstructionDisplay

        return ReconstructionDisplay.from_estimator(self).plot(**kwargs)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels that the fitted estimator predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of the fitted estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the fitted estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-probabilities of the fitted estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.estimator_.predict_log_proba(X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.classifier_tags = inner.classifier_tags
        return tags


def neg_success_scorer(auditor: Any, X: Any = None, y: Any = None) -> float:
    """Minus the measured reconstruction success of a fitted auditor, for ``scoring=``.

    Parameters
    ----------
    auditor : ReconstructionAuditor
        Fitted auditor.
    X, y : ignored
        The audit was made in ``fit``.

    Returns
    -------
    float
    """
    return -auditor.success_rate_


def neg_certificate_scorer(auditor: Any, X: Any = None, y: Any = None) -> float:
    """Minus the direct reconstruction certificate of a fitted auditor, for ``scoring=``.

    Parameters
    ----------
    auditor : ReconstructionAuditor
        Fitted auditor.
    X, y : ignored
        The certificate is the release's.

    Returns
    -------
    float
    """
    return -float(auditor.certificate_["direct"])


def _stream(random_state: Any) -> np.random.Generator:
    """A generator apart from the one that a head would make of the same seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31))
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, numbers.Integral) and random_state >= 0:
        return np.random.default_rng([int(random_state), _STREAM])
    raise ValueError(
        "random_state must be None, a non-negative integer, a Generator or a RandomState; got "
        f"{random_state!r}."
    )


def _parts(estimator: Any) -> tuple[Pipeline | None, BaseBallDPClassifier, bool]:
    """Transformers (or None), head, and whether they are frozen."""
    frozen = isinstance(estimator, FrozenEstimator)
    model = estimator.estimator if frozen else estimator
    transformers = None
    if isinstance(model, Pipeline):
        transformers = model[:-1] if len(model.steps) > 1 else None
        model = model.steps[-1][1]
    if not isinstance(model, BaseBallDPClassifier):
        raise ValueError(
            "estimator must be a Ball-DP head, a Pipeline whose last step is one, or either in a "
            f"FrozenEstimator; got {type(model).__name__}."
        )
    return transformers, model, frozen


def _joined(estimator: Any, transformers: Pipeline | None, head: BaseBallDPClassifier) -> Any:
    """The fitted estimator, in the form of the one given."""
    if not isinstance(estimator, Pipeline):
        return head
    steps = [] if transformers is None else list(transformers.steps)
    options = estimator.get_params(deep=False)
    options["steps"] = [*steps, (estimator.steps[-1][0], head)]
    return Pipeline(**options)


def _take(X: Any, position: NDArray[np.intp]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[position]
    if hasattr(X, "shape"):
        return X[position]
    return [X[i] for i in position]


def _hold_out(
    y: NDArray[Any], share: float, by_class: bool, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions to train on and to draw candidates from, a function of labels at most.

    Private labels may not steer the split: a label change would move other records.
    """
    order = rng.permutation(len(y))
    if not by_class:
        n_held = int(share * len(y))
        return np.sort(order[n_held:]), np.sort(order[:n_held])
    held = np.zeros(len(y), dtype=bool)
    codes = np.unique(y[order], return_inverse=True)[1]
    for code in range(codes.max(initial=-1) + 1):
        members = order[codes == code]
        held[members[: int(share * len(members))]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _pool(
    head: BaseBallDPClassifier, X_public: Any, y_public: NDArray[Any]
) -> tuple[NDArray[np.floating], NDArray[np.intp], NDArray[np.intp]]:
    """Distinct public rows inside the ball, codes and positions; unknown labels are left out."""
    known = np.flatnonzero(np.isin(y_public, head.classes_))
    if len(known) == 0:
        raise ValueError("y_public holds no label of the model; pass public rows of its classes.")
    public = head._known(_take(X_public, known), y_public[known])
    rows = project_onto_ball(clip_entries(public.X), public.norm_bound)
    kept = np.flatnonzero(~duplicates(rows, public.codes))
    return rows[kept], public.codes[kept], known[kept]


def _completed(head: BaseBallDPClassifier, problem: Problem) -> tuple[Problem, int | None]:
    """The problem with as many records as the release; a place to fill when one is missing."""
    expected = head.release_.n_samples
    n_samples = len(problem.X)
    if n_samples == expected:
        return problem, None
    if n_samples != expected - 1:
        raise ValueError(
            f"X has {n_samples} records, but the model was fitted on {expected}: pass those "
            "records, or all of them but one."
        )
    X = np.concatenate([problem.X, problem.X[:1]])
    codes = np.concatenate([problem.codes, problem.codes[:1]])
    return replace(problem, X=X, codes=codes), n_samples


def _anchors(setting: Setting) -> NDArray[np.intp]:
    """Positions of the records whose place may be hidden, or that may lie near the missing one."""
    if setting.left_in is None:
        return np.arange(len(setting.problem.X))
    known = setting.problem.codes[: setting.left_in]
    counts = getattr(setting.head, "class_counts_", None)
    if counts is None:
        return np.arange(setting.left_in)
    # Public counts tell the class of the missing record.
    missing = counts - np.bincount(known, minlength=len(counts))
    return np.flatnonzero(known == int(np.argmax(missing)))


def _placed(trials: pd.DataFrame, repeat: int, support: int) -> pd.DataFrame:
    trials.insert(0, "repeat", repeat)
    trials.insert(1, "support", support)
    return trials


def _certificate(supports: pd.DataFrame) -> pd.Series:
    """Mean bounds over supports, from the one that uses least to the one that uses most."""
    bounds = supports.filter(regex="_bound$").mean(skipna=False)
    return bounds.rename(lambda name: name.removesuffix("_bound")).rename("certificate")


def _binomial(success: pd.Series, confidence: float) -> tuple[float, float]:
    return success_interval(float(success.sum()), len(success), confidence)


def _convicts(success: pd.Series, stated: float) -> bool:
    """Whether this many successes are all but impossible at the stated probability."""
    return _binomial(success, 1.0 - 2.0 * FALSE_ALARM)[0] > stated


def _t_interval(means: pd.Series, confidence: float) -> tuple[float, float]:
    """Interval over independent units; uninformative for one unit."""
    if len(means) < 2:
        return 0.0, 1.0
    half = student.isf((1.0 - confidence) / 2.0, len(means) - 1) * means.sem()
    return max(0.0, float(means.mean() - half)), min(1.0, float(means.mean() + half))
