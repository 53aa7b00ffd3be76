"""A released model: record, released values, and the settings of the rule that predicts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._parameters import checked_priors
from ..losses import Array
from ..mechanisms import MECHANISMS, Conversation, Examples, Mechanism, Query, Transcript
from ..privacy.digest import parameters_digest
from ..privacy.problem import Problem
from ..privacy.release import Release
from .labels import checked_class_embeddings
from .weighing import weights_of_classes

#: What names of the arrays of public examples begin with.
EXAMPLES = "examples."


@dataclass(frozen=True, eq=False)
class Settings:
    """What released values, and predictions, are made by: public choices, and public examples."""

    priors: Any = None
    class_weight: Any = None
    decision: str = "auto"
    shrinkage: Any = "auto"
    class_embeddings: Any = None
    #: Public records of the fit; None where it had none.
    examples: Examples | None = None

    def known(self, problem: Problem) -> Examples | None:
        """What is public about the classes: examples, or vectors of all."""
        if self.class_embeddings is None:
            return self.examples
        return Examples.of_vectors(self.class_embeddings / problem.norm_bound)

    def for_mechanism(self, problem: Problem) -> dict[str, Examples]:
        """The same, as the mechanism of a linear head takes it, if there is any."""
        known = self.known(problem) if problem.loss else None
        # One record alone, or examples of one class, tell no two classes apart.
        return {"examples": known} if known is not None and known.coef.any() else {}

    def checked(self, classes: NDArray[Any], problem: Problem) -> "Settings":
        """With vectors in the order of the classes; a ValueError if they do not fit a release."""
        checked_priors(self.priors, len(classes), problem.class_sizes)
        weights_of_classes(self.class_weight, classes, problem.class_sizes)
        vectors = checked_class_embeddings(self.class_embeddings, classes, problem.n_features)
        if vectors is not None and self.examples is not None:
            raise ValueError(
                "class_embeddings: X_public tells more about the classes than vectors of them do; "
                "pass one of both."
            )
        return replace(self, class_embeddings=vectors)


@dataclass(frozen=True, eq=False)
class Released:
    """What a fit leaves: public, frozen, and all that predictions and checks need.

    The ``values`` follow from ``answers``, every noisy one in order; empty if they were not kept.
    """

    release: Release
    classes: NDArray[Any]
    values: Array = field(repr=False)
    mechanism: Mechanism = field(repr=False)
    answers: tuple[Array, ...] = field(default=(), repr=False)
    settings: Settings = field(default_factory=Settings, repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        # What was released stays as it is, and so do predictions of it.
        for array in (self.values, *self.answers):
            array.setflags(write=False)

    def __reduce__(self) -> Any:
        fields = self.release, self.classes, self.values, self.mechanism, self.answers
        return type(self), (*fields, self.settings)

    def cached(self, name: str, make: Callable[[], Any]) -> Any:
        """What was made under this name before, or ``make()``."""
        if name not in self._cache:
            made = self._cache[name] = make()
            for array in (made, *getattr(made, "__dict__", {}).values()):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
        return self._cache[name]

    @property
    def problem(self) -> Problem:
        """Public numbers of the fit."""
        return self.release.problem

    @property
    def bound(self) -> Any:
        """What the mechanism chose."""
        return self.release.bound

    @property
    def by_package(self) -> bool:
        """Whether the mechanism is the one of this package that the record names."""
        return type(self.mechanism) is MECHANISMS.get(self.release.mechanism)

    @property
    def of_one_query(self) -> bool:
        """Whether the bound is the only query: what is released then is one noisy answer."""
        return self.by_package and isinstance(self.bound, Query)

    def conversation(self) -> Conversation:
        """The algorithm, from its beginning."""
        public = self.settings.for_mechanism(self.problem)
        return self.mechanism.conversation(self.problem, self.bound, **public)

    def statistics(self) -> Any:
        """Released sums by name."""
        return self.cached(
            "statistics", lambda: self.bound.statistics(self.release.problem, self.values)
        )

    def transcript(self) -> Transcript | None:
        """The answers of a descent by name; None where there are none."""
        kept = self.bound.has_transcript and self.answers
        return Transcript.of(list(self.answers), self.bound) if kept else None

    def weights(self) -> tuple[Array, Array]:
        """Weights and intercepts of a linear head, as they were released."""
        if not self.release.problem.fit_intercept:
            return self.values, np.zeros(len(self.values))
        return self.values[:, :-1], self.values[:, -1]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Released arrays by name, as the record's digest takes them."""
        problem = self.problem
        named: dict[str, Any] = {"classes_": self.classes}
        counts = None if problem.class_counts is None else np.array(problem.class_counts)
        if problem.loss:
            coef, intercept = self.weights()
            named |= {"coef_": coef, "intercept_": intercept}
            named |= {"class_embeddings": self.settings.class_embeddings}
            named |= {"class_counts_": counts}
        else:
            sums = self.statistics()
            named |= {"class_sums": sums.class_sums, "second_moment": sums.second_moment}
            # Public counts are whole; noisy ones are released values.
            named |= {"counts": sums.counts if counts is None else counts}
        if self.settings.examples is not None:
            named |= {f"{EXAMPLES}{n}": a for n, a in self.settings.examples.arrays().items()}
        return {name: array for name, array in named.items() if array is not None}

    def with_digest(self) -> "Released":
        """The same, with the digest of released arrays in the record."""
        return replace(self, release=replace(self.release, digest=parameters_digest(self.arrays())))
