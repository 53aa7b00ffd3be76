"""What is released: heads, and the mechanisms that release their parameters."""

from .base import BaseBallDPClassifier
from .descent import GradientPerturbation, Transcript, mean_gradient, mu_ex_post
from .gradients import MeanGradient
from .initialisation import Initialisation, initialise, start_values
from .iterates import Iterates
from .linear_discriminant import BallDPLinearDiscriminant
from .logistic import BallDPLogisticRegression
from .mechanism import (
    Budget,
    Mechanism,
    Neighbours,
    Outcome,
    PrivateProblem,
    Problem,
    Promise,
    as_sets,
)
from .objective import LinearObjective
from .output import OutputPerturbation
from .plan import Plan
from .released import ReleasedModel, fit_and_transcript
from .ridge_prototype import BallDPRidgePrototype, PrototypePerturbation
from .squared_hinge import BallDPSquaredHingeSVC
from .statistics import Layout, Statistics, StatisticsPerturbation, scales_of
from .weighing import FitWeights, owners_of

__all__ = [
    "BallDPLinearDiscriminant",
    "BallDPLogisticRegression",
    "BallDPRidgePrototype",
    "BallDPSquaredHingeSVC",
    "BaseBallDPClassifier",
    "Budget",
    "FitWeights",
    "GradientPerturbation",
    "Initialisation",
    "Iterates",
    "Layout",
    "LinearObjective",
    "MeanGradient",
    "Mechanism",
    "Neighbours",
    "Outcome",
    "OutputPerturbation",
    "Plan",
    "PrivateProblem",
    "Problem",
    "Promise",
    "PrototypePerturbation",
    "ReleasedModel",
    "Statistics",
    "StatisticsPerturbation",
    "Transcript",
    "as_sets",
    "fit_and_transcript",
    "initialise",
    "mean_gradient",
    "mu_ex_post",
    "owners_of",
    "scales_of",
    "start_values",
]
