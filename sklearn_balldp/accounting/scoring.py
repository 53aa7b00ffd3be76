"""A score that is private itself."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import validate_data

from ..labels import native
from ..pipelines import beside_head, is_one_of
from ..privacy.gaussian import mu_from_budget
from ..privacy.noise import Noise, RandomState, check_random_state, grid_slack
from ..rows import in_memory
from .accountant import PrivacyAccountant, check_accountant
from .ledger import OtherRelease, count

#: Searches of scikit-learn, whose fit adds the choice by scores alone.
_SEARCHES = {
    "sklearn.model_selection": (
        *("GridSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV", "RandomizedSearchCV"),
    ),
}


class PrivateAccuracy:
    """Scorer: accuracy on private rows, with noise that hides any one of them.

    Pass it as ``scoring=``: the scores of a search, and the choice of the best candidate, are then
    private too. If one scored row is replaced, its label too, the accuracy of a fixed model moves
    by at most ``1 / n_rows``. What a training row moves, the model's release hides. So it scores
    a Ball-DP head, a pipeline that ends in one, or a search of these whose scores are private, and
    refuses all else: votes, thresholds, and a step before the head that learned from the rows, or
    is not known to map each row by itself (``pipelines.RowWise``).

    Parameters
    ----------
    epsilon : float
        What one score costs: a smaller value costs less, and makes the score noisier. Positive. A
        search pays it for every score.
    delta : float, default=1e-6
        The small allowance beside the epsilon of one score.
    accountant : PrivacyAccountant or None, default=None
        Counts every score in its ledger, before the rows are looked at.
    random_state : None, int, Generator or RandomState, default=None
        Leave it at None for privacy: noise is then drawn exactly, from operating-system entropy. A
        seed is not private.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """

    _takes_accountant = True

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-6,
        *,
        accountant: PrivacyAccountant | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.mu = mu_from_budget(epsilon, delta)
        if not self.mu > 4.0 * grid_slack(1):
            raise ValueError(f"epsilon={epsilon!r} is too small for the sampler; raise epsilon.")
        check_random_state(random_state)
        check_accountant(accountant)
        self.epsilon, self.delta = epsilon, delta
        self.accountant, self.random_state = accountant, random_state

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
        """Noisy accuracy, counted before the rows are looked at."""
        others = _beside_release(estimator)
        if others:
            raise ValueError(
                f"PrivateAccuracy: of a {type(estimator).__name__} not all comes from a release, "
                f"so one record may move its score by any amount: {'; '.join(others)}. Score a "
                "Ball-DP head, a search of one, or a pipeline that ends in one, behind steps that "
                "map each row by itself (those that learn: fit them on public rows, and freeze "
                "them)."
            )
        if hasattr(X, "__dask_graph__"):
            raise ValueError(
                "PrivateAccuracy: X is an array of Dask, whose chunks machines may round each "
                "in its own way, so that a row could move the predictions of others; pass "
                "X.compute()."
            )
        y = in_memory("y", y)
        # What is public, the shapes, is refused before anything is counted.
        n_rows = _n_rows(estimator, X, y)
        noise = Noise(self.random_state)
        spent = OtherRelease("accuracy", mu=self.mu, private=noise.private, unit="record")
        count(self.accountant, spent)
        accuracy = accuracy_of(estimator, X, y)
        # Two accuracies and their division by the noise scale are rounded.
        sensitivity = 1.0 / n_rows + 2.0**-50
        sigma = sensitivity / (self.mu - 2.0 * grid_slack(1))
        return float(noise([accuracy], sigma)[0])

    def __repr__(self) -> str:
        return f"PrivateAccuracy(epsilon={self.epsilon!r}, delta={self.delta!r})"


def _n_rows(estimator: Any, X: ArrayLike, y: ArrayLike) -> int:
    """Number of rows; a ValueError where there are none, or their shape is not the model's."""
    check_consistent_length(X, y)
    n_rows = len(np.asarray(y))
    if n_rows == 0:
        raise ValueError("X holds no rows, of which there is no accuracy; pass at least one.")
    if hasattr(estimator, "n_features_in_"):
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return n_rows


def accuracy_of(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Without noise."""
    from sklearn.metrics import accuracy_score

    return accuracy_score(native(y), estimator.predict(X))


def _beside_release(estimator: Any) -> list[str]:
    """What a model's predictions take beside a release, in words; a private choice is one."""
    if not (is_one_of(estimator, _SEARCHES) and hasattr(estimator, "best_estimator_")):
        return beside_head(estimator)
    scoring = estimator.scoring
    scorers = list(scoring.values()) if isinstance(scoring, dict) else [scoring]
    private = all(type(s) is PrivateAccuracy and s.random_state is None for s in scorers)
    if private and not estimator.return_train_score:
        return beside_head(estimator.best_estimator_)
    return [f"{type(estimator).__name__} chose by scores that are not private"]
