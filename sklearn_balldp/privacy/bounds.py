"""What a release guarantees as a function of the radius, from public numbers alone.

A :class:`Bound` is a frozen dataclass of what a mechanism chose for a :class:`.Problem`. It
registers its class, so that records which hold it can be read back.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from .._parameters import check_option
from ..adjacency import LABELS
from .plain import make_plain
from .problem import Problem

Blocks = float | tuple[float, ...]

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

    Its fields must be numbers, texts, tuples and such bounds, as they go into JSON; they become
    plain data (:func:`.plain`) when it is made. All methods take the ``problem``, public numbers of
    the fit. A ``radius`` is Euclidean; ``labels`` says whether label changes count ("protected",
    for problems that hide them) or not ("public").
    """

    #: What the noise was added to, for the record.
    what: ClassVar[str] = "noise on the released values"
    #: What a record lists several sensitivities and noise scales by.
    parts: ClassVar[str] = "parts"
    #: Whether each state of a descent is public: its answers are then a transcript (a release of
    #: ``n_steps`` steps, after the sums ``start``), which is kept only if that was asked for.
    has_transcript: ClassVar[bool] = False
    #: How many runs an audit advances together.
    runs_at_once: ClassVar[int] = 64

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        KINDS[tag_of(cls)] = cls

    def __post_init__(self) -> None:
        make_plain(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        make_plain(self)  # arrays come out of a pickle writeable

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

    def by_query(self, problem: Problem) -> list[tuple[str, Blocks, Blocks]]:
        """What each query asks for, its sensitivity at the problem's radius, its noise scale."""
        return [(self.parts, *self.stated(problem))]

    def check(self, problem: Problem) -> None:  # noqa: B027
        """Raise a ValueError if these are no choices for the problem; by default all are."""


def check_rising(
    bound: Bound, problem: Problem, radii: Iterable[float], labels: str | None = None
) -> float:
    """Mu at the largest of the Euclidean radii.

    A ValueError if it falls from one to a larger one, or is no number. Pairs within a radius are
    within every larger one.
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

    def mu_at(self, problem: Problem, radius: float, labels: str) -> float:
        # Records in between lie on a segment, or on an arc of the sphere.
        steps = [min(r, problem.diameter) for r in (radius, problem.euclidean_radius)]
        if problem.domain == "sphere":
            steps = [math.asin(min(r / problem.diameter, 1.0)) for r in steps]
        chain = max(1, math.ceil(steps[0] / steps[1] * _CHAIN_SLACK))
        # By way of a record of another label, any two are two changes apart.
        return self.budget * (min(chain, 2) if problem.labels == "protected" else chain)


def as_float_or_tuple(values: Any) -> Blocks:
    """One float for one block, else a tuple: as public records show blocks."""
    values = tuple(float(v) for v in values)
    return values[0] if len(set(values)) == 1 else values
