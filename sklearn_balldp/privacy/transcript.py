r"""What the transcript of noisy gradient descent hides, fixed before the first step.

Step s publishes :math:`g_s = \frac1n \sum_i g(\theta_{s-1}; z_i) + N(0, \sigma_s^2 I)`, g the
gradient of one record's loss, its residual clipped or not. The iterate is public, so that
:math:`\sigma_s = G_s(r) / (n \rho_s)` may use the gap at it (:func:`.iterate_gap`), and each step
is :math:`\rho_s`-GDP with :math:`\rho_s` fixed in advance: the transcript, and every model made
from it, is :math:`\sqrt{\sum \rho_s^2}`-GDP at radius r.

At other radii the gaps depend on the iterates, so their realised sum is no guarantee. What holds
beforehand for t > r is :math:`\rho(t) \le \rho \min(\lceil t / r \rceil, \sup G_\theta(t) / \inf
G_\theta(r))`: a chain of records r apart, and public limits of the gap (:func:`.gap_limits`).

References
----------
Dong, Roth & Su (2022): composition (Corollary 3.3) and group privacy (Theorem 2.14) of Gaussian
differential privacy. Proofs of the gaps are in this package's documentation.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..policy.adjacency import ROUNDING
from .iterate_gap import GapLimits, gap_limits, iterate_gap
from .noise import grid_slack

# A chain is not lengthened by the rounding of a radius, which the allowance for rows covers.
_CHAIN = 1.0 - 1e-9


@dataclass(frozen=True)
class Descent:
    """Public settings of noisy gradient descent; all but ``clip`` and ``n_steps`` cost nothing.

    Parameters
    ----------
    n_steps : int
        Steps T.
    learning_rate : float
        Step size.
    momentum : float
        Share of the velocity that is kept from step to step (heavy ball).
    clip : float or None
        Norm that the residual of each record, its derivative by the scores, is clipped to.
    averaging : float
        Share of the iterates, the last ones, whose mean is released; 0 for the last alone.
    """

    n_steps: int
    learning_rate: float
    momentum: float
    clip: float | None
    averaging: float


@dataclass(frozen=True)
class TranscriptBound:
    """Guarantee of a transcript as a function of the radius, before any step is made.

    Holds public numbers only; part of the public record of a fit.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    n_samples, n_features, n_scores : int
        Number of records, of features, and of score columns.
    norm_bound : float
        Radius of the admissible ball.
    constant : float
        Constant that rows are augmented by; 0 for no intercept.
    n_steps : int
        Number of steps.
    clip : float or None
        Norm that the residual of each record is clipped to.
    label_change : bool
        Whether label changes are adjacent.
    promises : tuple of (float, float)
        Euclidean radii and the rho promised at each, which the noise of every step honours.
    """

    loss: str
    n_samples: int
    n_features: int
    n_scores: int
    norm_bound: float
    constant: float
    n_steps: int
    clip: float | None
    label_change: bool
    promises: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        # From JSON they come as lists.
        promises = tuple((float(radius), float(rho)) for radius, rho in self.promises)
        object.__setattr__(self, "promises", promises)

    @property
    def theorem(self) -> str:
        """What the bound rests on, in one line."""
        clipped = "" if self.clip is None else ", clipped"
        change = ", label changes included" if self.label_change else ""
        return f"gradient gap at each public iterate / n{clipped}{change}"

    @property
    def n_columns(self) -> int:
        """Parameters of one score."""
        return self.n_features + int(self.constant > 0.0)

    @property
    def n_values(self) -> int:
        """Values that one step releases."""
        return self.n_scores * self.n_columns

    def sensitivity(
        self,
        theta: NDArray[np.float64],
        radius: float,
        rounding: float = 0.0,
        label_change: bool | None = None,
    ) -> float:
        """L2 sensitivity of one step at a Euclidean radius.

        Parameters
        ----------
        theta : ndarray of shape (n_scores, n_features) or (n_scores, n_features + 1)
            Iterate that the gradient is taken at.
        radius : float
            Euclidean radius.
        rounding : float, default=0.0
            Bound on the error of a computed mean gradient.
        label_change : bool, optional
            Whether label changes count; as released by default.

        Returns
        -------
        float
            Largest move of the mean gradient, with its rounding.
        """
        gap = iterate_gap(
            self.loss,
            theta,
            radius * (1.0 + ROUNDING),
            norm_bound=self.norm_bound * (1.0 + ROUNDING),
            constant=self.constant,
            clip=self.clip,
            label_change=self.label_change if label_change is None else label_change,
        )
        return gap / self.n_samples + 2.0 * rounding

    def step_rho(self, rho: float) -> float:
        """Sensitivity over noise scale that each step may spend of a total rho.

        The rounding to the sampler's grid is taken off, so that it may come on top.

        Parameters
        ----------
        rho : float
            Gaussian differential privacy of the transcript.

        Returns
        -------
        float
            The step's own share.
        """
        return rho / math.sqrt(self.n_steps) * (1.0 - 1e-12) - 2.0 * grid_slack(self.n_values)

    def step(self, theta: NDArray[np.float64], rounding: float = 0.0) -> tuple[float, float]:
        """Sensitivity at the first promised radius, and noise scale, of the step at ``theta``.

        The noise scale is the largest that a promise asks for.

        Parameters
        ----------
        theta : ndarray of shape (n_scores, n_features) or (n_scores, n_features + 1)
            Iterate that the gradient is taken at.
        rounding : float, default=0.0
            Bound on the error of a computed mean gradient.

        Returns
        -------
        sensitivity : float
            How far one substitution moves the mean gradient, at most.
        sigma : float
            Standard deviation of the noise on it.
        """
        moved = [self.sensitivity(theta, radius, rounding) for radius, _ in self.promises]
        scales = [
            sensitivity / self.step_rho(rho)
            for sensitivity, (_, rho) in zip(moved, self.promises, strict=True)
        ]
        return moved[0], max(scales)

    def sigma(self, theta: NDArray[np.float64], rounding: float = 0.0) -> float:
        """Noise scale of the step at ``theta``.

        Parameters
        ----------
        theta : ndarray of shape (n_scores, n_features) or (n_scores, n_features + 1)
            Iterate that the gradient is taken at.
        rounding : float, default=0.0
            Bound on the error of a computed mean gradient.

        Returns
        -------
        float
            As :meth:`step` gives it.
        """
        return self.step(theta, rounding)[1]

    def limits(self, radius: float, label_change: bool) -> GapLimits:
        """Gaps at a Euclidean radius over all iterates.

        Parameters
        ----------
        radius : float
            Euclidean radius.
        label_change : bool
            Whether label changes count.

        Returns
        -------
        GapLimits
            Bounds from below and from above.
        """
        return gap_limits(
            self.loss,
            radius * (1.0 + ROUNDING),
            n_scores=self.n_scores,
            n_features=self.n_features,
            norm_bound=self.norm_bound * (1.0 + ROUNDING),
            constant=self.constant,
            clip=self.clip,
            label_change=label_change,
        )

    def rho(self, radius: float, label_change: bool | None = None) -> float:
        """Rho of the transcript at a Euclidean radius, known before the first step.

        Parameters
        ----------
        radius : float
            Euclidean radius.
        label_change : bool, optional
            Whether label changes count; as released by default.

        Returns
        -------
        float
            The least of what the promises give.
        """
        label_change = self.label_change if label_change is None else label_change
        most = self.limits(radius, label_change).most
        rhos = []
        for promised, rho in self.promises:
            chain: float = max(1, math.ceil(radius / promised * _CHAIN))
            if self.label_change:
                # By way of a record of another label, any two are two changes apart.
                chain = min(chain, 2)
            elif label_change:
                chain = math.inf
            least = self.limits(promised, self.label_change).least
            growth = most / least if least > 0.0 else math.inf
            # Below one, rounding would count for more than its share of the sensitivity.
            rhos.append(rho * min(chain, max(growth * (1.0 + 1e-9), 1.0)))
        return min(rhos)
