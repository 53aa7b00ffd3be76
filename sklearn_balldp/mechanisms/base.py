"""What a mechanism is: a bound from public numbers, and a conversation with the records."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from ..privacy.bounds import Bound
from ..privacy.problem import Problem
from .kernel import MOST_QUERIES, Conversation, Query


class Mechanism(BaseEstimator, ABC):
    """A public algorithm that releases parameters. It never sees a row.

    To write another, derive a class whose constructor parameters are those of a scikit-learn
    estimator, stored as they are (a dataclass does that too). If it asks only proved queries
    (:data:`.PROVED`), and its bound is :class:`.Promised`, there is nothing to prove: the kernel
    keeps the promise.

    Methods take the public numbers of the fit (``problem``), and the Gaussian differential privacy
    ``mu`` to spend at its radius; a conversation, the ``bound`` that was made of both.
    """

    #: What the record calls it; the class's name by default.
    name: ClassVar[str] = ""
    #: Further kinds of queries that the kernel answers. Whoever lists one claims a proof.
    accepts: ClassVar[tuple[type[Query], ...]] = ()
    #: Most queries of one conversation.
    most_queries: ClassVar[int] = MOST_QUERIES
    #: Whether it uses what is public about the classes: ``bound`` and ``conversation`` then take
    #: it as ``examples``, a ``mechanisms.Examples``, where a fit has public examples or class
    #: embeddings.
    uses_examples: ClassVar[bool] = False
    #: Whether ``alpha`` must be positive.
    needs_alpha: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        defined = vars(cls)
        inherits = "bound" not in defined and not getattr(cls.bound, "__isabstractmethod__", False)
        if "conversation" in defined and inherits:
            # The filter keeps what is promised at one radius; a bound states others too.
            raise TypeError(
                f"{cls.__name__} holds another conversation than the mechanism whose bound it "
                "inherits, which states what that one costs at every radius: define bound too "
                "(privacy.Promised needs no proof)."
            )
        cls.name = defined.get("name", cls.__name__)

    def check(self) -> None:
        """Raise a ValueError if a parameter is invalid."""

    def takes_examples(self) -> bool:
        """Whether it uses examples as its parameters stand."""
        return self.uses_examples

    def alpha_for(self, problem: Problem, mu: float) -> float:
        """Regularisation strength of a head whose ``alpha`` is None; the problem has none yet."""
        return 0.0

    @abstractmethod
    def bound(self, problem: Problem, mu: float) -> Bound:
        """What it will guarantee, at most ``mu``, and chose for that, from public numbers alone."""

    @abstractmethod
    def conversation(self, problem: Problem, bound: Any) -> Conversation:
        """The algorithm: yields queries, is sent noisy answers, returns what is released."""
