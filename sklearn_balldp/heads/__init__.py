"""What is released: heads, and the rules by which they predict."""

from .base import BaseBallDPClassifier
from .linear_discriminant import BallDPLinearDiscriminant
from .logistic import BallDPLogisticRegression
from .plan import Plan
from .released import Released, Settings
from .ridge_prototype import BallDPRidgePrototype
from .squared_hinge import BallDPSquaredHingeSVC
from .weighing import owners_of

__all__ = [
    "BallDPLinearDiscriminant",
    "BallDPLogisticRegression",
    "BallDPRidgePrototype",
    "BallDPSquaredHingeSVC",
    "BaseBallDPClassifier",
    "Plan",
    "Released",
    "Settings",
    "owners_of",
]
