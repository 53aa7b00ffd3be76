"""Public settings drawn at random, and the neighbouring data sets that an attacker may choose."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
)
from sklearn_balldp.mechanisms import DescentBound
from sklearn_balldp.mechanisms.sums import class_sums
from sklearn_balldp.privacy.problem import Problem

from .replay import Records

Array = NDArray[np.float64]
Rng = np.random.Generator

HEADS: dict[str, Callable[..., Any]] = {
    head.__name__: head
    for head in (
        BallDPRidgePrototype,
        BallDPLinearDiscriminant,
        BallDPLogisticRegression,
        BallDPSquaredHingeSVC,
    )
}
#: A start of a descent that takes the second moment, although records are few.
MOMENT = "moment"
#: Directions of steps through which values are published, for each value of the genome.
N_DEVIATES = 24
# Lengths of vectors in the three metrics.
NORMS: dict[str, float] = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}


class Altered(GradientPerturbation):
    """A descent whose start tells the second moment, if ``moment``: few records would not get it.

    Steps then see shortened rows.
    """

    def __init__(
        self,
        *,
        n_steps: int | str = "auto",
        learning_rate: float | None = None,
        clip: float | str | None = "auto",
        start: str = "auto",
        keep_transcript: bool = False,
        moment: bool = False,
    ) -> None:
        super().__init__(
            n_steps=n_steps,
            learning_rate=learning_rate,
            clip=clip,
            start=start,
            keep_transcript=keep_transcript,
        )
        self.moment = moment

    def bound(self, problem: Problem, mu: float) -> DescentBound:
        bound = super().bound(problem, mu)
        if not self.moment:
            return bound
        start: Any = bound.start
        return replace(bound, start=class_sums(problem, start.mu(problem), 0.5))


@dataclass(frozen=True)
class Setting:
    """Everything public about a fit, and which records its attacker replaces."""

    mechanism: str
    head: str
    parameters: dict[str, Any]
    options: dict[str, Any] | None
    n_features: int
    labels: tuple[int, ...]
    owners: tuple[int, ...] | None
    replaced: tuple[int, ...]
    new_labels: tuple[int, ...]
    n_units: int
    factor: float
    dtype: str

    def make(self) -> Any:
        """The head, not fitted."""
        given = dict(self.parameters)
        if self.options is not None:
            own: dict[str, Any] = dict(self.options)
            if own.get("start") == MOMENT:
                own |= {"start": "statistics", "moment": True}
            given["mechanism"] = (Altered if "n_steps" in own else OutputPerturbation)(**own)
        return HEADS[self.head](**given)

    @property
    def norm_bound(self) -> float:
        return float(self.parameters["norm_bound"])

    @property
    def distance(self) -> float:
        """How far a replaced record may move, in the metric of the radius."""
        return float(self.parameters["radius"]) * self.factor

    @property
    def size(self) -> int:
        """Numbers that say what the data sets are."""
        return (len(self.labels) + 2 * len(self.replaced)) * self.n_features + N_DEVIATES + 1

    def pair(self, genome: Array) -> tuple[Records, Records, Callable[[int, Array], Array]]:
        """Neighbouring data sets, and the noise of the first, in units of its scale."""
        n, d, m = len(self.labels), self.n_features, len(self.replaced)
        rows, steps, news = np.split(genome[: (n + 2 * m) * d].reshape(-1, d), [n, n + m])
        sphere = self.parameters.get("domain") == "sphere"
        X = _into(rows, self.norm_bound, sphere)
        other = X.copy()
        for place, step, new, label in zip(
            self.replaced, steps, news, self.new_labels, strict=True
        ):
            if label != self.labels[place]:
                other[place] = _into(new[None], self.norm_bound, sphere)[0]
            elif sphere:
                other[place] = _turned(X[place], step, self.distance)
            else:
                size = np.linalg.norm(step, NORMS[self.parameters["metric"]])
                other[place] = X[place] + step * self.distance / max(size, 1.0)
        y, changed = np.array(self.labels), np.array(self.labels)
        changed[list(self.replaced)] = self.new_labels
        groups = None if self.owners is None else np.array(self.owners)
        dtype = np.dtype(self.dtype)
        deviates, scale = genome[-1 - N_DEVIATES : -1], np.exp(min(genome[-1], 12.0))

        def deviate(number: int, given: Array) -> Array:
            turned = np.roll(deviates, -4) if number else deviates
            return np.resize(turned, given.shape) * scale

        one, two = (
            Records(x.astype(dtype), labels, groups) for x, labels in ((X, y), (other, changed))
        )
        return one, two, deviate

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Setting":
        given = json.loads(text)
        for name in ("labels", "owners", "replaced", "new_labels"):
            given[name] = None if given[name] is None else tuple(given[name])
        return cls(**given)


def _into(rows: Array, norm_bound: float, sphere: bool) -> Array:
    """Rows scaled to the sphere; in the ball, those that are longer than one."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    if sphere:
        rows = np.where(size > 0.0, rows, np.eye(1, rows.shape[1]))
        size = np.where(size > 0.0, size, 1.0)
    return rows * norm_bound / (size if sphere else np.maximum(size, 1.0))


def _turned(row: Array, step: Array, chord: float) -> Array:
    """The row turned towards the step, no further than the chord is long."""
    length = np.linalg.norm(row)
    across = step - (step @ row) / length**2 * row
    size = np.linalg.norm(across)
    if size == 0.0:
        return row.copy()
    most = 2.0 * np.arcsin(min(0.5 * chord / length, 1.0))
    angle = most * min(size, 1.0)
    return np.cos(angle) * row + np.sin(angle) * across * (length / size)


MECHANISMS = (
    "ridge prototypes",
    "discriminant",
    "descent from zero",
    "descent from sums",
    "minimiser, logistic",
    "minimiser, softmax",
    "minimiser, squared hinge",
)


def draw(mechanism: str, rng: Rng) -> Setting:
    """A setting of this mechanism."""
    minimiser = mechanism.startswith("minimiser")
    descent = mechanism.startswith("descent")
    k = 2 if mechanism == "minimiser, logistic" else int(rng.integers(2, 5))
    if mechanism == "minimiser, softmax":
        k = int(rng.integers(3, 6))
    n_units = int(rng.integers(2, 13))
    norm_bound = float(rng.choice([1.0, 1.0, 0.3, 7.0]))
    protect = bool(rng.random() < 0.35)
    parameters: dict[str, Any] = {
        "epsilon": float(rng.choice([0.3, 2.0, 20.0])),
        "radius": norm_bound * float(rng.choice([0.01, 0.1, 0.3, 0.3, 1.0, 1.6, 2.0])),
        "metric": str(rng.choice(["euclidean", "euclidean", "euclidean", "manhattan"])),
        "norm_bound": norm_bound,
    }
    options: dict[str, Any] | None = None
    head = "BallDPLogisticRegression"
    if mechanism == "ridge prototypes":
        head = "BallDPRidgePrototype"
        parameters["alpha"] = float(rng.choice([1e-3, 0.01, 0.3, 3.0]))
        parameters["counts"] = str(rng.choice(["per_class", "per_class", "min", "worst"]))
    elif mechanism == "discriminant":
        head = "BallDPLinearDiscriminant"
        parameters["share"] = float(rng.choice([0.2, 0.5, 0.8]))
    else:
        if mechanism.endswith("hinge") or (descent and rng.random() < 0.4):
            head = "BallDPSquaredHingeSVC"
        parameters["fit_intercept"] = bool(rng.random() < 0.5)
        parameters["alpha"] = float(rng.choice([1e-3, 0.03, 0.3]))
        options = {"tol": 1e-9 / norm_bound} if minimiser else {"n_steps": int(rng.integers(1, 5))}
        if mechanism == "descent from zero":
            free = 1.5 if head == "BallDPSquaredHingeSVC" else None
            options |= {"start": "zero", "clip": [free, 0.2, 1.0][rng.integers(3)]}
            options["learning_rate"] = float(rng.choice([0.5, 5.0])) / norm_bound**2
        elif descent:
            starts = ["statistics", "prototypes", "mean", MOMENT]
            options["start"] = str(rng.choice(starts[: 4 if parameters["fit_intercept"] else 2]))
            if options["start"] == MOMENT:
                # So few records tell directions only where there is little noise.
                parameters["epsilon"] = float(rng.choice([2.0, 20.0, 500.0]))
    if head != "BallDPRidgePrototype" and rng.random() < 0.35:
        parameters |= {"domain": "sphere", "metric": "euclidean"}
    if protect:
        parameters |= {"protect_labels": True, "classes": list(range(k))}
    persons = bool(rng.random() < 0.3)
    if persons and parameters.get("counts") == "worst":
        # It is for single records.
        parameters["counts"] = "per_class"
    sizes = rng.integers(1, 4, size=n_units) if persons else np.ones(n_units, dtype=int)
    owners = np.repeat(np.arange(n_units), sizes)
    labels = rng.integers(k, size=len(owners))
    if not protect:
        # Every class has a record, or the labels would name fewer.
        labels[: min(k, len(labels))] = np.arange(min(k, len(labels)))
    several = 2 if n_units > 2 and rng.random() < 0.2 else 1
    replaced = np.flatnonzero(np.isin(owners, rng.permutation(n_units)[:several]))
    new = labels[replaced].copy()
    if protect and rng.random() < 0.8:
        new = rng.integers(k, size=len(replaced))
    d = int(rng.integers(1, 4))
    if head != "BallDPRidgePrototype" and d == 1 and parameters.get("domain") == "sphere":
        d = 2
    return Setting(
        mechanism=mechanism,
        head=head,
        parameters=parameters,
        options=options,
        n_features=d,
        labels=tuple(labels.tolist()),
        owners=tuple(owners.tolist()) if persons else None,
        replaced=tuple(replaced.tolist()),
        new_labels=tuple(new.tolist()),
        n_units=several,
        # Within, at and beyond the radius.
        factor=float(rng.choice([1.0, 1.0, 1.0, 0.5, 1.5, 2.0, 3.0, 4.0, 100.0])),
        dtype=str(rng.choice(["float64", "float64", "float32"])),
    )
