"""ReconstructionAuditor: fit a head, then attack it as an informed adversary would."""

from __future__ import annotations

import copy
import numbers
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, binomtest, norm
from scipy.stats import t as student
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._parameters import (
    Inside,
    NonNegative,
    check_number,
    check_option,
    check_positive,
    check_whole,
)
from .._validation import all_or_nothing, caller_level
from ..heads import Released
from ..heads.inspection import matches, noise_of
from ..mechanisms import drive
from ..pipelines import ByContent
from ..privacy.noise import EXACT_SAMPLER
from ..progress import bar
from ..showing import UP, rounded
from ..verdicts import CANNOT_CHECK, FAIL, FALSE_ALARM, PASS, Check
from .attacks import AuditSetting, SupportAudit, answer_again, audit_support
from .certificates import check_prior
from .displays import ReconstructionDisplay, fitted_auditor
from .noise_tests import ENOUGH, Deviates, deviates_of, noise_checks
from .preparation import PreparedAudit, anchors_of, audit_generator, in_domain, prepare
from .supports import STRATEGIES, Surroundings, draw_supports

if TYPE_CHECKING:
    import pandas as pd

# The attack, the noise of the release, and that of the trials: an honest release fails one of them
# with probability FALSE_ALARM at most.
_LEVEL = FALSE_ALARM / 3.0
# Limit of conversations that are held once more for the test of their noise.
_AGAIN = 50
# Distances of computed models may exceed the sensitivity by their rounding.
_ROUNDING = 1e-6


def _estimator_has(name: str) -> Callable[[Any], bool]:
    """Whether the (fitted) estimator has a method, for ``available_if``."""

    def check(auditor: ReconstructionAuditor) -> bool:
        getattr(getattr(auditor, "estimator_", auditor.estimator), name)
        return True

    return check


class FailedGuaranteeWarning(UserWarning):
    """An audit contradicts the guarantee that a release states."""


@dataclass(eq=False, repr=False)
class ReconstructionAuditor(ByContent, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Fit a Ball-DP head and measure what an informed adversary reconstructs from it.

    The auditor takes out one training record, the *anchor*, and puts each of ``n_candidates``
    nearby records in its place, in turn. Candidates are public, or were held out of training. An
    anchor with its candidates is a *support*. (With ``groups``, all records of one person are taken
    out together.) The attacker knows every other record, the candidates and the distribution of the
    noise, and names the candidate of largest posterior probability. The auditor compares the
    success rate with blind guessing and with every certificate that applies.

    The auditor does not see what lies outside the head: transformers fitted on private rows (they
    are not fitted again for each candidate), a seed that someone else knows (``release_.private``),
    or records so far from all public ones that no anchor is near (``n_anchors_skipped_``).

    Results are computed from private records without noise. They are for the owner of the records,
    and stay on the auditor; only ``estimator_`` may be published.

    Parameters
    ----------
    estimator : estimator
        A Ball-DP head; a Pipeline whose last step is one (its transformers run once); or either
        in a ``FrozenEstimator``, which is audited as released, without refitting.
    n_candidates : int, default=10
        How many records the attacker chooses among: with more, a blind guess is right less often.
    n_supports : int, default=4
        More supports, each around another random training record, show smaller faults and take
        longer.
    support : {"farthest", "random", "nearest"}, default="farthest"
        How candidates are chosen within the ball; "farthest" favours the attack.
    anchors : {"random", "rarest"} or array-like of int, default="random"
        Whose records are attacked. "rarest" takes those of the smallest class, who have most to
        fear where noise follows the counts; an array names positions in ``X``.
    attacker_prior : array-like of shape (n_candidates,) or None, default=None
        Probability of each candidate, which hidden records are drawn from and the attacker knows.
        None makes all equally likely.
    eta : float, default=0.0
        A candidate within this distance of the hidden record, in the release's metric, counts as a
        success. The baseline is then the largest prior mass within twice this distance of one.
    confidence : float, default=0.95
        Coverage of the intervals.
    n_draws : int, default=1
        Noise draws for every hidden record: more narrow the intervals, and take longer.
    radius : float or None, default=None
        Candidates lie within this distance of the anchor, in the release's metric, and certificates
        are computed at it: name it to compare heads fairly. None is the release's radius.
    candidate_labels : {"same", "any"}, default="same"
        Whether candidates share the anchor's label. "any" is for releases that protect labels:
        where counts are public, the attacker knows the missing label anyway.
    holdout : float, default=0.2
        Share of ``X`` that is kept for candidates, and not trained on, without ``X_public``.
    noise : {"simulated", "mechanism"}, default="simulated"
        "simulated" draws the noise of trials from a seeded generator, for mechanisms that ask once
        in the span of the candidates. "mechanism" makes every trial a release by the head's
        sampler: slower, and it tests the noise of all trials too. The noise of the release itself
        is tested in both.
    n_jobs : int or None, default=None
        Threads that the supports are spread over. With ``noise="mechanism"`` a head with a
        generator is audited on one, so that the same seed gives the same audit.
    random_state : None, int, Generator or RandomState, default=None
        Draws the hold-out, the supports and the simulated noise; it never seeds the released model.

    Attributes
    ----------
    estimator_ : estimator
        The fitted (or frozen) model, free of audit results.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    report_ : DataFrame
        One row per trial: support, hidden record and guess (positions among the support's
        candidates), whether the guess succeeded, and the posterior of the truth. The guess uses
        every noisy answer: of a descent, the whole transcript.
    supports_ : DataFrame
        One row per support: anchor (position in ``X``; with ``groups`` one of a person's
        ``n_records``), label, rows in its ball, candidates (positions in the public rows
        or, without those, in the training rows), kappa, success rate, the largest distance between
        a candidate's model and the anchor's in units of the noise, and bounds.
    success_rate_ : float
        Share of trials that succeeded.
    success_by_class_ : DataFrame
        By the anchor's label: anchors, trials, success rate, and its exact binomial interval.
    success_interval_ : dict
        "clopper_pearson": exact binomial interval of these supports' success probability.
        "seed_first": t interval over supports, which includes how they vary; zero width means that
        all agree, not certainty.
    baseline_ : float
        Success probability kappa of the best blind guess among the candidates.
    certificate_ : Series
        Upper bounds on the success probability, each a mean over supports. "dp", "rdp" and "direct"
        follow from the release. "anchor", "ball" (from the centre of a small ball) and "support"
        are computed from the candidate models: they are missing for noisy gradients, where they
        depend on the path, and "support" for ``eta > 0``. "bayes" is no bound: it estimates the
        best attack's success, by the mean of its exact probability in every trial.
    guarantee_holds_ : bool
        False when an exact test puts the success of the attack above the direct certificate, when
        candidates' values lie further from the anchor's than the release's sensitivity allows, or
        when a check of the noise fails. An honest release fails with probability 1e-6 at most.
    noise_ : DataFrame
        Checks of the release's noise, and with ``noise="mechanism"`` of the trials' (name, verdict
        "PASS", "FAIL" or "CANNOT CHECK", what was found, what it rests on). Where a fit has fewer
        than 5000 noisy values, the same conversation is held again with fresh noise until there are
        so many: nothing of it leaves the auditor. Of a frozen head only the noise that it holds is
        tested. The checks find mistakes, a seed among them; they certify nothing.
    refutation_threshold_ : float
        How high the success rate must be before this many trials can prove the guarantee wrong;
        above 1 if they never can.
    failures_ : tuple of str
        What failed, in words; empty while ``guarantee_holds_``.
    n_anchors_skipped_ : int
        Anchors drawn that had too few candidates, and so were not audited.
    training_rows_ : ndarray
        Positions in ``X`` of the records that the model was fitted on (not those held out).
    n_features_in_, feature_names_in_ : int, ndarray
        Where ``estimator_`` has them.

    Warns
    -----
    FailedGuaranteeWarning
        If ``guarantee_holds_`` is False.
    PooledPreprocessingWarning
        If a step before the head learns from the private rows, or is not known to map each row by
        itself.

    References
    ----------
    Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
    Noise" (the audit, its supports and bounds); the ball at the enclosing centre is this package's.

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

    In a search, beside accuracy (greater is better, so the measured success is negated):

    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_balldp.audit import neg_certificate_scorer, neg_success_scorer
    >>> scoring = {"certificate": neg_certificate_scorer, "reconstruction": neg_success_scorer}
    >>> scoring["accuracy"] = "accuracy"
    >>> grid = {"estimator__epsilon": [2.0, 8.0]}
    >>> search = GridSearchCV(auditor, grid, scoring=scoring, refit="accuracy", cv=2)
    >>> search = search.fit(normalize(X), y)
    >>> bool((search.cv_results_["mean_test_certificate"] < -0.1).all())
    True
    """

    estimator: Any
    _: KW_ONLY
    n_candidates: int = 10
    n_supports: int = 4
    support: str = "farthest"
    anchors: Any = "random"
    attacker_prior: Any = None
    eta: float = 0.0
    confidence: float = 0.95
    n_draws: int = 1
    radius: float | None = None
    candidate_labels: str = "same"
    holdout: float = 0.2
    noise: str = "simulated"
    n_jobs: int | None = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        for name, smallest in {"n_candidates": 2, "n_supports": 1, "n_draws": 1}.items():
            check_whole(name, getattr(self, name), smallest)
        check_option("support", self.support, STRATEGIES)
        check_option("candidate_labels", self.candidate_labels, ("same", "any"))
        check_option("noise", self.noise, ("simulated", "mechanism"))
        if self.radius is not None:
            check_positive("radius", self.radius, " or None for the release's radius")
        check_number("confidence", self.confidence, Inside)
        check_number("holdout", self.holdout, Inside)
        check_number("eta", self.eta, NonNegative)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
        *,
        X_examples: ArrayLike | None = None,
        y_examples: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> ReconstructionAuditor:
        """Fit the estimator (unless it is frozen) and audit it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The private records, as the estimator takes them. For a frozen estimator pass the
            records that it was fitted on. The auditor checks their number, the public class
            counts, and the noise in the weights.
        y : array-like of shape (n_samples,)
            Their labels.
        X_public : array-like of shape (n_public, n_features), optional
            Records that were not trained on, to draw candidates from, and for a
            :class:`.RadiusPolicy` that chooses from public rows; they are no examples of the fit.
            Without it a share ``holdout`` of ``X`` is kept back from training; a frozen estimator
            needs it. Routed through a search it must differ from ``X`` in length, or scikit-learn
            slices it.
        y_public : array-like of shape (n_public,), optional
            Their labels.
        X_examples : array-like of shape (n_examples, n_features), optional
            Public examples, which the head's ``fit`` takes as ``X_public``. The attacker's prior is
            one with these at hand. A frozen estimator holds its own.
        y_examples : array-like of shape (n_examples,), optional
            Their labels.
        groups : array-like of shape (n_samples,), optional
            Owner of each record, as the head's ``fit`` takes it. Candidates are then versions of
            all records of one person.

        Returns
        -------
        self
            The auditor. A ValueError leaves nothing fitted: if a parameter or the data is invalid,
            or too few anchors have enough candidates.
        """
        given = X, y, X_public, y_public, X_examples, y_examples, groups
        with all_or_nothing(self):
            self.__dict__.update(self._fit(given))
        if self.failures_:
            warnings.warn(
                f"FAILED GUARANTEE: {'; '.join(self.failures_)}. The model does not keep what its "
                "record says; summary() shows the figures. Find the fault, and start over with a "
                "fresh budget: fitting again because of an audit gives records away.",
                FailedGuaranteeWarning,
                stacklevel=caller_level(),
            )
        return self

    def _fit(self, given: tuple[Any, ...]) -> dict[str, Any]:
        import pandas as pd

        self._check_parameters()
        prior = check_prior(self.attacker_prior, self.n_candidates, "attacker_prior")
        rng = audit_generator(self.random_state)
        prepared = prepare(self.estimator, given, float(self.holdout), rng)
        setting = self._setting(prepared, prior)
        head, codes = prepared.head, prepared.records.codes
        around = Surroundings(
            in_domain(head, prepared.records.X),
            codes,
            prepared.pool,
            setting.at_radius.radius,
            n_candidates=self.n_candidates,
            strategy=self.support,
            metric=head.release_.metric,
            any_label=self.candidate_labels == "any",
            owners=prepared.owners,
        )
        anchors = anchors_of(prepared, self.anchors)
        supports, n_skipped = draw_supports(around, anchors, self.n_supports, rng)
        seeds = rng.integers(2**63, size=len(supports))
        jobs = [
            joblib.delayed(audit_support)(setting, support, np.random.default_rng(int(seed)))
            for support, seed in zip(supports, seeds, strict=True)
        ]
        # Threads would share a generator of the head, in an order that varies.
        shared = not isinstance(head.random_state, (numbers.Integral, type(None)))
        n_jobs = 1 if setting.sampler and shared else self.n_jobs
        threads = joblib.Parallel(n_jobs, prefer="threads", return_as="generator")
        results = list(bar(threads(jobs), "audit", "support", len(jobs)))

        table = pd.DataFrame(
            {
                "support": i,
                "anchor": int(prepared.position[support.anchor]),
                "label": head.classes_[codes[support.anchor]],
                "n_records": len(support.places),
                "candidates": _positions(prepared.pool_positions[support.positions]),
                **result.summary,
            }
            for i, (support, result) in enumerate(zip(supports, results, strict=True))
        )
        trials = [result.trials.assign(support=i) for i, result in enumerate(results)]
        report = pd.concat(trials, ignore_index=True)
        report = report[["support", *report.columns.drop("support")]]
        bounds = table.filter(regex="_bound$").mean(skipna=False).rename("certificate")
        certificate = bounds.rename(lambda name: name.removesuffix("_bound"))
        success = report["success"]
        rates = success.groupby(report["support"]).mean()
        refuting = refuting_successes(len(success), certificate["direct"])
        failures = []
        if success.sum() >= refuting:
            failures.append("the MAP attack succeeds more often than the direct certificate allows")
        if (table["distance"] > table["mu"] * (1.0 + _ROUNDING)).any():
            failures.append("candidates' values lie further apart than the sensitivity allows")
        checks = _noise_checks(prepared, results)
        verdicts = {check.verdict for check in checks}
        report.attrs["noise"] = next(v for v in (FAIL, CANNOT_CHECK, PASS) if v in verdicts)
        # A warning quotes these texts, so they hold no number that depends on the records.
        failures += [f"the check of the {c.name} failed" for c in checks if c.verdict == FAIL]
        kappa = table["kappa"]
        fitted: dict[str, Any] = {
            "estimator_": prepared.estimator,
            "classes_": head.classes_,
            "report_": report,
            "supports_": table,
            "n_anchors_skipped_": n_skipped,
            "success_rate_": float(success.mean()),
            "success_by_class_": _by_class(table, report, self.confidence),
            "success_interval_": {
                "clopper_pearson": _binomial(success, self.confidence),
                "seed_first": _t_interval(rates, self.confidence),
            },
            # A mean of equal numbers may differ from them.
            "baseline_": float(kappa.iloc[0] if kappa.nunique() == 1 else kappa.mean()),
            "training_rows_": prepared.position,
            "certificate_": certificate,
            "noise_": pd.DataFrame([vars(check) for check in checks]),
            "refutation_threshold_": refuting / len(success),
            "failures_": tuple(failures),
            "guarantee_holds_": not failures,
        }
        model, names = prepared.estimator, ("n_features_in_", "feature_names_in_")
        return fitted | {name: getattr(model, name) for name in names if hasattr(model, name)}

    def _setting(self, prepared: PreparedAudit, prior: NDArray[np.float64]) -> AuditSetting:
        release, any_label = prepared.released.release, self.candidate_labels == "any"
        if any_label and release.labels != "protected":
            raise ValueError(
                "candidate_labels='any': labels and counts of this release are public, so the "
                "adversary knows the missing label; use 'same', or protect_labels=True."
            )
        labels = "protected" if any_label else "public"
        # On the original, trials would advance a generator that the released model holds.
        own = self.noise == "mechanism"
        sampler = partial(noise_of, copy.deepcopy(prepared.head)) if own else None
        return AuditSetting(
            prepared=prepared,
            at_radius=release.guarantee(self.radius, labels),
            of_candidates=release.guarantee_of_candidates(self.radius, labels),
            prior=prior,
            uniform=self.attacker_prior is None,
            eta=float(self.eta),
            n_draws=int(self.n_draws),
            sampler=sampler,
        )

    def summary(self) -> str:
        """What the audit found, and the smallest fault that it could have found, in words.

        Returns
        -------
        str
            Lines of text, for the owner of the records.
        """
        check_is_fitted(self)
        low, high = self.success_interval_["clopper_pearson"]
        n_trials, needed = len(self.report_), self.refutation_threshold_
        lines = [
            f"attack: success {self.success_rate_:.3f} ({low:.3f} to {high:.3f}) in {n_trials} "
            f"trials; blind guess {self.baseline_:.3f}, certificate "
            f"{rounded(self.certificate_['direct'], 3, UP)}"
        ]
        if needed > 1.0:
            lines.append(f"  {n_trials} trials can convict nobody: raise n_draws or n_supports")
        else:
            mu = norm.ppf(min(needed, 1.0 - 1e-15)) - norm.ppf(self.baseline_)
            share = min(1.0, float(self.supports_["mu"].max()) / mu)
            lines.append(
                f"  it convicts from a success of {needed:.3f} on: only noise below {share:.2f} of "
                "the stated scale can lead to that"
            )
        if len(self.success_by_class_) > 1:
            worst = self.success_by_class_.sort_values("success").iloc[-1]
            label = np.asarray(worst.name).tolist()
            lines.append(
                f"  most of all in class {label}: {worst['success']:.3f} "
                f"({worst['low']:.3f} to {worst['high']:.3f})"
            )
        rows = self.noise_.itertuples(index=False)
        lines += [f"noise: {row.verdict:<12} {row.name}: {row.found}" for row in rows]
        lines += [f"FAILED: {failure}" for failure in self.failures_]
        if not self.failures_:
            lines.append("nothing was refuted; no audit certifies a release")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> ReconstructionDisplay:
        """Draw the success rate with its interval, blind guessing and the direct certificate.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.

        Returns
        -------
        ReconstructionDisplay
            Drawn, with ``ax_`` and ``figure_``.
        """
        return ReconstructionDisplay.from_estimator(self).plot(ax=ax)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels that the fitted estimator predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: ArrayLike) -> NDArray[np.floating]:
        """Scores of the fitted estimator, in the shape that it gives them."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: ArrayLike) -> NDArray[np.floating]:
        """Probabilities of the fitted estimator, in the shape that it gives them."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.floating]:
        """Log-probabilities of the fitted estimator, in the shape that it gives them."""
        check_is_fitted(self)
        return self.estimator_.predict_log_proba(X)

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
        Fitted, or a Pipeline that ends in one.
    X, y : ignored
        The audit was made in ``fit``.

    Returns
    -------
    float
        From -1 to 0.
    """
    return -fitted_auditor(auditor).success_rate_


def neg_certificate_scorer(auditor: Any, X: Any = None, y: Any = None) -> float:
    """Minus the direct reconstruction certificate of a fitted auditor, for ``scoring=``.

    Parameters
    ----------
    auditor : ReconstructionAuditor
        Fitted auditor, or a Pipeline that ends in one.
    X, y : ignored
        The certificate is the release's.

    Returns
    -------
    float
        Between -1 and 0.
    """
    return -float(fitted_auditor(auditor).certificate_["direct"])


def _noise_checks(prepared: PreparedAudit, results: list[SupportAudit]) -> list[Check]:
    """Whether what was released carries the noise that its record states."""
    released, records, record = prepared.released, prepared.records, prepared.released.release
    same = matches(record, prepared.estimator) and _follows(released)
    result = "digest as in the record" if same else "not those of the record"
    checks = [Check("parameters", PASS if same else FAIL, result, "digest, and answers again")]
    exact = record.sampler == EXACT_SAMPLER
    checks.append(Check("sampler", PASS if exact else FAIL, record.sampler, "the record"))
    trials = Deviates()
    for z in (z for result in results for run in result.deviates for z in run):
        trials.add(record.n_features, z, np.zeros(z.shape, dtype=bool))
    if trials.size:
        named = noise_checks(trials, level=_LEVEL)
        checks += [replace(check, name=f"trials' {check.name}") for check in named]
    noise = deviates_of(released, records)
    if isinstance(noise, Check):
        return [*checks, noise]
    # A seed, which fails above, would draw the same noise again.
    for n_again in range(_AGAIN if exact and not prepared.frozen else 0):
        if n_again and noise.size >= ENOUGH:
            break
        again = deviates_of(answer_again(released, records, noise_of(prepared.head)), records)
        if isinstance(again, Check):
            break
        noise.join(again)
    return checks + noise_checks(noise, level=_LEVEL)


def _follows(released: Released) -> bool:
    """Whether what was released follows from the noisy answers, where these were kept."""
    if not released.answers:
        return True
    answers = iter(released.answers)
    values = np.asarray(drive(released.conversation(), lambda _: next(answers)))
    scale = 1e-9 * float(np.abs(values).max(initial=0.0))
    return values.shape == released.values.shape and bool(
        np.allclose(values, released.values, rtol=1e-9, atol=scale)
    )


def _by_class(supports: pd.DataFrame, report: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Success at the anchors of each label, with its interval."""
    import pandas as pd

    labels, anchors = report["support"].map(supports["label"]), supports["label"].value_counts()
    rows = [
        (label, anchors[label], len(success), success.mean(), *_binomial(success, confidence))
        for label, success in report["success"].groupby(labels)
    ]
    columns = ["label", "anchors", "trials", "success", "low", "high"]
    return pd.DataFrame(rows, columns=columns).set_index("label")


def _positions(places: NDArray[np.intp]) -> tuple[Any, ...]:
    """Positions of the candidates: a number each, or several for the records of a person."""
    return tuple(places[:, 0].tolist() if places.shape[1] == 1 else map(tuple, places.tolist()))


def _binomial(success: pd.Series, confidence: float) -> tuple[float, float]:
    interval = binomtest(int(success.sum()), len(success)).proportion_ci(confidence, "exact")
    return float(interval.low), float(interval.high)


def refuting_successes(n_trials: int, bound: float) -> int:
    """Smallest number of successes that refutes a bound on their probability; may exceed all."""
    return int(binom.isf(_LEVEL, n_trials, bound)) + 1


def _t_interval(means: pd.Series, confidence: float) -> tuple[float, float]:
    """Interval over independent units; uninformative for one unit."""
    if len(means) < 2:
        return 0.0, 1.0
    half = student.isf((1.0 - confidence) / 2.0, len(means) - 1) * means.sem()
    return max(0.0, float(means.mean() - half)), min(1.0, float(means.mean() + half))
