"""Ball differential privacy for scikit-learn heads on fixed embeddings."""

from ._version import __version__
from .accounting import PrivacyAccountant, compose_releases
from .audit import PrivacyUtilityDisplay, ReconstructionAuditor, ReconstructionDisplay
from .heads import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)
from .mechanisms import GradientPerturbation, OutputPerturbation
from .publish import verify
from .radius import RadiusPolicy

__all__ = [
    "BallDPLinearDiscriminant",
    "BallDPLogisticRegression",
    "BallDPRidgePrototype",
    "BallDPSquaredHingeSVC",
    "GradientPerturbation",
    "OutputPerturbation",
    "PrivacyAccountant",
    "PrivacyUtilityDisplay",
    "RadiusPolicy",
    "ReconstructionAuditor",
    "ReconstructionDisplay",
    "__version__",
    "compose_releases",
    "verify",
]
