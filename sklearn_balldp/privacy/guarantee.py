"""What a release guarantees at one radius, and how that limits attackers."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._parameters import Share, check_number
from .gaussian import delta_from_mu, gaussian_power


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of a release at one radius.

    Parameters
    ----------
    radius : float
        Radius in the units of the release's metric.
    mu : float
        Gaussian differential privacy parameter of the parameters at that radius, for all
        ``records`` together.
    epsilon, delta : float
        The release is (epsilon, delta)-private for substitutions of ``records`` units within
        ``radius``.
    labels : {"public", "protected"}
        Whether label changes are part of the adjacency.
    private : bool or str
        False when the noise was seeded: the numbers then describe the noise, and protect nobody.
        "conditional" when the radius was read off private rows and declared public.
    unit : {"record", "person"}
        What one substitution replaces: a record, or all records of one person.
    records : int
        Units that are replaced at once.
    most_records : int
        Records of one unit, at most.
    """

    radius: float
    mu: float
    epsilon: float
    delta: float
    labels: str
    private: bool | str
    unit: str = "record"
    records: int = 1
    most_records: int = 1

    def delta_at(self, epsilon: float) -> float:
        """Delta at another ``epsilon`` and this radius."""
        return delta_from_mu(self.mu, epsilon)

    @property
    def advantage(self) -> float:
        """Largest advantage of an attacker who tells two adjacent datasets apart.

        True-positive rate minus false-positive rate, at most, rounded up; 2 Phi(mu / 2) - 1 for a
        Gaussian release. It bounds the advantage over guessing in re-identification, attribute
        inference and reconstruction alike (Kulynych et al., 2025).
        """
        mu = self.mu
        # The same number in a form that does not cancel.
        up = math.nextafter(math.erf(mu / math.sqrt(8.0)) * (1.0 + 2.0**-50), math.inf)
        return min(1.0, up) if mu > 0.0 else 0.0

    def tpr(self, fpr: ArrayLike) -> Any:
        """Largest true-positive rate of such an attacker at a false-positive rate ``fpr``.

        Phi(Phi^-1(fpr) + mu), as in :meth:`certificate`. Rates of an array are the trade-off curve
        of the release (an ROC that no attacker exceeds), of the same shape.
        """
        return self._power("fpr (a rate of false positives)", fpr)

    def certificate(self, kappa: ArrayLike) -> Any:
        """Upper bound on the success of an informed attack, for a best blind guess of ``kappa``.

        This is the direct Gaussian bound, rounded up; of an array of guesses one for each.
        """
        return self._power("kappa (a blind guess: 1/10 for ten candidates)", kappa)

    def _power(self, name: str, levels: ArrayLike) -> Any:
        """The bound at one level, or at each of an array's."""
        if np.ndim(levels) > 0:
            table = np.asarray(levels)
            bounds = [self._power(name, level) for level in table.ravel().tolist()]
            return np.array(bounds, dtype=np.float64).reshape(table.shape)
        level: Any = levels.item() if isinstance(levels, np.ndarray) else levels
        check_number(name, level, Share)
        return gaussian_power(level, self.mu)
