"""Mean gradients of records, as queries compute them, with their passes in sight."""

import numpy as np

from sklearn_balldp.heads.weighing import weights_of
from sklearn_balldp.mechanisms import MeanGradient, Records
from sklearn_balldp.mechanisms.gradients import Gradients
from sklearn_balldp.mechanisms.objective import LinearObjective
from sklearn_balldp.privacy import rounding
from sklearn_balldp.privacy.problem import Problem


def problem_of(loss, X, y, n_classes, weights=None, **given):
    """The public numbers of records with such weights, by default in the unit ball."""
    counts = tuple(np.bincount(y, minlength=n_classes).tolist())
    if weights is not None:
        given["sums_weights"] = weights_of(weights, y, n_classes, np.arange(len(y)))
    numbers = {"n_samples": X.shape[0], "n_features": X.shape[1], "n_classes": n_classes}
    numbers |= {"class_counts": counts, "radius": 0.5, "loss": loss}
    return Problem(**numbers, **given)


class Mean:
    """Mean gradients of records, as queries at any parameters compute them."""

    def __init__(
        self,
        loss,
        X,
        y,
        n_classes,
        clip=None,
        constant=0.5,
        norm_bound=1.0,
        seen=None,
        weights=None,
        domain="ball",
    ):
        public = {"norm_bound": norm_bound, "domain": domain}
        self.problem = problem_of(loss, X, y, n_classes, weights, **public)
        self.shape = self.problem.kind.n_scores, X.shape[1] + int(constant > 0)
        self._given = {"clip": clip, "constant": constant, "whitening": seen}
        given = seen, constant, clip
        self.passes = Gradients(self.problem, Records(X, y, weights), *given)

    def __call__(self, thetas):
        return self.passes.sums(thetas) / self.problem.sums_weights.total

    def query(self, theta):
        return MeanGradient(theta, **self._given)

    def rounding(self, theta):
        seen = self._given["whitening"]
        return rounding.mean_rounding(
            self.problem.kind,
            norm=float(np.linalg.norm(theta)),
            n_samples=self.problem.n_samples,
            n_features=self.problem.n_features,
            norm_bound=self.problem.norm_bound if seen is None else seen.reach,
            constant=self._given["constant"],
            clip=self._given["clip"],
            weights=self.problem.sums_weights,
            whitened=seen is not None and seen.shortens,
        )


def objective_of(loss, X, y, n_classes, *, weights=None, **params):
    """The regularised mean loss of records, by default over the unit ball and with intercepts."""
    given = {"alpha": 0.1, "norm_bound": 1.0, "fit_intercept": True, **params}
    problem = problem_of(loss, X, y, n_classes, weights, **given)
    return LinearObjective(problem, Records(X, y, weights))


def as_computed(X, *, norm_bound=1.0, seen=None, domain="ball"):
    """Rows as gradients are made of them: twice the gradient at zero of each, taken alone."""
    problem = Problem(
        n_samples=1,
        n_features=X.shape[1],
        n_classes=2,
        class_counts=(0, 1),
        radius=0.5 * norm_bound,
        loss="logistic",
        norm_bound=norm_bound,
        domain=domain,
    )
    query, code = MeanGradient(np.zeros((1, X.shape[1])), whitening=seen), np.array([1])
    return np.array([-2.0 * query.values(problem, Records(row[None], code))[0] for row in X])
