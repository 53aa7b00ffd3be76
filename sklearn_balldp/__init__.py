"""Ball differential privacy for scikit-learn heads on fixed embeddings."""

from ._version import __version__
from .audit.auditor import ReconstructionAuditor
from .audit.displays import PrivacyUtilityDisplay, ReconstructionDisplay
from .heads.logistic import BallDPLogisticRegression
from .heads.ridge_prototype import BallDPRidgePrototype
from .heads.squared_hinge import BallDPSquaredHingeSVC
from .policy.radius import RadiusPolicy
from .privacy.accounting import PrivacyAccountant, compose_releases

__all__ = [
    "BallDPLogisticRegression",
    "BallDPRidgePrototype",
    "BallDPSquaredHingeSVC",
    "PrivacyAccountant",
    "PrivacyUtilityDisplay",
    "RadiusPolicy",
    "ReconstructionAuditor",
    "ReconstructionDisplay",
    "__version__",
    "compose_releases",
]
