"""What a model search costs: disjoint folds, and scores that are private themselves."""

import re
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from .._parameters import is_real
from .._validation import caller_level
from ..pipelines import heads_of, parts_of
from ..privacy.gaussian import mu_from_budget
from ..privacy.noise import Noise, RandomState, check_random_state, grid_slack
from ..privacy.release import Release
from .ledger import OtherRelease, Record, charged
from .tickets import CountedMixin

#: Splitters whose test folds partition the records: each is left out of one fit per candidate.
_DISJOINT = KFold, StratifiedKFold, GroupKFold, StratifiedGroupKFold, LeaveOneOut, LeaveOneGroupOut
#: Those whose folds depend on labels, and those that keep the records of one owner together.
_STRATIFIED = (StratifiedKFold, StratifiedGroupKFold)
_BY_GROUP = (GroupKFold, StratifiedGroupKFold, LeaveOneGroupOut)
#: Numbers of a head that its record tells.
_SHOWN = ("epsilon", "delta", "radius", "alpha", "norm_bound")
_SCORE = "accuracy"


class PrivateAccuracy(CountedMixin):
    """Scorer: accuracy on private rows, with noise that hides any one of them.

    Pass it as ``scoring=``: the scores of a search, and the choice of the best candidate, are then
    private too. If one scored row is replaced, its label too, the accuracy of a *given* model moves
    by at most ``1 / n_rows``. What a training row moves, the model's own release hides. So models
    that are not made of Ball-DP heads alone are refused: a step before the head that learned from
    the rows, a threshold or features chosen by scores, a search whose scores are not private.

    Parameters
    ----------
    epsilon : float
        What one score costs: a smaller value costs less, and makes the score noisier. Positive. A
        search pays it for every score.
    delta : float, default=1e-6
        The small allowance beside the epsilon of one score.
    random_state : None, int, Generator or RandomState, default=None
        Leave it at None for privacy: noise is then drawn exactly, from operating-system entropy. A
        seed is not private.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """

    def __init__(
        self, epsilon: float, delta: float = 1e-6, random_state: RandomState = None
    ) -> None:
        self.mu = mu_from_budget(epsilon, delta)
        if not self.mu > 4.0 * grid_slack(1):
            raise ValueError(f"epsilon={epsilon!r} is too small for the sampler; raise epsilon.")
        check_random_state(random_state)
        self.epsilon, self.delta, self.random_state = epsilon, delta, random_state

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
        """Noisy accuracy, charged to every active accountant before the rows are looked at."""
        self._check_reachable()
        model = estimator
        if hasattr(estimator, "best_estimator_"):
            private = selection_of(estimator, "private") == "private"
            model = estimator.best_estimator_ if private else None
        if heads_of(model) is None:
            raise ValueError(
                f"PrivateAccuracy: of a {type(estimator).__name__} not all comes from a release, "
                "so one training record may move its score by any amount; score a Ball-DP head, "
                "or what is made of such heads alone (steps that learn: fit them on public rows, "
                "and freeze them)."
            )
        n_rows = len(np.asarray(y))
        noise = Noise(self.random_state)
        spent = OtherRelease(_SCORE, mu=self.mu, private=noise.private, unit="record")
        with charged(spent, lambda: noise.used):
            accuracy = accuracy_score(y, estimator.predict(X))
            # Two accuracies and their division by the noise scale are rounded.
            sensitivity = 1.0 / n_rows + 2.0**-50
            sigma = sensitivity / (self.mu - 2.0 * grid_slack(1))
            return float(noise([accuracy], sigma)[0])

    def __repr__(self) -> str:
        return f"PrivateAccuracy(epsilon={self.epsilon!r}, delta={self.delta!r})"


def touching_one_record(
    search: Any, records: list[Record], radius: float | None, n_samples: int | None = None
) -> list[Record]:
    """Records of a search that bound those any one private record takes part in.

    Its folds being disjoint, a private record is trained on in all fits but one per candidate, and
    scored in one fold per candidate.
    """
    if not hasattr(search, "cv_results_") or not hasattr(search, "n_splits_"):
        raise ValueError("search must be a fitted GridSearchCV or RandomizedSearchCV.")
    # A number of folds stratifies a classifier's.
    given = search.cv
    splitter = StratifiedKFold(search.n_splits_) if given is None or np.isscalar(given) else given
    # A subclass may split otherwise.
    if type(splitter) not in _DISJOINT:
        raise ValueError(
            f"search: the folds of cv={given!r} may overlap; total() without search= holds."
        )
    heads = [record for record in records if isinstance(record, Release)]
    persons = any(release.unit == "person" for release in heads)
    if persons and not isinstance(splitter, _BY_GROUP):
        raise ValueError(
            f"search: cv={given!r} puts records of one person into several folds, where these "
            "releases hide all of them: use cv=GroupKFold(...), or total() without search=."
        )
    if persons and not _by_owner(search.estimator, splitter):
        raise ValueError(
            "search: its folds may be by others than the owners, which must reach splitter and "
            "head as one groups=: request them by set_fit_request(groups=True) with metadata "
            "routing, or use total() without search=."
        )
    if heads and not persons and isinstance(splitter, _BY_GROUP):
        warnings.warn(
            f"search: cv={given!r} was given groups=, and its fits were not: each release hides "
            "one record, not all of one owner. Request groups by set_fit_request(groups=True) with "
            "metadata routing (enable_metadata_routing=True), and fit again.",
            UserWarning,
            stacklevel=caller_level(),
        )
    if isinstance(splitter, _STRATIFIED) and any(r.labels == "protected" for r in heads):
        raise ValueError(
            f"search: cv={given!r} splits by labels, which these releases protect: a changed label "
            "moves other records between folds, so that no total holds; use cv=KFold(...)."
        )
    if hasattr(search, "n_resources_"):
        raise ValueError(
            "search: successive halving fits parts of the records, which share no folds; use "
            "total() without search=."
        )
    if search.error_score != "raise" and not np.isnan(search.error_score):
        raise ValueError(
            f"search: error_score={search.error_score!r} hides a fit that failed, in whose place "
            "another may have been counted; use error_score='raise', or total() without search=."
        )
    results = search.cv_results_
    scores_of_splits = [v for k, v in results.items() if re.fullmatch(r"split\d+_test_.*", k)]
    if any(np.isnan(np.asarray(values, dtype=float)).any() for values in scores_of_splits):
        raise ValueError(
            "search: a fit failed or has no score, so that fits cannot be matched to folds; use "
            "total() without search=."
        )
    candidates, n_candidates = results["params"], len(results["params"])
    n_fits = n_candidates * search.n_splits_ + bool(search.refit)
    if len(heads) != n_fits:
        raise ValueError(
            f"search made {n_fits} fits, but {len(heads)} releases were counted: account for it in "
            "a with block of its own, or use total() without search=."
        )
    best = getattr(parts_of(getattr(search, "best_estimator_", None)).head, "release_", None)
    promised = [replace(release, digest="") for release in heads]
    if best is not None and replace(best, digest="") not in promised:
        raise ValueError(
            "search: the release of its best_estimator_ was not counted, so these are other fits; "
            "account for the search in a with block of its own."
        )
    fits = sorted(heads, key=lambda release: release.n_samples)
    kept = [fits.pop()] if search.refit else []
    if kept:
        n_samples = kept[0].n_samples
    elif n_samples is None:
        raise ValueError(
            "n_samples=None: with refit=False no fit tells how many records the folds partition; "
            "pass n_samples."
        )
    _check_folds(fits, n_candidates, n_samples)
    for own in _by_candidate(fits, candidates, search.n_splits_):
        # Which of a candidate's fits leaves a record out depends on the record: the least costly.
        n_own = len(own) // search.n_splits_
        kept += sorted(own, key=lambda release: release.guarantee(radius).mu)[n_own:]
    others = [record for record in records if isinstance(record, OtherRelease)]
    scores = sorted((r for r in others if r.what == _SCORE), key=lambda score: score.mu)
    rest = [record for record in others if record.what != _SCORE]
    n_scorers = sum(isinstance(scorer, PrivateAccuracy) for scorer in _scorers(search))
    expected = n_candidates * search.n_splits_ * n_scorers
    if len(scores) == expected and not search.return_train_score:
        # Each scorer looks at a record once per candidate; the costliest scores bound which.
        scores = scores[expected - n_candidates * n_scorers :]
    return [*kept, *scores, *rest]


def _by_owner(estimator: Any, splitter: Any) -> bool:
    """Whether head and splitter are given the same groups: both by that name."""

    def takes_groups(own: Any, method: str) -> bool:
        routing = getattr(own, "get_metadata_routing", None)
        return routing is not None and getattr(routing(), method).requests.get("groups") is True

    return takes_groups(parts_of(estimator).head, "fit") and takes_groups(splitter, "split")


def _check_folds(fits: list[Release], n_candidates: int, n_samples: int) -> None:
    """Refuse releases whose sizes are not those of folds that partition the records.

    Each fold is left out once by every candidate, so its size occurs that often; and of n records
    in k folds the fits of one candidate see (k - 1) n together. ``fits`` are in order of size.
    """
    sizes = [release.n_samples for release in fits]
    folds = sizes[::n_candidates]
    repeated = [size for size in folds for _ in range(n_candidates)]
    partition = sum(folds) == (len(folds) - 1) * n_samples and folds[-1] < n_samples
    if sizes != repeated or not partition:
        raise ValueError(
            f"search: fits of {sorted(set(sizes))} records were counted, which are not "
            f"{len(folds)} folds of {n_samples}, each left out once: other fits were counted in "
            "its place. Account for it in a with block of its own, or use total() without search=."
        )


def _by_candidate(
    fits: list[Release], candidates: list[dict[str, Any]], n_splits: int
) -> list[list[Release]]:
    """Fits of each candidate, as far as their records tell; else of several that share a record."""

    def told(read: Any) -> tuple[float, ...]:
        return tuple(float(read(name)) for name in named)

    # The last part of a parameter's name: heads sit in pipelines and wrappers.
    given = [{name.split("__")[-1]: value for name, value in c.items()} for c in candidates]
    named = [name for name in _SHOWN if all(is_real(c.get(name)) for c in given)]
    groups: dict[tuple[float, ...], list[Release]] = {}
    for release in fits:
        groups.setdefault(told(lambda name, r=release: getattr(r, name)), []).append(release)
    expected = Counter(told(c.__getitem__) for c in given * n_splits)
    matched = {key: len(own) for key, own in groups.items()} == expected
    return list(groups.values()) if matched else [fits]


def _scorers(search: Any) -> list[Any]:
    scoring = search.scoring
    return list(scoring.values()) if isinstance(scoring, dict) else [scoring]


def selection_of(search: Any, scored_on: str) -> str:
    """Whether the choice of a search's best candidate is covered."""
    if scored_on not in ("private", "public"):
        raise ValueError(f"scored_on must be 'private' or 'public', got {scored_on!r}.")
    if scored_on == "public":
        return "public"
    covered = all(
        isinstance(scorer, PrivateAccuracy) and scorer.random_state is None
        for scorer in _scorers(search)
    )
    return "private" if covered and not search.return_train_score else "unprotected"
