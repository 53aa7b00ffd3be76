"""What is measured for every table of the paper, and the cells that each of them needs."""

import itertools
import math

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.svm import LinearSVC

from benchmarks.study import (
    DATASETS,
    DELTA,
    EXACT,
    Study,
    fits,
    radius_of,
    rows_of,
    scores,
    stream_of,
)
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    OutputPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, mu_from_budget

from . import published

QUANTILES = {"q50": 0.5, "q80": 0.8, "q95": 0.95}
#: Policies with public labels: three balls, then every substitution.
PUBLIC_LABELS = (*QUANTILES, "full")
#: Policies of an audit; the paper calls the last one "full".
AUDITED = (*QUANTILES, "diameter")
NOISELESS = 1e9
N_CANDIDATES, N_SUPPORTS = 10, 4
EPSILONS = (0.5, 1.0, 2.0, 8.0, 32.0)
#: epsilon of Table 1.
TABLE_EPSILON = 2.0
AUDIT_EPSILONS = (2.0, 4.0, 8.0)
#: Setup seeds of an audit: 4 supports of 10 candidates each.
REPEATS = 10
#: Datasets of many values: a descent takes long there.
LARGE = ("agnews", "cifar10", "mnist")
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
    "LogisticRegression": (EXACT, 1),
    "LinearSVC": (LinearSVC(), 1),
}
#: Releases of many values, or at budgets beyond those of the tables: accuracy varies less there.
FEWER = {"ridge paper": 30, PAPERS_NUMBER: 30, "ridge": 10}
#: Heads under every adjacency, and the noiseless head each is held against: scikit-learn's, or
#: (prototypes with a noise-aware decision) the same with its noise sent to nothing.
WITHOUT_NOISE = {"ridge": "ridge", "logistic": "LogisticRegression", "svc": "LinearSVC"}
#: Lines of this package's heads: what each hides.
LINES = {
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
    cell, releases = {"radius": np.nan}, min(releases, run.most or releases)
    cell["releases"] = releases
    if "epsilon" not in head.get_params():
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
    found = [scores(own.predict(X_test), y_test, rarest)[:3] for own in heads]
    accuracy, balanced, rare = zip(*found, strict=True)
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
    repeats = min(repeats, run.most or repeats)
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
        "repeats": repeats,
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


# Which cells a table needs ------------------------------------------------------------------------


def accuracy(dataset, method, policy, epsilon):
    """A cell of the study "accuracy"."""
    releases = METHODS[method][1]
    if epsilon > TABLE_EPSILON or dataset in LARGE:
        releases = FEWER.get(method, releases)
    return dataset, method, policy, epsilon, releases


def _noiseless(dataset):
    methods = ("ridge per class", *WITHOUT_NOISE.values())
    return [(dataset, method, "full", NOISELESS, 1) for method in methods]


def table1(dataset):
    cells = []
    for policy in (*PUBLIC_LABELS, "labels"):
        methods = ["ridge"] if policy == "labels" else ["ridge paper", "ridge"]
        # The others have more where descents are fast.
        if dataset not in LARGE or policy not in BETWEEN:
            methods.append("logistic")
        if dataset not in LARGE and policy not in BETWEEN:
            methods.append("svc")
        cells += [(method, policy, TABLE_EPSILON) for method in methods]
    if dataset in published.N_SAMPLES:
        cells += itertools.product([PAPERS_NUMBER], PUBLIC_LABELS, [TABLE_EPSILON])
    # What counts save is on the page of errors; that noise costs little is claimed of every head.
    return [*cells, *((method, "q50", TABLE_EPSILON) for method in ("ridge per class", "svc"))]


def worth(dataset):
    return [(*line, epsilon) for epsilon in EPSILONS for line in LINES.values()]


def convex(dataset):
    heads = itertools.product(("logistic", "svc"), (" paper", " output", ""))
    methods = "ridge paper", "ridge", *("".join(head) for head in heads)
    cells = itertools.product(methods, ("q50", "full"), published.CONVEX_EPSILONS)
    return cells if dataset == "imdb" else []


def accuracy_cells(run):
    """Of Table 1, of the curves, and of the table of IMDb."""
    for dataset in run.have(DATASETS):
        yield from _noiseless(dataset)
        for table in (table1, worth, convex):
            yield from (accuracy(dataset, *cell) for cell in table(dataset))


def identification_cells(run):
    ways = itertools.product(
        run.have(DATASETS), ("min", "per_class"), AUDITED, AUDIT_EPSILONS, [REPEATS]
    )
    return list(ways)


def _error(row):
    """Of a mean; none is known of one release."""
    return row["sd"] / math.sqrt(row["releases"]) if row["releases"] > 1 else math.nan


STUDIES = {
    "accuracy": Study(
        "accuracy_cells.csv",
        ("dataset", "method", "policy", "epsilon", "releases"),
        _accuracy,
        accuracy_cells,
        {"mean": _error, "full": 1.01},
    ),
    "identification": Study(
        "identification_cells.csv",
        ("dataset", "counts", "policy", "epsilon", "repeats"),
        _identification,
        identification_cells,
        {"rate": lambda row: (row["exact_high"] - row["exact_low"]) / 3.92, "certificate": 1.001},
    ),
    "radius": Study(
        "radius_cells.csv",
        ("dataset", "policy"),
        _radius,
        lambda run: itertools.product(run.have(DATASETS), AUDITED),
        {"radius": 1.001, "n": 0.0, "n_min": 0.0},
    ),
}
