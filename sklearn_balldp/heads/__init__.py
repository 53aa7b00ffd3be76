"""What is released: heads, and the mechanisms that release their parameters."""

from .descent import GradientPerturbation, Transcript
from .linear_discriminant import BallDPLinearDiscriminant
from .logistic import BallDPLogisticRegression
from .mechanism import Budget, Mechanism, Outcome, PrivateProblem, Problem, Promise
from .output import OutputPerturbation
from .plan import Plan
from .ridge_prototype import BallDPRidgePrototype
from .squared_hinge import BallDPSquaredHingeSVC
from .statistics import Statistics, StatisticsPerturbation

__all__ = [
    "BallDPLinearDiscriminant",
    "BallDPLogisticRegression",
    "BallDPRidgePrototype",
    "BallDPSquaredHingeSVC",
    "Budget",
    "GradientPerturbation",
    "Mechanism",
    "Outcome",
    "OutputPerturbation",
    "Plan",
    "PrivateProblem",
    "Problem",
    "Promise",
    "Statistics",
    "StatisticsPerturbation",
    "Transcript",
]
