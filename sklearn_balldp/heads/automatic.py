"""The mechanism that public numbers choose."""

from ..privacy.noise import Noise
from .descent import GradientPerturbation
from .mechanism import Budget, Mechanism, Outcome, PrivateProblem, Problem, Promise
from .output import OutputPerturbation


class AutoMechanism(Mechanism):
    """Noise on the minimiser where that costs next to nothing, else noise on gradients.

    The first where the noise in one parameter would be small although the minimiser is hardly
    regularised, or at the ``alpha`` that was given (:meth:`.OutputPerturbation.is_precise`). That
    mostly takes an epsilon of hundreds to thousands.
    """

    name = "auto"

    def chosen(self, problem: Problem, budget: Budget) -> Mechanism:
        output = OutputPerturbation()
        if problem.prior is None and output.is_precise(problem, budget):
            return output
        return GradientPerturbation()

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        return self.chosen(problem, budget).promise(problem, budget)

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        kind = {kind.name: kind for kind in (OutputPerturbation, GradientPerturbation)}
        return kind[promise.bound.mechanism]().run(problem, promise, noise)
