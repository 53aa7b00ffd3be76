r"""
A mechanism of your own
=======================

A fit is a conversation: a public algorithm asks queries, and a kernel, which alone sees the rows,
gives noisy answers. You may write the algorithm. If it asks only queries that this package proves,
there is nothing for you to prove. This example writes one of these first, and then a query of its
own, whose proof is its author's.
"""

# %%
# The first algorithm takes gradient steps until a noisy gradient is hardly longer than its noise.
# How many steps that are depends on the answers. It promises mu, the Gaussian differential privacy
# that may be spent: ``Promised``. The kernel charges every query to a *privacy filter*, and refuses
# one that the promise does not cover.
import json
import math
from dataclasses import dataclass
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyAccountant,
    ReconstructionAuditor,
)
from sklearn_balldp.mechanisms import MeanGradient, Mechanism, PrivacyError, Query
from sklearn_balldp.privacy import Promised, Release
from sklearn_balldp.publish import card, summary
from sklearn_balldp.rows import project_onto_ball, rows_in_domain


class StopsEarly(Mechanism):
    """Gradient steps until a noisy gradient is hardly longer than its noise."""

    def __init__(self, *, n_steps=50, rate=60.0, least=1.1):
        self.n_steps, self.rate, self.least = n_steps, rate, least

    def bound(self, problem, mu):
        return Promised(mu)

    def conversation(self, problem, bound):
        theta = np.zeros((problem.kind.n_scores, problem.n_features + problem.fit_intercept))
        mu = bound.budget / math.sqrt(self.n_steps) * (1.0 - 1e-12)  # room for rounding
        for _ in range(self.n_steps):
            query = MeanGradient(theta, clip=0.2, constant=float(problem.fit_intercept))
            query = query.calibrated(problem, mu)
            gradient = yield query
            if np.linalg.norm(gradient) < self.least * query.sigma * math.sqrt(theta.size):
                break
            theta = theta - self.rate * gradient
        return theta


# %%
# A head takes it as its mechanism. Plan, record, JSON and accountant need nothing more.
X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(normalize(X), y, test_size=0.3, stratify=y, random_state=0)
accountant = PrivacyAccountant(radius=0.6)
head = BallDPLogisticRegression(8.0, radius=0.6, mechanism=StopsEarly(), accountant=accountant)
planned = head.plan(*X.shape, np.bincount(y)).release
release = head.fit(X, y).release_
print(summary(release))
print(f"test accuracy {head.score(X_test, y_test):.3f}")
print(f"planned mu {planned.mu:.3f}, counted mu {accountant.total().mu:.3f}")
print("read back:", Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release)

# %%
# An audit lets the same conversation run with every candidate in the hidden record's place, and
# attacks all of its answers. It also tests the noise of the release.
auditor = ReconstructionAuditor(head, n_draws=5, random_state=0).fit(X, y)
print(auditor.certificate_[["direct", "bayes"]].round(3).to_string())
print(f"measured {auditor.success_rate_:.3f}; holds: {auditor.guarantee_holds_}")
print(auditor.noise_[["name", "verdict"]].to_string(index=False))


# %%
# The other way is a query of your own. Here it is class sums of rows that are seen from a *public*
# centre c: x becomes x - c, shortened to norm C. Neither step moves two rows further apart, so a
# row that is replaced by one of its label, at most t away, moves the sums by min(t, 2 C). That is
# the proof, and ``ratio`` states it in units of the noise. Rounding adds a little. Where the proof
# says nothing (label changes, records with weights) the ratio is infinite, and nothing is answered.
@dataclass(frozen=True)
class CentredSums(Query):
    """Class sums of rows, moved by a public centre and shortened to a public norm."""

    what: ClassVar[str] = "noise on centred class sums"
    additive: ClassVar[bool] = True  # a sum over records: audits need fewer passes

    centre: tuple[float, ...]
    norm: float
    sigma: float = 1.0

    def shape(self, problem):
        return problem.n_classes, problem.n_features

    def ratio(self, problem, radius, labels):
        if labels == "protected" or problem.weighted:
            return math.inf
        rounding = problem.n_samples**2 * 2.0**-50 * problem.norm_bound
        return (min(radius, 2.0 * self.norm) * (1.0 + 1e-6) + rounding) / self.sigma

    def values(self, problem, records):
        rows = np.asarray(records.X, dtype=np.float64)
        rows = rows_in_domain(rows, problem.norm_bound, problem.domain)
        rows = project_onto_ball(rows - self.centre, self.norm)
        return np.array([rows[records.codes == c].sum(axis=0) for c in range(problem.n_classes)])

    def theorem(self, problem):
        return "min(t, 2 C): class sums of rows around a public centre"


# %%
# A mechanism lists it in ``accepts``: that claims the proof. The query itself is the bound, so that
# the release states epsilon at every distance. The scores are those of the nearest class mean.
class CentredMeans(Mechanism):
    """Nearest class mean, seen from a public centre."""

    accepts = (CentredSums,)

    def __init__(self, centre, *, norm=0.6):
        self.centre, self.norm = centre, norm

    def bound(self, problem, mu):
        return CentredSums(tuple(self.centre), self.norm).calibrated(problem, mu)

    def conversation(self, problem, bound):
        means = (yield bound) / np.maximum(problem.class_sizes, 1.0)[:, None]
        offsets = -means @ np.array(bound.centre) - 0.5 * np.vecdot(means, means)
        return np.column_stack([means, offsets])


# %%
# Nobody but you has checked this proof. Record and card say so to everybody who reads them.
X_public, X_test, _, y_test = train_test_split(
    X_test, y_test, test_size=0.5, stratify=y_test, random_state=0
)
centre = X_public.mean(axis=0).tolist()
head = BallDPLogisticRegression(epsilon=1.0, mechanism=CentredMeans(centre)).fit(X, y)
print(head.release_.accepted)
print(next(line for line in card(head).splitlines() if "nobody else" in line))
again = Release.from_dict(json.loads(json.dumps(head.release_.to_dict())))
print("read back:", again == head.release_, "at 0.5:", round(again.guarantee(0.5).epsilon, 2))
auditor = ReconstructionAuditor(head, n_draws=5, random_state=0).fit(X, y)
print(f"audit: measured {auditor.success_rate_:.3f}; holds: {auditor.guarantee_holds_}")


# %%
# A conversation that asks for less noise than its bound states is refused before any is drawn. A
# class that changes the conversation alone must name the bound again: it is a claim of its author.
class Greedy(CentredMeans):
    """Takes a tenth off the noise."""

    bound = CentredMeans.bound

    def conversation(self, problem, bound):
        return super().conversation(problem, bound.scaled(0.9))


try:
    BallDPLogisticRegression(epsilon=1.0, mechanism=Greedy(centre)).fit(X, y)
except PrivacyError as error:
    print(error)

# %%
# What is the public centre worth? At any distance (radius=None) a shorter norm takes less noise,
# and bends the means more. Prototypes need noise for a distance of 2.
norms = [0.3, 0.6, 1.0]


def accuracy(head):
    """Mean test accuracy of three releases."""
    return np.mean([head.fit(X, y).score(X_test, y_test) for _ in range(3)])


figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for epsilon, colour in ((0.5, "C0"), (2.0, "C1")):
    scores = [
        accuracy(BallDPLogisticRegression(epsilon, mechanism=CentredMeans(centre, norm=norm)))
        for norm in norms
    ]
    ax.plot(norms, scores, "o-", color=colour, label=f"$\\varepsilon$ = {epsilon:g}")
    ax.axhline(accuracy(BallDPRidgePrototype(epsilon)), color=colour, linestyle=":")
ax.plot([], [], ":", color="0.4", label="prototypes")
ax.set_xlabel("norm C that rows around the public centre are shortened to")
ax.set_ylabel("test accuracy, any distance")
_ = ax.legend()
