"""A fit before it is made: its record, its noise, and what may show above it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..mechanisms import DescentBound, Minimiser, Sums
from ..privacy.problem import Problem
from ..privacy.release import Release
from ..showing import one_line

#: Signal to noise below which most classes lose more than half of their recall, and above which
#: hardly one does: ``benchmarks/lost.py`` measures both.
LOST, AT_RISK = 0.5, 1.0
#: Classes that are printed.
SHOWN = 10


@dataclass(frozen=True)
class Plan:
    """What a fit would release, from public numbers alone.

    Attributes
    ----------
    release : Release
        The record, as it would be counted before the rows are touched.
    classes : tuple
        Labels of the classes.
    class_counts : tuple of int or None
        Records of each class, where they are public.
    parts : dict of str to (float, float)
        What is released, by name: the largest length that it can have before noise, and the
        expected length of its noise. A descent has the sums that it starts from, if any, and the
        mean gradients of all steps at the start, in their joint length. Empty for mechanisms of
        one's own.
    class_signal_to_noise : tuple of float
        For each class, what its records can at most move of all released values, over the length of
        the noise in its share of them. Below :data:`LOST` most classes lost more than half of their
        recall on benchmark data, above :data:`AT_RISK` hardly one did. Empty where labels are
        protected, and for mechanisms of one's own.
    """

    release: Release
    classes: tuple[Any, ...]
    class_counts: tuple[int, ...] | None
    parts: dict[str, tuple[float, float]]
    class_signal_to_noise: tuple[float, ...] = ()

    @property
    def signal(self) -> tuple[float, ...]:
        """Largest length of each part before noise."""
        return tuple(signal for signal, _ in self.parts.values())

    @property
    def noise(self) -> tuple[float, ...]:
        """Expected length of the noise in each part."""
        return tuple(noise for _, noise in self.parts.values())

    @property
    def signal_to_noise(self) -> tuple[float, ...]:
        """Largest signal over expected length of the noise."""
        pairs = self.parts.values()
        return tuple(signal / noise if noise > 0.0 else 0.0 for signal, noise in pairs)

    def __str__(self) -> str:
        release = self.release
        shown = [
            f"Plan of a {release.head}, {release.bound.what}: epsilon={release.epsilon:g}, delta="
            f"{release.delta:g} within {release.radius:g} ({release.metric}), labels "
            f"{release.labels}"
            + (f", started from {release.examples} public examples" if release.examples else ""),
        ]
        for part, noise, ratio in zip(self.parts, self.noise, self.signal_to_noise, strict=True):
            shown.append(
                f"  noise of length {noise:.3g} in the {part}; signal to noise at most {ratio:.3g}"
            )
        return "\n".join(shown + self._of_classes())

    def _of_classes(self) -> list[str]:
        """A line for each class; of many classes, for those most at risk."""
        counts, ratios = self.class_counts or (), self.class_signal_to_noise
        if not ratios:
            return []
        codes = list(range(len(ratios)))
        if len(ratios) > SHOWN:
            codes = sorted(codes, key=lambda code: ratios[code])[:SHOWN]
        names = {code: one_line(self.classes[code], 40) for code in codes}
        width = max(5, *map(len, names.values()))
        lines = [f"  {'class':>{width}}   records   signal to noise (at most)"]
        for code in codes:
            ratio = ratios[code]
            risk = "   likely lost in the noise" if ratio < LOST else "   at risk"
            risk = "" if ratio >= AT_RISK else risk
            lines.append(f"  {names[code]:>{width}}   {counts[code]:>7}   {ratio:.3g}{risk}")
        if len(ratios) > SHOWN:
            lines.append(f"  {risks(ratios)}; shown are the first {SHOWN}")
        return lines

    __repr__ = __str__


def risks(ratios: Sequence[float]) -> str:
    """How many classes are likely lost in the noise, and how many more are at risk, in words."""
    lost, below = (sum(ratio < limit for ratio in ratios) for limit in (LOST, AT_RISK))
    return f"{lost} of {len(ratios)} classes likely lost in the noise, {below - lost} more at risk"


def plan_of(release: Release, classes: Sequence[Any], class_counts: tuple[int, ...] | None) -> Plan:
    """The plan of a fit, from its record before the run."""
    problem, bound = release.problem, release.bound
    parts: dict[str, tuple[float, float]] = {}
    if isinstance(bound, Sums):
        parts = _of_sums(problem, bound)
    elif isinstance(bound, Minimiser):
        longest = math.sqrt(problem.kind.n_stacked) * bound.norm(problem)
        noise = bound.sigma * math.sqrt(math.prod(bound.shape(problem)))
        parts = {"minimiser": (longest, noise)}
    elif isinstance(bound, DescentBound):
        parts = {} if bound.start is None else _of_sums(problem, bound.start)
        n_steps, values = bound.n_steps, math.prod(bound.shape(problem))
        if n_steps > 0:
            # All steps together, at the start: T mean gradients, weighted by what they tell.
            noise = n_steps * math.sqrt(values) / _precision_of_steps(bound)
            parts["gradients of the steps"] = n_steps * _longest_gradient(problem, bound), noise
    sizes = problem.class_sizes
    ratios = () if sizes is None else _of_classes(problem, bound, sizes)
    return Plan(release, tuple(classes), class_counts, parts, ratios)


def _of_sums(problem: Problem, bound: Sums) -> dict[str, tuple[float, float]]:
    """Largest lengths of sums, and those of their noise."""
    n, b = problem.sums_weights.total, problem.norm_bound
    width = problem.n_features + int(bound.constant > 0.0)
    scales = np.broadcast_to(np.asarray(bound.sigma, dtype=np.float64), bound.n_sums(problem))
    noise = float(np.linalg.norm(scales)) * math.sqrt(width)
    name = "sum of all rows" if bound.pooled else "class sums"
    parts = {name: (n * math.hypot(b, bound.constant), noise)}
    if bound.moment is not None:
        values = problem.n_features * (problem.n_features + 1) // 2
        parts["second moment"] = (n * b**2, bound.moment * math.sqrt(values))
    return parts


def _of_classes(problem: Problem, bound: Any, sizes: Any) -> tuple[float, ...]:
    """Largest effect of each class's records on the released values, over their noise."""
    root = math.sqrt(problem.n_features)
    if isinstance(bound, Sums):
        if bound.pooled:
            return (0.0,) * len(sizes)
        scales = np.broadcast_to(np.asarray(bound.sigma, dtype=np.float64), len(sizes))
        noise = np.where(scales > 0.0, scales, 1.0) * root
        return tuple((sizes * problem.norm_bound / noise).tolist())
    shares = np.array(problem.sums_weights.class_totals or ())
    shares = shares / max(float(shares.sum()), 1e-300)
    if isinstance(bound, Minimiser):
        # A class moves the minimiser by its share of the mean gradient, over alpha.
        pull = problem.kind.residual_limit(0.0) * bound.domain(problem, 0.0).augmented
        longest = min(pull / problem.alpha, bound.norm(problem))
        return tuple((shares * longest / (bound.sigma * root)).tolist())
    if isinstance(bound, DescentBound):
        # Gradients of the steps, and the sums that they start from, tell the class apart
        # independently of each other.
        pull = 0.0
        if bound.n_steps > 0:
            pull = _longest_gradient(problem, bound) * _precision_of_steps(bound) / root
        sums = np.zeros(len(shares))
        if bound.start is not None:
            sums = np.array(_of_classes(problem, bound.start, sizes))
        return tuple(np.hypot(shares * pull, sums).tolist())
    return ()


def _longest_gradient(problem: Problem, bound: DescentBound) -> float:
    """Length that a mean gradient has at the start, at most."""
    kind = problem.kind
    residual = kind.score_residual_limit(0.0) * math.sqrt(kind.n_scores)
    if bound.clip is not None:
        residual = min(residual, bound.clip)
    return residual * math.hypot(problem.norm_bound, bound.constant)


def _precision_of_steps(bound: DescentBound) -> float:
    """One over the noise scale of the best mean of all steps' gradients, at the start."""
    return math.sqrt(bound.n_steps) / bound.sigma
