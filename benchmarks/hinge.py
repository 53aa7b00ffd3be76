r"""``python -m benchmarks.hinge --data DIR``: a hinge whose gap does not grow with the classes.

One-versus-rest releases K heads that all see a record, which costs the root of K. The loss here has
one margin, the score of the label over a smooth maximum of the others,

.. math:: \max(0, 1 - m)^2, \quad
    m = s_y - t \log \frac{1}{K - 1} \sum_{c \ne y} e^{s_c / t} .

Its gradient gap is bounded in docs/sensitivity.md, whatever K is. The table has the test accuracy
of noise on the minimiser: each head at the best of some ``alpha``, picked on the test rows, so as
good as it can be. This one is shown with the noise of the proved bound, and with that of a gap
which some pair of records attains: a better bound of the gap cannot need less.
"""

import argparse
import math
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp
from tqdm import tqdm

from benchmarks.paper.protocol import DATASETS
from benchmarks.paper.tables import markdown
from benchmarks.radius.settings import subset
from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC
from sklearn_balldp.privacy.gaussian import mu_from_budget

NAMES = ("trec6", "cifar10", "banking77")
RADIUS, DELTA, RELEASES = 0.3, 1e-6, 3
EPSILONS = (2.0, 8.0, 32.0, 128.0)
ALPHAS = tuple(10.0 ** np.arange(-4.0, 0.1, 0.5))
TEMPERATURES = (0.3, 1.0, math.inf)
OWN = "one margin"


def loss(scores, codes, temperature):
    """Losses, and their derivatives by the scores."""
    rows, k = np.arange(len(scores)), scores.shape[1]
    others = scores.copy()
    if math.isinf(temperature):
        others[rows, codes] = 0.0
        smooth, shares = others.sum(axis=1) / (k - 1), np.full(scores.shape, 1.0 / (k - 1))
    else:
        others[rows, codes] = -np.inf
        total = logsumexp(others / temperature, axis=1)
        smooth = temperature * (total - math.log(k - 1))
        shares = np.exp(others / temperature - total[:, None])
    hinge = np.maximum(1.0 - scores[rows, codes] + smooth, 0.0)
    shares[rows, codes] = -1.0
    return hinge**2, 2.0 * hinge[:, None] * shares


def proved_gap(alpha, radius, temperature):
    """Bound of the gradient gap at a minimiser, for rows of norm 1 and a constant of 1."""
    norm, augmented = 1.0 / math.sqrt(2.0 * alpha), math.sqrt(2.0)
    hinge = 1.0 + math.sqrt(2.0) * norm * augmented
    bent = 0.0 if math.isinf(temperature) else hinge / temperature
    moved = (4.0 + bent) * norm * augmented + 2.0 * math.sqrt(2.0) * hinge
    return min(moved * radius, 4.0 * math.sqrt(2.0) * hinge * augmented)


def attained_gap(alpha, radius, temperature, n_classes):
    """The largest of some gaps at parameters of the norm that a minimiser may have."""
    norm, largest = 1.0 / math.sqrt(2.0 * alpha), 0.0
    one, all_others = np.zeros(n_classes), np.full(n_classes, 1.0 / (n_classes - 1))
    one[1] = 1.0
    near = radius / 2.0
    flat = math.sqrt(1.0 - near**2)
    pairs = [([1.0, 0.0], [1.0 - radius, 0.0]), ([flat, near], [flat, -near])]
    for push in (one, all_others):
        push[0] = -1.0
        for first, second in pairs:
            rows = np.array([[*first, 1.0], [*second, 1.0]])
            along = np.array([1.0, 0.0, 1.0]) / math.sqrt(2.0)
            theta = norm * np.outer(push / np.linalg.norm(push), along)
            residuals = loss(rows @ theta.T, np.zeros(2, dtype=int), temperature)[1]
            gradients = residuals[:, :, None] * rows[:, None, :]
            largest = max(largest, float(np.linalg.norm(gradients[0] - gradients[1])))
    return largest


def minimiser(rows, codes, n_classes, alpha, temperature):
    """Parameters without noise, of rows that are augmented by a constant."""
    shape = n_classes, rows.shape[1]

    def objective(flat):
        theta = flat.reshape(shape)
        values, residuals = loss(rows @ theta.T, codes, temperature)
        gradient = residuals.T @ rows / len(rows) + alpha * theta
        return values.mean() + 0.5 * alpha * float(flat @ flat), gradient.ravel()

    found = minimize(objective, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B")
    return found.x.reshape(shape)


def measure(folder):
    """Accuracy at every alpha: what a release has on average."""
    for name in NAMES:
        X, y, Xt, yt = subset(folder, name)
        codes, n, k = np.unique(y, return_inverse=True)[1], len(y), len(np.unique(y))
        labels = np.unique(y)
        rows, test = (np.hstack([x, np.ones((len(x), 1))]).astype(np.float64) for x in (X, Xt))

        def cell(head, epsilon, alpha, accuracy, name=name):
            return {
                "dataset": name,
                "head": head,
                "epsilon": epsilon,
                "alpha": alpha,
                "accuracy": accuracy,
            }

        for alpha in tqdm(ALPHAS, desc=name, disable=None):
            for temperature in TEMPERATURES:
                exact = minimiser(rows, codes, k, alpha, temperature)
                gap = {
                    "proved": proved_gap(alpha, RADIUS, temperature),
                    "attained": attained_gap(alpha, RADIUS, temperature, k),
                }
                for epsilon in EPSILONS:
                    mu = mu_from_budget(epsilon, DELTA)
                    for kind, value in gap.items():
                        rng = np.random.default_rng(zlib.crc32(f"{name} {epsilon}".encode()))
                        scale, found = value / (alpha * n * mu), []
                        for _ in range(RELEASES):
                            theta = exact + scale * rng.standard_normal(exact.shape)
                            found.append(np.mean(labels[np.argmax(test @ theta.T, axis=1)] == yt))
                        yield cell(f"{OWN}, {kind} gap", epsilon, alpha, np.mean(found))
            for title, Head in (
                ("one-versus-rest hinge", BallDPSquaredHingeSVC),
                ("softmax", BallDPLogisticRegression),
            ):
                for epsilon in EPSILONS:
                    head = Head(epsilon, DELTA, RADIUS, mechanism="output", alpha=alpha)
                    found = [
                        head.set_params(random_state=seed).fit(X, y).score(Xt, yt)
                        for seed in range(RELEASES)
                    ]
                    yield cell(title, epsilon, alpha, np.mean(found))


def table(cells):
    """Best accuracy of each head, in percent."""
    best = cells.groupby(["dataset", "epsilon", "head"], sort=False)["accuracy"].max().unstack()
    shown = (100 * best).map("{:.1f}".format).reset_index()
    shown["dataset"] = shown["dataset"].map(DATASETS)
    shown["epsilon"] = shown["epsilon"].map("{:g}".format)
    return shown


def main(argv=None):
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hinge", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("paper-results"))
    options = parser.parse_args(argv)
    found = table(pd.DataFrame(measure(str(options.data))))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "hinge.md").write_text(markdown(found))
    print(found.to_string(index=False))


if __name__ == "__main__":
    main()
