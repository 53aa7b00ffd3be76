"""What is measured, once for every table: data, radii, heads, and the cells that a run fills.

A cell is one measurement, named by its fields; its noise depends on them and the base seed alone,
so cells may be computed in any order, in any process, and again after an interruption.
"""

import dataclasses
import functools
import hashlib
import math
import warnings
import zlib
from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVC

from benchmarks import noiseless
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    OutputPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.datasets import load_embeddings
from sklearn_balldp.distances import private_quantile, same_label_quantile
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, mu_from_budget

from . import published

#: The seven datasets of the paper, and how tables call them.
DATASETS = {
    "trec6": "TREC-6",
    "emotion": "Emotion",
    "banking77": "BANKING77",
    "agnews": "AG News",
    "imdb": "IMDb",
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
}
DELTA = 1e-6
QUANTILES = {"q50": 0.5, "q80": 0.8, "q95": 0.95}
#: Policies with public labels: three balls, then every substitution.
PUBLIC_LABELS = (*QUANTILES, "full")
NOISELESS = 1e9
N_CANDIDATES, N_SUPPORTS = 10, 4
#: epsilon of the private quantile, and its draws.
RADIUS_EPSILON, RADIUS_DRAWS = 0.5, 20
#: Same-label pairs of all classes that are looked at, and how many of them if they are more.
ALL_PAIRS, SOME_PAIRS = 250_000, 100_000

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


@functools.lru_cache(maxsize=2)
def load(path):
    """Arrays of one dataset, and its labels: the official splits, unit rows."""
    file = load_embeddings(path)
    rows = [file[name] for name in ("X_train", "y_train", "X_test", "y_test")]
    return *rows, np.unique(np.concatenate([rows[1], rows[3]]))


@functools.lru_cache(maxsize=64)
def radius_of(path, quantile):
    """The paper's radius: the largest class's quantile of distances, on the training rows."""
    X, y, *_ = load(path)
    return same_label_quantile(X, y, quantile)


def pooled_quantile(X, y, quantile):
    """Quantile of the distances of all same-label pairs together; of a sample, if they are many."""
    rows = [own for own in (X[y == label] for label in np.unique(y)) if len(own) > 1]
    rng = np.random.default_rng(0)
    counts = np.array([math.comb(len(own), 2) for own in rows])
    if counts.sum() <= ALL_PAIRS:
        return float(np.quantile(np.concatenate([pdist(own) for own in rows]), quantile))
    found = []
    # Uniform over the pairs: classes in proportion to theirs.
    for own, share in zip(rows, rng.multinomial(SOME_PAIRS, counts / counts.sum()), strict=True):
        first = rng.integers(len(own), size=share)
        second = (first + rng.integers(1, len(own), size=share)) % len(own)
        for part in range(0, share, 4096):
            pairs = own[first[part : part + 4096]], own[second[part : part + 4096]]
            found.append(np.linalg.norm(pairs[0].astype(np.float64) - pairs[1], axis=1))
    return float(np.quantile(np.concatenate(found), quantile))


@functools.cache
def _checksum(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


def mean_interval(scores):
    """Mean, standard deviation and 95% Student interval over independent releases."""
    mean, n = float(np.mean(scores)), len(scores)
    if n == 1:
        return {"mean": mean, "sd": 0.0, "low": mean, "high": mean}
    sd = float(np.std(scores, ddof=1))
    half = float(student.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return {"mean": mean, "sd": sd, "low": mean - half, "high": mean + half}


def scores(y, y_test, predictions):
    """Accuracy, balanced accuracy, and recall of the class with the fewest training records.

    As scikit-learn's metrics have them, which would look at the labels anew for each prediction.
    """
    seen, counts = np.unique(y, return_counts=True)
    classes, codes, n_each = np.unique(y_test, return_inverse=True, return_counts=True)
    for predicted in predictions:
        right = predicted == y_test
        recalls = np.bincount(codes, weights=right) / n_each
        rarest = recalls[classes == seen[np.argmin(counts)]]
        yield np.mean(right), np.mean(recalls), rarest.sum()


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


@dataclasses.dataclass(frozen=True)
class Cell:
    """A measurement: :meth:`measure` returns its numbers."""

    dataset: str

    def key(self):
        return tuple(dataclasses.asdict(self).values())

    def stream(self, seed):
        name = repr((type(self).__name__, self.key()))
        return np.random.default_rng([seed, zlib.crc32(name.encode())])

    def path(self, folder):
        return Path(folder) / f"{self.dataset}.npz"

    def fingerprint(self, folder):
        """Short checksum of the dataset's file."""
        return _checksum(self.path(folder))


@dataclasses.dataclass(frozen=True)
class Accuracy(Cell):
    """Test scores of a head over releases that share nothing but the data."""

    method: str
    policy: str
    epsilon: float
    releases: int

    RESULTS = (
        "radius",
        "mean",
        "sd",
        "low",
        "high",
        "balanced",
        "rarest",
        "full",
        "mu_at_q50",
        "sigma",
    )

    def measure(self, folder, seed):
        path = self.path(folder)
        X, y, X_test, y_test, classes = load(path)
        head = clone(METHODS[self.method][0])
        radius = None
        if "epsilon" in head.get_params():
            radius = radius_of(path, QUANTILES[self.policy]) if self.policy in QUANTILES else None
            epsilon = self.epsilon
            if self.method == PAPERS_NUMBER:
                epsilon = epsilon_at(epsilon, len(y), published.N_SAMPLES[self.dataset], head.alpha)
            head.set_params(epsilon=epsilon, delta=DELTA, radius=radius)
            head.set_params(random_state=self.stream(seed))
            if self.policy == "labels":
                head.set_params(protect_labels=True, classes=classes)
        with warnings.catch_warnings(), noiseless.shared(X):
            # NearestCentroid remarks on a constant feature, which harms nothing.
            warnings.filterwarnings("ignore", message="self.within_class_std_dev_ has at least 1")
            labels = [head.fit(X, y).predict(X_test) for _ in range(self.releases)]
        found = {"radius": radius if radius is not None else np.nan}
        accuracy, balanced, rarest = zip(*scores(y, y_test, labels), strict=True)
        found |= mean_interval(accuracy)
        found |= {"balanced": np.mean(balanced), "rarest": np.mean(rarest)}
        found |= {"full": np.nan, "mu_at_q50": np.nan, "sigma": np.nan}
        release = getattr(head, "release_", None)
        if release is not None:
            found |= _promised(head, radius_of(path, QUANTILES["q50"]))
            if release.mechanism != "gradient":
                found["sigma"] = float(np.max(release.sigma))
        return found


@dataclasses.dataclass(frozen=True)
class Identification(Cell):
    """The paper's audit of ridge prototypes: ten setup seeds of four supports of ten candidates."""

    counts: str
    policy: str
    epsilon: float
    repeats: int

    RESULTS = ("radius", "rate", "low", "high", "exact_low", "exact_high", "bayes", "certificate")

    def measure(self, folder, seed):
        path = self.path(folder)
        X, y, X_test, y_test, _ = load(path)
        radius = support = radius_of(path, QUANTILES.get(self.policy, 1.0))
        if self.policy == "diameter":
            support = radius_of(path, QUANTILES["q80"])
        head = BallDPRidgePrototype(self.epsilon, DELTA, radius, counts=self.counts)
        stream = int(self.stream(seed).integers(2**31))
        auditor = ReconstructionAuditor(
            head,
            n_candidates=N_CANDIDATES,
            n_supports=N_SUPPORTS * self.repeats,
            radius=support,
            n_jobs=1,
            random_state=stream,
        ).fit(X, y, X_test, y_test)
        low, high = auditor.success_interval_["seed_first"]
        if self.repeats > 1:
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


@dataclasses.dataclass(frozen=True)
class Radius(Cell):
    """A radius, and the error of the private quantile that could stand in for it."""

    policy: str

    RESULTS = (
        "radius",
        "n",
        "d",
        "classes",
        "n_min",
        "n_max",
        "pooled",
        "private_mean",
        "private_error",
    )

    def measure(self, folder, seed):
        path = self.path(folder)
        X, y, *_ = load(path)
        quantile = QUANTILES.get(self.policy, 1.0)
        radius = radius_of(path, quantile)
        counts = np.unique(y, return_counts=True)[1]
        found = {
            "radius": radius,
            "n": len(y),
            "d": X.shape[1],
            "classes": len(counts),
            "n_min": int(counts.min()),
            "n_max": int(counts.max()),
            "pooled": np.nan,
            "private_mean": np.nan,
            "private_error": np.nan,
        }
        if self.policy in QUANTILES:
            stream = self.stream(seed)
            draws = [
                private_quantile(
                    X, y, quantile, epsilon=RADIUS_EPSILON, norm_bound=1.0, random_state=stream
                )
                for _ in range(RADIUS_DRAWS)
            ]
            found["pooled"] = pooled_quantile(X, y, quantile)
            found["private_mean"] = np.mean(draws)
            found["private_error"] = np.sqrt(np.mean((np.array(draws) - radius) ** 2))
        return found
