"""Attacks on the formulas: gradient gaps, and the norm of minimisers, by climbing over parameters.

A fit of few records moves its minimiser less than the bound allows for all data sets together. So
the two steps of the proof are attacked apart: how long a minimiser can be, and how far the
gradients of two records can be apart at such parameters. Gradients are those of ``plain``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from sklearn_balldp.privacy.gaps import gradient_gap, iterate_gap, minimizer_norm_bound

from .plain import gradient, minimiser, with_constant
from .search import Found
from .settings import Rng

Array = NDArray[np.float64]
LOSSES = ("logistic", "softmax", "squared_hinge")


@dataclass(frozen=True)
class Cell:
    """Public numbers of a gap."""

    loss: str
    n_classes: int
    alpha: float
    radius: float
    norm_bound: float = 1.0
    constant: bool = False
    label_change: bool = False

    def __str__(self) -> str:
        labels = "another label" if self.label_change else "one label"
        constant = "intercept" if self.constant else "no intercept"
        numbers = (
            f"alpha {self.alpha:.3g}, radius {self.radius:.3g}, norm_bound {self.norm_bound:g}"
        )
        return f"{self.n_classes} classes, {numbers}, {constant}, {labels}"

    @property
    def n_scores(self) -> int:
        return self.n_classes if self.n_classes > 2 else 1

    @property
    def named(self) -> str:
        """The loss as the package names it."""
        return "logistic" if self.loss == "softmax" and self.n_classes == 2 else self.loss

    @property
    def reach(self) -> float:
        """Stated norm of a minimiser; of each head, where heads are stacked."""
        return minimizer_norm_bound(
            self.named,
            alpha=self.alpha,
            norm_bound=self.norm_bound,
            fit_intercept=self.constant,
            n_classes=self.n_classes,
        )

    @property
    def stated(self) -> float:
        return gradient_gap(
            self.named,
            self.radius,
            alpha=self.alpha,
            norm_bound=self.norm_bound,
            fit_intercept=self.constant,
            n_classes=self.n_classes,
            label_change=self.label_change,
        )

    def pair(self, values: Array) -> Array:
        """Two rows: the second within the radius of the first, or anywhere for another label."""
        one, other = values.reshape(2, -1)
        one = one * self.norm_bound / max(1.0, float(np.linalg.norm(one)))
        if self.label_change:
            return np.stack([one, other * self.norm_bound / max(1.0, float(np.linalg.norm(other)))])
        other = one + other * self.radius / max(1.0, float(np.linalg.norm(other)))
        return np.stack([one, other / max(1.0, float(np.linalg.norm(other)) / self.norm_bound)])

    def gap(self, theta: Array, pair: Array, constant: float, clip: float | None = None) -> float:
        """Distance of the gradients of two records at these parameters."""
        rows = with_constant(pair, constant)
        labels = np.array([0, 1 if self.label_change else 0])
        found = gradient(self.loss, theta, rows, labels, self.n_classes, clip)
        return float(np.linalg.norm(found[0] - found[1]))


def draw(rng: Rng, loss: str) -> Cell:
    """A cell of this loss."""
    k = 2 if loss == "logistic" else int(rng.choice([3, 3, 4, 6]))
    if loss == "squared_hinge":
        k = int(rng.choice([2, 2, 3, 5]))
    norm_bound = float(rng.choice([1.0, 1.0, 0.3, 4.0]))
    return Cell(
        loss="softmax" if loss == "logistic" else loss,
        n_classes=k,
        alpha=float(10.0 ** rng.uniform(-4.0, 0.5)),
        radius=norm_bound * float(rng.choice([0.01, 0.1, 0.3, 1.0, 1.5, 2.0])),
        norm_bound=norm_bound,
        constant=bool(rng.random() < 0.4),
        label_change=bool(rng.random() < 0.3),
    )


def climbed(
    move: Callable[[Array], float], size: int, rng: Rng, rounds: int
) -> tuple[float, Array]:
    """The largest value found from the best of many random starts, and where."""
    best, place = 0.0, np.zeros(size)
    for _ in range(rounds):
        starts = rng.standard_normal((60, size)) * rng.choice([0.2, 1.0, 3.0], (60, 1))
        # Rows against each other, or along each other.
        starts[::3, 2:4] = starts[::3, :2] * rng.choice([-1.0, 1.0])
        for start in sorted(starts, key=move)[-2:]:
            for method in ("BFGS", "Nelder-Mead", "BFGS"):
                found = minimize(
                    lambda values: -move(values),
                    start,
                    method=method,
                    options={"maxiter": 60 * size},
                )
                start = found.x
            if -found.fun > best:
                best, place = float(-found.fun), start
    return best, place


def gap_of_minimisers(cell: Cell, rng: Rng, rounds: int) -> tuple[float, int]:
    """Largest gap found over the stated one, and how many pairs were tried."""
    n_features, count, reach = 2, 0, cell.reach
    shape = cell.n_scores, n_features + cell.constant

    def theta_of(values: Array) -> Array:
        theta = values.reshape(shape)
        # Stacked heads have a norm each.
        own = np.linalg.norm(theta, axis=1 if cell.loss == "squared_hinge" else None, keepdims=True)
        return reach * theta / np.maximum(own, 1.0)

    def move(values: Array) -> float:
        nonlocal count
        count += 1
        pair = cell.pair(values[: 2 * n_features])
        return cell.gap(theta_of(values[2 * n_features :]), pair, float(cell.constant))

    best, _ = climbed(move, 2 * n_features + shape[0] * shape[1], rng, rounds)
    return best / cell.stated, count


def attack_gap(loss: str) -> Callable[[Rng, int], Found]:
    """An attack on the gap over minimisers."""

    def attack(rng: Rng, tries: int) -> Found:
        cell = draw(rng, loss)
        found, count = gap_of_minimisers(cell, rng, 2)
        return Found(f"gap of minimisers, {loss}", found, count, str(cell))

    return attack


def attack_iterate(loss: str) -> Callable[[Rng, int], Found]:
    """An attack on the gap at parameters that are known, with residuals clipped."""

    def attack(rng: Rng, tries: int) -> Found:
        cell, n_features, count = draw(rng, loss), int(rng.integers(2, 4)), 0
        constant = 0.15 * cell.norm_bound if cell.constant else 0.0
        clip = [None, 0.2, 1.0][rng.integers(3)]
        theta = rng.standard_normal((cell.n_scores, n_features + cell.constant))
        theta *= 10.0 ** rng.uniform(-2.0, 1.5) / cell.norm_bound
        stated = iterate_gap(
            cell.named,
            theta,
            cell.radius,
            norm_bound=cell.norm_bound,
            constant=constant,
            clip=clip,
            label_change=cell.label_change,
        )

        def move(values: Array) -> float:
            nonlocal count
            count += 1
            return cell.gap(theta, cell.pair(values), constant, clip)

        best, _ = climbed(move, 2 * n_features, rng, 1)
        where = f"{cell}, clip {clip}, weights of norm {np.linalg.norm(theta):.3g}"
        return Found(f"gap at an iterate, {loss}", best / stated, count, where)

    return attack


def attack_norm(rng: Rng, tries: int) -> Found:
    """An attack on the largest norm of a minimiser."""
    cell = draw(rng, str(rng.choice(LOSSES)))
    n, n_features, count = int(rng.integers(1, 4)), 2, 0
    codes = rng.integers(cell.n_classes, size=n)

    def norm(values: Array) -> float:
        nonlocal count
        count += 1
        rows = values.reshape(n, n_features)
        rows = rows * cell.norm_bound / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        rows = with_constant(rows, float(cell.constant))
        theta = minimiser(cell.loss, rows, codes, cell.n_classes, cell.alpha)
        # Stacked heads have a norm each.
        return float(np.linalg.norm(theta, axis=1 if cell.loss == "squared_hinge" else None).max())

    found = max(norm(3.0 * rng.standard_normal(n * n_features)) for _ in range(12))
    return Found("norm of minimisers", found / cell.reach, count, f"{cell}, labels {codes}")
