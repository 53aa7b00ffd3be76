"""What is released: heads, and the mechanisms that release their parameters."""

from .descent import GradientPerturbation, Transcript
from .logistic import BallDPLogisticRegression
from .mechanism import Budget, Mechanism, Outcome, PrivateProblem, Problem, Promise
from .output import OutputPerturbation
from .ridge_prototype import BallDPRidgePrototype
from .squared_hinge import BallDPSquaredHingeSVC

__all__ = [
    "BallDPLogisticRegression",
    "BallDPRidgePrototype",
    "BallDPSquaredHingeSVC",
    "Budget",
    "GradientPerturbation",
    "Mechanism",
    "Outcome",
    "OutputPerturbation",
    "PrivateProblem",
    "Problem",
    "Promise",
    "Transcript",
]
