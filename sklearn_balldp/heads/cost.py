"""How long a fit will take, from public numbers and one small product."""

import time
import warnings
from typing import Any

import numpy as np

from .._validation import caller_level
from ..mechanisms import DescentBound, Minimiser
from ..privacy.release import Release
from ..progress import say

#: A fit that will take more seconds warns, and names a head that takes fewer.
LONG = 600.0
# Multiplications that take no more than a minute on any machine: no look at the clock before.
_FEW = 2e11
_TRIED = 2e8
# Passes of a solver over the rows, about.
_SOLVER = 60
# A pass takes this many times its products: exponentials and sums come with them.
_BESIDE = 1.4


def multiplications(release: Release) -> float:
    """Multiplications of a fit: two products of rows and weights a pass, and second moments."""
    bound: Any = release.bound
    n_scores = release.n_classes if release.n_classes > 2 else 1
    passes, sums = 1, bound
    if isinstance(bound, DescentBound):
        passes, sums = bound.n_steps, bound.start
    elif isinstance(bound, Minimiser):
        passes, sums = _SOLVER, None
    each = 2.0 * n_scores * passes
    if getattr(sums, "moment", None) is not None:
        each += release.n_features
    return float(release.n_samples) * release.n_features * each


def seconds(release: Release) -> float:
    """Seconds that a fit will take on the processors of this machine, about."""
    n_features, n_scores = release.n_features, max(1, release.n_classes)
    n_rows = int(min(release.n_samples, max(64, _TRIED / (2.0 * n_features * n_scores))))
    rows = np.ones((n_rows, n_features), dtype=np.float32)
    weights = np.ones((n_features, n_scores), dtype=np.float32)
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        rows.T @ (rows @ weights)
        took.append(time.perf_counter() - begun)
    tried = 2.0 * n_rows * n_features * n_scores
    return _BESIDE * min(took) / tried * multiplications(release)


def in_words(amount: float) -> str:
    """Seconds, minutes or hours."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if amount >= 2.0 * size:
            return f"about {amount / size:.0f} {unit}"
    return f"about {max(amount, 1.0):.0f} s"


def foretell(release: Release, X: Any) -> None:
    """Say how long a fit will take; warn if that is long."""
    few = multiplications(release) < _FEW
    # How fast other machines and devices are is not known here.
    if few or not isinstance(X, np.ndarray):
        return
    expected = seconds(release)
    say(f"{release.head}: {in_words(expected)} for {release.n_samples:,} records")
    # Class sums alone are the least that any head releases.
    steps = release.mechanism == "gradient" or isinstance(release.bound, Minimiser)
    if expected > LONG and (steps or getattr(release.bound, "moment", None) is not None):
        warnings.warn(
            f"this fit will take {in_words(expected)}; BallDPLinearDiscriminant(share=1.0) needs a "
            "single pass over the rows.",
            UserWarning,
            stacklevel=caller_level(),
        )
