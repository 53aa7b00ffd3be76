"""The kernel: a release is a conversation of a public algorithm with private records.

The algorithm is a generator: it yields queries, is sent noisy answers, and never sees a row. The
:class:`Kernel` alone touches the records and draws noise. Before that it charges each query to a
:class:`PrivacyFilter`, which knows what was promised (*fully adaptive composition*: Smith &
Thakurta, 2022; McKenna et al., "Ektelo", 2018), and has the release counted.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from ..losses import Array, Codes
from ..privacy.bounds import Blocks, Bound
from ..privacy.noise import Noise, grid_slack
from ..privacy.plain import is_plain
from ..privacy.problem import Problem

#: A public algorithm: it yields queries, is sent noisy answers, and returns what is released.
Conversation = Generator["Query", Array, Array]

#: Most queries of one conversation, where its mechanism names no other number.
MOST_QUERIES = 10_000
# Mu is counted in whole units of this power of two, rounded up: squares and sums are then exact.
_UNIT = 120


class PrivacyError(RuntimeError):
    """A query that the promise does not cover: nothing was computed, and no noise was drawn."""


@dataclass(frozen=True, eq=False)
class Records:
    """The private records: rows, the positions of their labels, and their weights.

    Methods take the public numbers of the fit (``problem``), ``positions`` (an array or a slice),
    or ``other`` records, which come after these.

    Attributes
    ----------
    X : array or Rows of shape (n_records, n_features)
        Rows, not yet brought into the domain.
    codes : ndarray of shape (n_records,)
        Positions of their labels.
    weights : ndarray of shape (n_records,) or None
        Their weights; None where all are 1.
    """

    X: Any = field(repr=False)
    codes: Codes = field(repr=False)
    weights: Array | None = field(default=None, repr=False)
    _last: list[Any] = field(default_factory=lambda: [None, None], init=False, repr=False)

    def __len__(self) -> int:
        return len(self.codes)

    def __reduce__(self) -> NoReturn:
        raise TypeError("records are private, and are not pickled.")

    def at(self, positions: Any) -> "Records":
        """The records at these positions, in their order."""
        weights = None if self.weights is None else self.weights[positions]
        return Records(self.X[positions], self.codes[positions], weights)

    def without(self, positions: Any) -> "Records":
        """All records but those at these positions."""
        return self.at(np.delete(np.arange(len(self)), positions))

    def joined(self, other: "Records") -> "Records":
        """These records and others, in the precision of these."""
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = np.concatenate([self.weights, other.weights])
        X = np.concatenate([self.X, other.X.astype(self.X.dtype)])
        return Records(X, np.concatenate([self.codes, other.codes]), weights)

    def view(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was computed under ``key`` last time, or ``make()``; another key forgets it."""
        last, view = self._last
        if last != key:
            view, self._last[:] = None, (None, None)  # freed before the next one is made
            view = make()
            self._last[:] = key, view
        return view


class Query(Bound):
    """One question to the records at a public state, with the scale of its noise: plain data.

    It states no sensitivity: its class computes that, by a proof (:meth:`ratio`), which is where a
    mathematical mistake would cost privacy. A query is itself the bound of a release that asks
    nothing else. To write another, derive a frozen dataclass with a field ``sigma``, and
    list it in ``accepts`` of a mechanism: that claims a proof, which nobody else has checked.

    Methods take the public numbers of the fit (``problem``), and the private ``records``; a
    Euclidean ``radius``, by default the problem's; and ``labels``, which are "protected" where a
    change of the label counts, else "public". ``mu`` is Gaussian differential privacy.
    """

    #: Whether the values are a sum over records (over a public number): audits are faster then.
    additive: ClassVar[bool] = False
    sigma: Any  #: noise scale or scales, broadcast against the values by :meth:`scales`

    @abstractmethod
    def ratio(self, problem: Problem, radius: float, labels: str) -> float:
        """Largest L2 distance of the values of two adjacent data sets, over the noise scale.

        Infinite where no proof speaks of the state.
        """

    @abstractmethod
    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Shape of the values, from public numbers alone."""

    @abstractmethod
    def values(self, problem: Problem, records: Records) -> Array:
        """The values without noise; no data set of the domain raises an error."""

    def scales(self, problem: Problem) -> Array | float:
        """Noise scale of every value, or of all; 0 where it does not depend on records."""
        return self.sigma

    def standardised(
        self, problem: Problem, noisy: Array, values: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Differences of an answer from its values in units of the noise, and which have none.

        They are (noisy - value) / scale for the answer ``noisy`` and one or many ``values``.
        """
        # Without a scale it is zero, or infinite where a value is not the one that was released.
        scale = np.broadcast_to(np.asarray(self.scales(problem), dtype=np.float64), noisy.shape)
        excess, silent = noisy - values, scale == 0.0
        if not silent.any():
            return excess / scale, silent
        bare = np.where(excess == 0.0, 0.0, np.inf)
        return np.where(silent, bare, excess / np.where(silent, 1.0, scale)), silent

    def scaled(self, factor: float) -> Self:
        """The same question with ``factor`` times the noise."""
        return replace(self, sigma=self.sigma * factor)  # type: ignore[type-var]

    @classmethod
    def together(
        cls, queries: Sequence["Query"], problem: Problem, records: Records, *, each: bool = False
    ) -> list[Array]:
        """Values of several ``queries`` of this class, in few passes.

        With ``each`` those of every record alone, of shape (n_records, ...): for few records.
        """
        if not each:
            return [query.values(problem, records) for query in queries]
        alone = [records.at(slice(i, i + 1)) for i in range(len(records))]
        return [np.stack([query.values(problem, own) for own in alone]) for query in queries]

    def slack(self, problem: Problem) -> float:
        """What rounding to the sampler's grid adds to the ratio, in units of the noise."""
        return grid_slack(math.prod(self.shape(problem)))

    def mu_at(self, problem: Problem, radius: float, labels: str) -> float:
        ratio = self.ratio(problem, radius, labels)
        if ratio == 0.0:
            return 0.0
        # What is no number is no proof either.
        proved = 0.0 < ratio < math.inf
        return math.nextafter(ratio + self.slack(problem), math.inf) if proved else math.inf

    def covers(self, problem: Problem, query: Any, asked: int) -> bool:
        return asked == 0 and (query is self or query == self)

    def calibrated(self, problem: Problem, mu: float, radius: float | None = None) -> Self:
        """The same question with the noise that makes it mu-GDP, by default at the radius.

        Raises
        ------
        ValueError
            If mu is smaller than what rounding to the sampler's grid takes.
        """
        radius = problem.euclidean_radius if radius is None else radius
        ratio = self.ratio(problem, radius, problem.labels)
        return self.scaled(ratio / spendable(mu, self.slack(problem)))

    def stated(self, problem: Problem) -> tuple[Blocks, Blocks]:
        sigma = float(np.max(self.sigma))
        return self.ratio(problem, problem.euclidean_radius, problem.labels) * sigma, sigma


def spendable(mu: float, slack: float) -> float:
    """The ratio that a mu-GDP query may have; a ValueError if its ``slack`` takes all of mu."""
    # The last factor covers the rounding of a division by this, and of the ratio in mu_at.
    ratio = (mu - 2.0 * slack) * (1.0 - 2.0**-50)
    if not ratio > 0.0:
        raise ValueError(
            f"epsilon is too small: its mu={mu!r} is less than rounding to the sampler's grid "
            "takes; raise epsilon."
        )
    return ratio


class PrivacyFilter:
    """Refuses the query that would exceed a promise.

    Parameters
    ----------
    problem : Problem
        Public numbers of the fit.
    bound : Bound
        What was promised, and stated.
    most_queries : int
        More queries are refused, whatever they would spend.
    """

    def __init__(self, problem: Problem, bound: Bound, most_queries: int = MOST_QUERIES) -> None:
        self._problem, self._bound, self._asked = problem, bound, 0
        self._promised = float(bound.mu(problem))
        self._limit = math.floor(math.ldexp(self._promised, _UNIT)) ** 2
        self._spent, self._most_queries = 0, most_queries

    def charge(self, query: Query) -> None:
        """Count a ``query`` that is about to be answered.

        Raises
        ------
        PrivacyError
            If a promise does not cover it: then it is not counted.
        """
        if self._asked >= self._most_queries:
            raise PrivacyError("more queries than the mechanism may ask; nothing was drawn for it.")
        if not is_plain(query):
            raise PrivacyError(
                f"{type(query).__name__} is no frozen dataclass of plain data: what is charged "
                "might not be what is computed; call super().__post_init__() in it."
            )
        mu, spent = float(query.mu(self._problem)), self._limit + 1
        if mu <= self._promised:
            spent = self._spent + math.ceil(math.ldexp(mu, _UNIT)) ** 2
        if spent > self._limit:
            raise PrivacyError(
                f"{type(query).__name__}: it takes mu={mu:.6g}, which is more than is left of the "
                f"{self._promised:.6g} promised; nothing was drawn for it."
            )
        if not self._bound.covers(self._problem, query, self._asked):
            raise PrivacyError(
                f"{type(query).__name__}: a bound that is a query, or of a descent, states what "
                "its own queries cost at every radius, and this is another one; nothing was drawn "
                "for it. privacy.Promised covers any queries."
            )
        self._spent, self._asked = spent, self._asked + 1


class Kernel:
    """Answers the queries of one conversation: the only code that reads rows and adds noise.

    Parameters
    ----------
    problem : Problem
        Public numbers of the fit.
    records : Records
        The private ones.
    bound : Bound
        What was promised and stated, and charged.
    noise : Noise
        Draws each deviate once.
    accepts : tuple of type
        The kinds of queries whose sensitivity is believed.
    most_queries : int
        More queries are refused.
    charge : callable, optional
        Counts the release, or raises: called once, when the first query was accepted, before its
        values are computed. What fails after that may depend on the records, so it stays counted.
    """

    def __init__(
        self,
        problem: Problem,
        records: Records,
        bound: Bound,
        noise: Noise,
        accepts: tuple[type[Query], ...],
        most_queries: int = MOST_QUERIES,
        charge: Callable[[], object] | None = None,
    ) -> None:
        self._problem, self._records, self._noise = problem, records, noise
        self._charge = charge
        self._filter = PrivacyFilter(problem, bound, most_queries)
        self._accepts = accepts

    def __call__(self, query: Query) -> Array:
        """The noisy answer, or a PrivacyError."""
        return self.answer(query, lambda: query.values(self._problem, self._records))

    def answer(self, query: Query, values: Callable[[], Array]) -> Array:
        """Charge for a ``query``, compute its ``values()``, add noise, and lock the answer."""
        if type(query) not in self._accepts:
            raise PrivacyError(
                f"no proof of a sensitivity is known for {type(query).__name__}; a mechanism lists "
                "the queries that it vouches for in accepts."
            )
        self._filter.charge(query)
        if self._charge is not None:
            self._charge()
            self._charge = None
        # What a conversation has NumPy raise would depend on the records here.
        with np.errstate(all="ignore"):
            noiseless = values()
            if noiseless.shape != query.shape(self._problem):
                raise PrivacyError("values that are not of the query's shape; nothing was drawn.")
            answer = self._noise(noiseless, query.scales(self._problem))
        answer.setflags(write=False)  # it is public now, and stays as it is
        return answer


def drive(conversation: Conversation, answer: Callable[[Query], Array]) -> Array:
    """What a conversation returns when ``answer`` answers its queries."""
    return drive_many([conversation], lambda _, queries: [answer(queries[0])])[0]


def drive_many(
    conversations: Sequence[Conversation],
    answer: Callable[[Sequence[int], Sequence[Query]], Sequence[Array]],
) -> list[Array]:
    """As :func:`drive`, many in step; ``answer`` gets positions and queries of those that ask."""
    returned: list[Any] = [None] * len(conversations)
    asking = list(range(len(conversations)))
    answers: Sequence[Any] = [None] * len(conversations)
    while asking:
        queries = {}
        for run, value in zip(asking, answers, strict=True):
            try:
                queries[run] = conversations[run].send(value)
            except StopIteration as end:
                returned[run] = end.value
        asking = list(queries)
        answers = answer(asking, list(queries.values())) if asking else []
    return returned
