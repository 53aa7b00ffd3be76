"""Attacks on the privacy filter: queries of every kind, asked until it refuses them.

Two data sets whose one record lies as far apart as the radius allows answer the same queries. What
they gave away together, by plain formulas, is compared with what was promised.
"""

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.mechanisms import PROVED, Kernel, MeanGradient, PrivacyError, Query, Sums

from . import settings
from .plain import values
from .replay import Records, Replay, distance_of, fit
from .search import Found
from .settings import Rng, Setting

NAME = "what the filter lets pass"


def _pair(setting: Setting) -> tuple[Records, Records]:
    """Rows of zeros, but for one, which moves by the radius along an axis."""
    radius = float(setting.parameters["radius"])
    one = np.zeros((len(setting.labels), setting.n_features))
    other, place = one.copy(), setting.replaced[0]
    half = min(0.5 * radius, setting.norm_bound)
    one[place, 0], other[place, 0] = -half, half
    labels = np.array(setting.labels)
    return Records(one, labels), Records(other, labels)


def _asked(problem: Any, rng: Rng, sums_alone: bool) -> Query:
    """A query at a state that an algorithm might reach; the pair attains what sums may move."""
    kind = 0.0 if sums_alone else rng.random()
    if kind < 0.4:
        return Sums(pooled=bool(rng.random() < 0.5))
    if kind < 0.6:
        return Sums(sigma=float(10.0 ** rng.uniform(-1.0, 1.0)), moment=1.0)
    constant = 0.2 * problem.norm_bound if problem.fit_intercept else 0.0
    theta = rng.standard_normal((problem.kind.n_scores, problem.n_features + (constant > 0.0)))
    theta *= 10.0 ** rng.uniform(-1.0, 1.5) / problem.norm_bound
    return MeanGradient(theta, clip=[None, 0.2][rng.integers(2)], constant=constant)


def attack(rng: Rng, tries: int) -> Found:
    """Ask until nothing is left, and more; a refused query must draw no noise."""
    drawn = settings.draw("descent from zero", rng)
    left_out = "domain", "protect_labels", "classes"
    given = {k: v for k, v in drawn.parameters.items() if k not in left_out}
    single = {"replaced": drawn.replaced[:1]}
    # Labels are public, and of two classes at least.
    single["labels"] = (0, 1, *drawn.labels[2:])
    setting = replace(
        drawn, parameters=given, owners=None, n_units=1, factor=1.0, dtype="float64", **single
    )
    one, other = _pair(setting)

    def deviate(number: int, exact: Any) -> Any:
        return rng.standard_normal(exact.shape)

    head = fit(setting.make(), one, Replay(deviate))
    released, problem = head.released_, head.released_.problem
    mu = float(10.0 ** rng.uniform(-1.0, 1.0))
    bound: Any = SimpleNamespace(mu=lambda _: mu, covers=lambda *_: True)
    noise, square, passed = Replay(deviate), 0.0, 0
    kernel = Kernel(problem, records_of(head, one.X, one.y), bound, noise, PROVED)
    sums_alone = bool(rng.random() < 0.5)
    for _ in range(int(rng.integers(5, 60))):
        share = float(rng.choice([0.01, 0.05, 0.2, 0.5, 1.0]))
        query = _asked(problem, rng, sums_alone).calibrated(problem, mu * math.sqrt(share))
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                kernel(query)
        except PrivacyError:
            continue
        passed += 1
        first, second = (values(setting, records, query, released) for records in (one, other))
        scale = np.broadcast_to(query.scales(problem), first.shape)
        square += distance_of(first, second, scale) ** 2
    where = f"{passed} queries, mu {mu:.3g}"
    if len(noise.hidden) != passed:
        return Found(NAME, math.inf, passed, f"a refused query was answered: {where}")
    return Found(NAME, math.sqrt(square) / mu, max(passed, 1), where)
