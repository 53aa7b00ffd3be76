"""What is released: heads, and the rules by which they predict."""

from typing import Any

from .base import BaseBallDPClassifier
from .linear_discriminant import BallDPLinearDiscriminant
from .logistic import BallDPLogisticRegression
from .plan import Plan
from .released import Released, Settings
from .ridge_prototype import BallDPRidgePrototype
from .squared_hinge import BallDPSquaredHingeSVC
from .weighing import owners_of

#: Heads of this package, by the names that records call them by.
HEADS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        BallDPLinearDiscriminant,
        BallDPLogisticRegression,
        BallDPRidgePrototype,
        BallDPSquaredHingeSVC,
    )
}

__all__ = [
    "HEADS",
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
