"""What is measured for every table of the paper, and the cells that each of them needs."""

import itertools
import math
import warnings

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVC

from benchmarks.study import DELTA, Study, fits, radius_of, rows_of, stream_of
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    OutputPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, mu_from_budget

from . import comparators, published

QUANTILES = {"q50": 0.5, "q80": 0.8, "q95": 0.95}
#: Policies with public labels: three balls, then every substitution.
PUBLIC_LABELS = (*QUANTILES, "full")
#: Policies of an audit; the paper calls the last one "full".
AUDITED = (*QUANTILES, "diameter")
NOISELESS = 1e9
N_CANDIDATES, N_SUPPORTS = 10, 4
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
#: epsilon of Table 1, and a smaller one at which a ball matters more.
TABLE_EPSILONS = (2.0, 0.5)
AUDIT_EPSILONS = (2.0, 4.0, 8.0)
#: Setup seeds of an audit: 4 supports of 10 candidates each.
REPEATS = 10
#: Datasets of many values: a descent takes long there.
LARGE = ("agnews", "cifar10", "mnist")
#: A budget that they leave out: from 8 to 32 accuracy rises by less than half a point.
LEFT_OUT = 16.0
#: Radii between the smallest ball and any distance.
BETWEEN = ("q80", "q95")

#: The paper's prototypes with the noise that the paper's number of records would take.
PAPERS_NUMBER = "ridge paper, its n"
_PAPER = {"mechanism": OutputPerturbation(sensitivity="paper"), "alpha": 0.01}
#: Heads by name, and how many releases a cell averages (more where one varies more).
METHODS = {
    "ridge paper": (BallDPRidgePrototype(counts="worst", decision="nearest"), 100),
    PAPERS_NUMBER: (BallDPRidgePrototype(counts="worst", decision="nearest"), 100),
    "ridge per class": (BallDPRidgePrototype(decision="nearest"), 20),
    "ridge": (BallDPRidgePrototype(), 20),
    "logistic paper": (BallDPLogisticRegression(**_PAPER), 20),
    "logistic output": (BallDPLogisticRegression(mechanism="output"), 10),
    "logistic": (BallDPLogisticRegression(), 10),
    # The paper's numbers come from an SVM with a regularised intercept.
    "svc paper": (BallDPSquaredHingeSVC(**_PAPER), 20),
    "svc output": (BallDPSquaredHingeSVC(mechanism="output"), 10),
    "svc": (BallDPSquaredHingeSVC(), 10),
    "NearestCentroid": (NearestCentroid(), 1),
    "LogisticRegression": (LogisticRegression(C=10.0, max_iter=300), 1),
    "LinearSVC": (LinearSVC(), 1),
}
#: Releases of many values, or at budgets beyond those of the tables: accuracy varies less there.
FEWER = {"ridge paper": 30, PAPERS_NUMBER: 30, "ridge": 10}
#: Heads under every adjacency, and the noiseless head each is held against: scikit-learn's, or
#: (prototypes with a noise-aware decision) the same with its noise sent to nothing.
WITHOUT_NOISE = {"ridge": "ridge", "logistic": "LogisticRegression", "svc": "LinearSVC"}
#: Lines of this package's heads: what each hides.
LINES = {
    "prototypes, q50": ("ridge", "q50"),
    "logistic, q50": ("logistic", "q50"),
    "logistic, any distance": ("logistic", "full"),
    "logistic, labels protected": ("logistic", "labels"),
}


# How a cell is measured ---------------------------------------------------------------------------


def mean_interval(scores):
    """Mean, standard deviation and 95% Student interval over independent releases."""
    mean, n = float(np.mean(scores)), len(scores)
    sd = float(np.std(scores, ddof=1)) if n > 1 else 0.0
    half = float(student.ppf(0.975, n - 1)) * sd / math.sqrt(n) if n > 1 else 0.0
    return {"mean": mean, "sd": sd, "low": mean - half, "high": mean + half}


def epsilon_at(epsilon, n, other_n, alpha):
    """Epsilon at which worst-count prototypes of n records have the noise of those of other_n."""
    mu = mu_from_budget(epsilon, DELTA) * (2.0 + alpha * other_n) / (2.0 + alpha * n)
    return epsilon_from_mu(mu, DELTA)


def _promised(head, near):
    """Epsilon at full radius, and mu at another one.

    Noise for a count of one hides more than its budget says, where counts are public and larger:
    the paper's numbers are those of the budget, which grow with the radius.
    """
    release = head.release_
    if getattr(head, "counts", "") != "worst" or release.labels == "protected":
        mu_near = release.guarantee(radius=near, labels="public").mu
        return {"full": release.epsilon_full_radius, "mu_at_q50": mu_near}
    per_unit, longest = mu_from_budget(release.epsilon, DELTA) / release.radius, release.full_radius
    full = epsilon_from_mu(per_unit * longest, DELTA)
    return {"full": full, "mu_at_q50": per_unit * min(near, longest)}


def _accuracy(run, dataset, method, policy, epsilon, releases):
    """Test scores of a head over releases that share nothing but the data."""
    X, y, X_test, y_test = rows_of(run.data, dataset)
    head, radius = clone(METHODS[method][0]), None
    stream = stream_of(run, "Accuracy", (dataset, method, policy, epsilon, releases))
    cell = {"radius": np.nan}
    if "epsilon" not in head.get_params():
        with warnings.catch_warnings():
            # NearestCentroid remarks on a constant feature, which harms nothing.
            warnings.simplefilter("ignore", UserWarning)
            heads = [head.fit(X, y)]
    else:
        if policy in QUANTILES:
            cell["radius"] = radius = radius_of(run.data, dataset, QUANTILES[policy])
        if method == PAPERS_NUMBER:
            epsilon = epsilon_at(epsilon, len(y), published.N_SAMPLES[dataset], head.alpha)
        head.set_params(epsilon=epsilon, delta=DELTA, radius=radius)
        if policy == "labels":
            head.set_params(protect_labels=True, classes=np.union1d(y, y_test))
        heads = fits(head, X, y, [stream] * releases)
    labels, counts = np.unique(y, return_counts=True)
    rarest = labels[np.argmin(counts)]
    scores = [comparators.scores(own.predict(X_test), y_test, rarest)[:3] for own in heads]
    accuracy, balanced, rare = zip(*scores, strict=True)
    cell |= mean_interval(accuracy) | {"balanced": np.mean(balanced), "rarest": np.mean(rare)}
    cell |= {"full": np.nan, "mu_at_q50": np.nan, "sigma": np.nan}
    release = getattr(heads[-1], "release_", None)
    if release is not None:
        cell |= _promised(heads[-1], radius_of(run.data, dataset, QUANTILES["q50"]))
        if release.mechanism != "gradient":
            cell["sigma"] = float(np.max(release.sigma))
    return cell


def _identification(run, dataset, counts, policy, epsilon, repeats):
    """The paper's audit of ridge prototypes: setup seeds of four supports of ten candidates."""
    radius = support = radius_of(run.data, dataset, QUANTILES.get(policy, 1.0))
    if policy == "diameter":
        support = radius_of(run.data, dataset, QUANTILES["q80"])
    head = BallDPRidgePrototype(epsilon, DELTA, radius, counts=counts)
    stream = stream_of(run, "Identification", (dataset, counts, policy, epsilon, repeats))
    auditor = ReconstructionAuditor(
        head,
        n_candidates=N_CANDIDATES,
        n_supports=N_SUPPORTS * repeats,
        radius=support,
        n_jobs=1,
        random_state=int(stream.integers(2**31)),
    ).fit(*rows_of(run.data, dataset))
    low, high = auditor.success_interval_["seed_first"]
    if repeats > 1:
        # Each setup of the paper's has four supports.
        setups = auditor.report_.groupby(auditor.report_["support"] // N_SUPPORTS)["success"]
        interval = mean_interval(setups.mean())
        low, high = max(0.0, interval["low"]), min(1.0, interval["high"])
    exact_low, exact_high = auditor.success_interval_["clopper_pearson"]
    return {
        "radius": radius,
        "rate": auditor.success_rate_,
        "low": low,
        "high": high,
        "exact_low": exact_low,
        "exact_high": exact_high,
        "bayes": auditor.certificate_["bayes"],
        "certificate": auditor.certificate_["direct"],
    }


def _radius(run, dataset, policy):
    """The radius of a policy, and the counts that noise depends on."""
    _, y, *_ = rows_of(run.data, dataset)
    radius = radius_of(run.data, dataset, QUANTILES.get(policy, 1.0))
    return {"radius": radius, "n": len(y), "n_min": int(np.unique(y, return_counts=True)[1].min())}


STUDIES = {
    "accuracy": Study(
        "accuracy_cells.csv", ("dataset", "method", "policy", "epsilon", "releases"), _accuracy
    ),
    "identification": Study(
        "identification_cells.csv",
        ("dataset", "counts", "policy", "epsilon", "repeats"),
        _identification,
    ),
    "radius": Study("radius_cells.csv", ("dataset", "policy"), _radius),
}


# Which cells a table needs ------------------------------------------------------------------------


def accuracy(quick, dataset, method, policy, epsilon):
    """A cell of the study "accuracy"."""
    releases = METHODS[method][1]
    if epsilon > max(TABLE_EPSILONS) or dataset in LARGE:
        releases = FEWER.get(method, releases)
    return dataset, method, policy, epsilon, 2 if quick and releases > 1 else releases


def _noiseless(dataset):
    methods = ("NearestCentroid", "ridge per class", *WITHOUT_NOISE.values())
    return [(dataset, method, "full", NOISELESS, 1) for method in methods]


def table1(dataset, quick):
    cells = []
    for epsilon, policy in itertools.product(TABLE_EPSILONS, (*PUBLIC_LABELS, "labels")):
        methods = ["ridge"] if policy == "labels" else ["ridge paper", "ridge"]
        # The published budget has more, where descents are fast.
        more = epsilon == TABLE_EPSILONS[0] and dataset not in LARGE
        if more or policy not in BETWEEN:
            methods.append("logistic")
        if more and policy not in BETWEEN:
            methods.append("svc")
        cells += [(method, policy, epsilon) for method in methods]
    if dataset in published.N_SAMPLES:
        cells += itertools.product([PAPERS_NUMBER], PUBLIC_LABELS, TABLE_EPSILONS[:1])
    return cells


def tradeoff(dataset, quick):
    cells = []
    for epsilon in EPSILONS:
        lines = [("ridge paper", policy) for policy in PUBLIC_LABELS]
        if not (dataset in LARGE and epsilon == LEFT_OUT):
            lines += LINES.values()
        cells += [(*line, epsilon) for line in lines]
    return cells


def convex(dataset, quick):
    heads = itertools.product(("logistic", "svc"), (" paper", " output", ""))
    methods = "ridge paper", "ridge", *("".join(head) for head in heads)
    return itertools.product(methods, ("q50", "full"), published.CONVEX_EPSILONS)


def heads(dataset, quick):
    # scikit-learn's are among the noiseless.
    methods = [name for name, (head, _) in METHODS.items() if hasattr(head, "epsilon")]
    methods.remove(PAPERS_NUMBER)
    return itertools.product(methods, ["q50"], [2.0])


def identification(dataset, quick):
    repeats = 1 if quick else REPEATS
    ways = itertools.product(AUDITED, AUDIT_EPSILONS, ("min", "per_class"))
    return [(dataset, counts, policy, epsilon, repeats) for policy, epsilon, counts in ways]


TABLES = {
    "table1": table1,
    "tradeoff": tradeoff,
    "convex": convex,
    "heads": heads,
    "identification": identification,
    "calibration": lambda dataset, quick: itertools.product([dataset], AUDITED),
}


def cells_of(table, dataset, quick):
    """The study of a table, and its cells of a dataset."""
    cells = TABLES[table](dataset, quick)
    if table in ("identification", "calibration"):
        return "identification" if table == "identification" else "radius", list(cells)
    if table == "convex" and dataset != "imdb":
        return "accuracy", []
    return "accuracy", _noiseless(dataset) + [accuracy(quick, dataset, *cell) for cell in cells]
