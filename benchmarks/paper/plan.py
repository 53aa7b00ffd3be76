"""The cells that each table of the paper needs."""

from . import published
from .protocol import (
    METHODS,
    NOISELESS,
    PAPERS_NUMBER,
    PUBLIC_LABELS,
    QUANTILES,
    Accuracy,
    Identification,
    Radius,
)

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
#: Releases of many values, or at budgets beyond those of the tables: accuracy varies less there.
FEWER = {"ridge paper": 30, PAPERS_NUMBER: 30, "ridge": 10}
#: Heads under every adjacency, and the noiseless head each is held against: scikit-learn's, or
#: (prototypes with a noise-aware decision) the same with its noise sent to nothing.
WITHOUT_NOISE = {"ridge": "ridge", "logistic": "LogisticRegression", "svc": "LinearSVC"}


def _accuracy(quick, dataset, method, policy, epsilon):
    releases = METHODS[method][1]
    if epsilon > max(TABLE_EPSILONS) or dataset in LARGE:
        releases = FEWER.get(method, releases)
    releases = 2 if quick else releases
    return Accuracy(dataset, method, policy, epsilon, releases)


def _noiseless(dataset):
    methods = ("NearestCentroid", "ridge per class", *WITHOUT_NOISE.values())
    return [Accuracy(dataset, method, "full", NOISELESS, 1) for method in methods]


def table1(dataset, quick):
    cells = _noiseless(dataset)
    for epsilon in TABLE_EPSILONS:
        for policy in (*PUBLIC_LABELS, "labels"):
            methods = ["ridge"] if policy == "labels" else ["ridge paper", "ridge"]
            # The published budget has more, where descents are fast.
            more = epsilon == TABLE_EPSILONS[0] and dataset not in LARGE
            if more or policy not in BETWEEN:
                methods.append("logistic")
            if more and policy not in BETWEEN:
                methods.append("svc")
            cells += [_accuracy(quick, dataset, method, policy, epsilon) for method in methods]
    if dataset in published.N_SAMPLES:
        cells += [
            _accuracy(quick, dataset, PAPERS_NUMBER, policy, TABLE_EPSILONS[0])
            for policy in PUBLIC_LABELS
        ]
    return cells


#: Lines of this package's heads: what each hides.
LINES = {
    "prototypes, q50": ("ridge", "q50"),
    "logistic, q50": ("logistic", "q50"),
    "logistic, any distance": ("logistic", "full"),
    "logistic, labels protected": ("logistic", "labels"),
}


def tradeoff(dataset, quick):
    cells = _noiseless(dataset)
    for epsilon in EPSILONS:
        lines = [("ridge paper", policy) for policy in PUBLIC_LABELS]
        if not (dataset in LARGE and epsilon == LEFT_OUT):
            lines += LINES.values()
        cells += [_accuracy(quick, dataset, method, policy, epsilon) for method, policy in lines]
    return cells


def convex(dataset, quick):
    if dataset != "imdb":
        return []
    methods = [
        f"{head}{kind}" for head in ("logistic", "svc") for kind in (" paper", " output", "")
    ]
    return _noiseless(dataset) + [
        _accuracy(quick, dataset, method, policy, epsilon)
        for method in ("ridge paper", "ridge", *methods)
        for policy in ("q50", "full")
        for epsilon in published.CONVEX_EPSILONS
    ]


def heads(dataset, quick):
    # scikit-learn's are among the noiseless.
    methods = [name for name, (head, _) in METHODS.items() if hasattr(head, "epsilon")]
    methods.remove(PAPERS_NUMBER)
    return _noiseless(dataset) + [
        _accuracy(quick, dataset, method, "q50", 2.0) for method in methods
    ]


def identification(dataset, quick):
    return [
        Identification(dataset, counts, policy, epsilon, 1 if quick else REPEATS)
        for policy in (*QUANTILES, "diameter")
        for epsilon in AUDIT_EPSILONS
        for counts in ("min", "per_class")
    ]


def calibration(dataset, quick):
    return [Radius(dataset, policy) for policy in (*QUANTILES, "diameter")]


TABLES = {
    "table1": table1,
    "tradeoff": tradeoff,
    "convex": convex,
    "heads": heads,
    "identification": identification,
    "calibration": calibration,
}
