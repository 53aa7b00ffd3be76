r"""
A mechanism of your own
=======================

A mechanism does three things for a head. It states what it *promises*, from public numbers alone.
It *runs* on the rows, once the promise was counted. The bound in its promise says what the release
guarantees at every radius. This example writes one: least squares from noisy sufficient statistics.
Class sums and second moment are released once, and the weights are computed from them.
"""

# %%
# The bound comes first. One record x becomes x', of the same label and at most t away. Its class
# sum then moves by at most t, and the second moment, in the Frobenius norm, by
# :math:`\|xx^\top - x'x'^\top\| \le (\|x\| + \|x'\|) \|x - x'\| \le 2Bt`. Two Gaussian releases
# with :math:`\mu_1` and :math:`\mu_2` are together :math:`\sqrt{\mu_1^2 + \mu_2^2}`-GDP (Gaussian
# differential privacy). Rounding needs three small allowances: ``Domain`` adds one for rounded
# rows, ``ROUNDOFF`` is for the sums, and ``grid_slack`` is for the sampler.
import json
import math
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPSquaredHingeSVC, PrivacyAccountant, ReconstructionAuditor
from sklearn_balldp.adjacency import Domain
from sklearn_balldp.heads import Mechanism, Outcome, Promise
from sklearn_balldp.privacy import Bound, Release
from sklearn_balldp.privacy.noise import grid_slack
from sklearn_balldp.rows import project_onto_ball

ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class MomentsBound(Bound):
    """Noise on class sums and on the second moment; fields are public numbers."""

    what = "noise on class sums and second moment"
    theorem = "t and 2 B t: class sums and second moment of rows in the ball"

    n_samples: int
    n_values: int
    norm_bound: float
    sigma_sums: float
    sigma_moment: float
    labels: str = "public"

    def moves(self, radius):
        """How far one substitution moves the sums, and the second moment."""
        domain = Domain.of_rounded_rows(self.norm_bound, radius)
        sums = 4.0 * self.n_samples**2 * ROUNDOFF * domain.norm_bound
        return domain.radius + sums, 2.0 * domain.norm_bound * (domain.radius + sums)

    def mu_at(self, radius, labels):
        """Of both together; labels are public, so no more is ever asked."""
        sums, moment = self.moves(radius)
        spent = math.hypot(sums / self.sigma_sums, moment / self.sigma_moment)
        return spent + grid_slack(self.n_values)


# %%
# The mechanism splits the budget between the two. All that depends on rows goes through ``noise``.
# Off-diagonal entries stand twice in a symmetric matrix: times :math:`\sqrt2` their distance is the
# Frobenius norm's.
class LeastSquares(Mechanism):
    """Ridge regression of one-versus-rest labels, from noisy sufficient statistics."""

    default_alpha = 0.01
    needs_alpha = True

    def __init__(self, *, share=0.5):
        self.share = share

    def promise(self, problem, budget):
        """Noise scales from public numbers."""
        if problem.labels == "protected" or problem.fit_intercept:
            raise ValueError("protect_labels and fit_intercept are not offered; leave them False.")
        d = problem.n_features
        n_values = problem.n_classes * d + d * (d + 1) // 2
        mu = budget.mu - 2.0 * grid_slack(n_values)
        unit = MomentsBound(problem.n_samples, n_values, problem.norm_bound, 1.0, 1.0)
        sums, moment = unit.moves(problem.radius)
        sigma = sums / (mu * math.sqrt(self.share)), moment / (mu * math.sqrt(1 - self.share))
        bound = MomentsBound(problem.n_samples, n_values, problem.norm_bound, *sigma)
        return Promise(bound, sensitivity=(sums, moment), sigma=sigma)

    def run(self, problem, promise, noise):
        """Two noisy statistics; everything after them is post-processing."""
        # In double precision from the start: what a projection rounds, no bound counts.
        X = project_onto_ball(problem.X.astype(float), problem.norm_bound)
        sums = np.array([X[problem.codes == c].sum(axis=0) for c in range(problem.n_classes)])
        sums = noise(sums, promise.bound.sigma_sums)
        rows, columns = np.triu_indices(X.shape[1])
        twice = np.where(rows == columns, 1.0, math.sqrt(2.0))
        upper = noise((X.T @ X)[rows, columns] * twice, promise.bound.sigma_moment) / twice
        moment = np.zeros((X.shape[1], X.shape[1]))
        moment[rows, columns] = moment[columns, rows] = upper
        values, vectors = np.linalg.eigh(moment)
        # Noise makes small eigenvalues negative; its own size is the least that is believed.
        floor = promise.bound.sigma_moment * math.sqrt(2.0 * X.shape[1])
        values = np.maximum(values, floor) + problem.alpha * problem.n_samples
        targets = (2.0 * sums - sums.sum(axis=0))[-1 if problem.n_classes == 2 else 0 :]
        return Outcome(targets @ (vectors / values) @ vectors.T)


# %%
# A head takes it as its mechanism. Release, JSON and accountant need nothing more.
X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(normalize(X), y, test_size=0.3, stratify=y, random_state=0)
head = BallDPSquaredHingeSVC(epsilon=4.0, radius=0.1, mechanism=LeastSquares(), fit_intercept=False)
with PrivacyAccountant(radius=0.1) as accountant:
    head.fit(X, y)
release = head.release_
print(release)
print(f"test accuracy {head.score(X_test, y_test):.3f}")
print(f"counted: epsilon {accountant.total().epsilon:.2f}")
print("read back:", Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release)

# %%
# The auditor runs it with every candidate in the hidden record's place, with noise that only keeps
# what it is given, and attacks real noise on those values. Few digits lie within 0.1 of another, so
# it audits a larger ball.
wide = BallDPSquaredHingeSVC(epsilon=4.0, radius=0.6, mechanism=LeastSquares(), fit_intercept=False)
auditor = ReconstructionAuditor(wide, n_draws=20, random_state=0).fit(X, y, X_test, y_test)
print(auditor.certificate_[["direct", "bayes"]].round(3).to_string())
print(f"measured {auditor.success_rate_:.3f}; holds: {auditor.guarantee_holds_}")

# %%
# A search tells what the mechanism's own parameter is worth.
shares = [0.1, 0.3, 0.5, 0.7, 0.9]
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for epsilon in (1.0, 4.0):
    scores = [
        np.mean(
            [
                head.set_params(epsilon=epsilon, mechanism__share=s).fit(X, y).score(X_test, y_test)
                for _ in range(5)
            ]
        )
        for s in shares
    ]
    ax.plot(shares, scores, marker="o", label=f"$\\varepsilon$ = {epsilon:g}")
ax.set_xlabel("share of the budget that goes to the class sums")
ax.set_ylabel("test accuracy")
_ = ax.legend()
