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

from sklearn_balldp.privacy.gaps import clipped_gap, gradient_gap, minimizer_norm_bound

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


def corner(cell: Cell, rng: Rng) -> Array:
    """Free numbers near one of the pairs that reach a corner of the clipped gap.

    Rows lie opposite each other along the second axis. Parameters part them by far, so that only
    one has a residual; part two classes; or are zero, where residuals of one label agree.
    """
    half = 0.5 * cell.radius / cell.norm_bound
    height = np.sqrt(max(1.0 - half**2, 0.0))
    other = [0.0, -1.0]
    if cell.label_change:
        half, height, other = 0.0, 1.0, [1.0, 0.0]
    theta = np.zeros((cell.n_scores, 2 + cell.constant))
    kind = int(rng.integers(3))
    if kind < 2:
        theta[0 if cell.n_scores == 1 else 1, 1] = 40.0
        if cell.n_scores > 2:
            theta[2:, 0] = -40.0
            theta[2] = 0.0
            theta[2, 1] = -40.0 if kind == 0 else 0.0
            theta[0, 0 if cell.loss == "squared_hinge" else 1] = (
                40.0 if cell.loss == "squared_hinge" else -40.0 * kind
            )
    theta += 0.01 * rng.standard_normal(theta.shape)
    return np.concatenate([[height, half, *other], theta.ravel()])


def attack_clipped(loss: str) -> Callable[[Rng, int], Found]:
    """An attack on the gap of clipped residuals, at any parameters."""

    def attack(rng: Rng, tries: int) -> Found:
        cell, n_features, count = draw(rng, loss), 2, 0
        constant = float(rng.choice([0.15, 1.0, 5.0])) * cell.norm_bound if cell.constant else 0.0
        clip = float(rng.choice([0.05, 0.2, 0.7]))
        if loss != "squared_hinge" and rng.random() < 0.2:
            clip = 2.0  # above every residual
        shape = cell.n_scores, n_features + cell.constant
        stated = clipped_gap(
            cell.named,
            cell.radius,
            clip=clip,
            norm_bound=cell.norm_bound,
            constant=constant,
            n_classes=cell.n_classes,
            label_change=cell.label_change,
        )
        # Aligned, huge, and in between.
        size = 10.0 ** rng.uniform(0.0, 6.0) / min(cell.radius, cell.norm_bound)

        def move(values: Array) -> float:
            nonlocal count
            count += 1
            pair = cell.pair(values[: 2 * n_features])
            return cell.gap(size * values[2 * n_features :].reshape(shape), pair, constant, clip)

        free = 2 * n_features + shape[0] * shape[1]
        best = max(move(corner(cell, rng)) for _ in range(60))
        if rng.random() < 0.5:
            best = max(best, climbed(move, free, rng, 1)[0])
        where = f"{cell}, clip {clip:g}, constant {constant:g}, parameters of size {size:.3g}"
        return Found(f"gap at any parameters, {loss}", best / stated, count, where)

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
