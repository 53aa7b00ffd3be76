r"""What a release guarantees as a function of the radius, from public numbers alone.

A bound holds what a mechanism chose for a :class:`.Problem`, and nothing else; with the problem it
gives mu at every Euclidean radius, for public and for protected labels. Others are
frozen dataclasses that derive from :class:`Bound`, which registers the class, so that records that
hold it can be read back. Proofs are in this package's documentation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from .._parameters import check_option
from ..adjacency import LABELS
from .problem import Problem

Blocks = float | tuple[float, ...]
#: Radius, labels and mu of a promise that a privacy filter keeps.
Promise = tuple[float, str, float]

#: Kinds of bounds by their names in records.
KINDS: dict[str, type["Bound"]] = {}
# The allowance for rounded rows covers the rounding of a radius, which must not lengthen a chain.
_CHAIN_SLACK = 1.0 - 1e-9


def tag_of(kind: type) -> str:
    """Name of a bound's class in records; outside of this package it includes the module."""
    ours = kind.__module__.startswith(f"{__package__.rpartition('.')[0]}.")
    return kind.__qualname__ if ours else f"{kind.__module__}:{kind.__qualname__}"


class Bound(ABC):
    """What a mechanism chose, and what it guarantees: derive a frozen dataclass from it.

    Its fields must be plain numbers, strings, tuples and such bounds, as they go into JSON. All
    methods take the ``problem``, public numbers of the fit. A ``radius`` is Euclidean; ``labels``
    says whether label changes count ("protected", for problems that hide them) or not ("public").
    """

    #: What the noise was added to, for the record.
    what: ClassVar[str] = "noise on the released values"
    #: What a record lists several sensitivities and noise scales by.
    parts: ClassVar[str] = "parts"
    #: Whether the guarantee holds of pairs of rows in the ball, whatever the domain: a chain of
    #: substitutions may then leave the sphere.
    of_the_ball: ClassVar[bool] = False
    #: Whether each state of a descent is public: its answers are then a transcript (a release of
    #: ``n_steps`` steps, after the sums ``start``), which is kept only if that was asked for.
    has_transcript: ClassVar[bool] = False
    #: How many runs an audit advances together.
    runs_at_once: ClassVar[int] = 64

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        KINDS[tag_of(cls)] = cls

    @abstractmethod
    def mu_at(self, problem: Problem, radius: float, labels: str) -> float:
        """Mu for one substitution, which :meth:`mu` calls; infinite where nothing is promised."""

    def mu(self, problem: Problem, radius: float | None = None, labels: str | None = None) -> float:
        """Gaussian differential privacy of the release, at the problem's radius by default.

        Infinite for label changes where ``labels`` are public.

        Raises
        ------
        ValueError
            If ``labels`` is neither "public" nor "protected".
        """
        labels = problem.labels if labels is None else labels
        check_option("labels", labels, LABELS)
        if labels == "protected" and problem.labels == "public":
            # The published class counts alone reveal a label change.
            return math.inf
        return self.mu_at(problem, problem.euclidean_radius if radius is None else radius, labels)

    def promises(self, problem: Problem) -> list[Promise]:
        """Euclidean radius, labels and mu of everything that the privacy filter keeps."""
        return [(problem.euclidean_radius, problem.labels, self.mu(problem))]

    def kept(self, problem: Problem) -> list[Promise]:
        """What the filter keeps: the promises, and mu at the radius in any case."""
        declared = problem.euclidean_radius, problem.labels, self.mu(problem)
        promises = self.promises(problem)
        return promises if declared in promises else [declared, *promises]

    def covers(self, problem: Problem, query: Any, asked: int) -> bool:
        """Whether its claims at other radii hold if a ``query`` comes after ``asked`` others."""
        return True

    def theorem(self, problem: Problem) -> str:
        """The statement that the guarantee rests on, in one line of the record."""
        return "a privacy filter: fully adaptive composition (Smith & Thakurta, 2022)"

    def stated(self, problem: Problem) -> tuple[Blocks, Blocks]:
        """Sensitivity at the problem's radius, and noise scale, for the record.

        One number each, or one for each part; empty where both depend on released values.
        """
        return (), ()

    def check(self, problem: Problem) -> None:  # noqa: B027
        """Raise a ValueError if these are no choices for the problem; by default all are."""


def check_rising(
    bound: Bound, problem: Problem, radii: Iterable[float], labels: str | None = None
) -> float:
    """Mu at the largest of the Euclidean radii.

    Pairs within a radius are within every larger one, so that a mu which falls as the radius grows
    is wrong at one of them.

    Raises
    ------
    ValueError
        If mu falls from one radius to a larger one, or is negative or no number.
    """
    least = 0.0
    for radius in sorted(radii):
        mu = bound.mu(problem, radius, labels)
        # What is no number fails too. Rounding may take the last digits.
        if not mu >= least * (1.0 - 1e-9):
            raise ValueError(
                f"{type(bound).__name__}: its mu goes from {least!r} to {mu!r} as the radius "
                "grows; mu_at must be a number that does not fall as the radius grows. Nothing "
                "was released."
            )
        least = mu
    return least


@dataclass(frozen=True)
class Promised(Bound):
    """A promise that the kernel's privacy filter keeps, whatever is asked.

    A mechanism that asks proved queries needs nothing else: there is nothing to prove.

    Attributes
    ----------
    budget : float
        Mu at the problem's radius.
    """

    budget: float

    def promises(self, problem: Problem) -> list[Promise]:
        return [(problem.euclidean_radius, problem.labels, self.budget)]

    def mu_at(self, problem: Problem, radius: float, labels: str) -> float:
        chains = [
            mu * chain_of(problem, radius, promised, in_the_ball=self.of_the_ball, hidden=hidden)
            for promised, hidden, mu in self.promises(problem)
            # A promise for pairs of one label says nothing of others.
            if hidden == "protected" or labels == "public"
        ]
        return min(chains, default=math.inf)


def chain_of(
    problem: Problem, radius: float, promised: float, *, in_the_ball: bool, hidden: str
) -> int:
    """Substitutions within a promised radius that lead to any within another radius.

    ``hidden`` says whether the promise is one for label changes too ("protected").

    In the ball the records in between lie on a segment. On the sphere they lie on an arc, unless
    the promise holds of all pairs in the ball.
    """
    if problem.domain == "sphere" and not in_the_ball:
        angles = [math.asin(min(0.5 * r / problem.norm_bound, 1.0)) for r in (radius, promised)]
        ratio = angles[0] / angles[1]
    else:
        ratio = min(radius, problem.diameter) / promised
    chain = max(1, math.ceil(ratio * _CHAIN_SLACK))
    # By way of a record of another label, any two are two changes apart.
    return min(chain, 2) if hidden == "protected" else chain


def as_float_or_tuple(values: Any) -> Blocks:
    """One float for one block, else a tuple: as public records show blocks."""
    values = tuple(float(v) for v in values)
    return values[0] if len(set(values)) == 1 else values
