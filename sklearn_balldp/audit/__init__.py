"""What still leaks: informed attacks on a release, and the certificates they are held against."""

from .auditor import (
    FailedGuaranteeWarning,
    ReconstructionAuditor,
    neg_certificate_scorer,
    neg_success_scorer,
)
from .displays import PrivacyUtilityDisplay, ReconstructionDisplay
from .preparation import PooledPreprocessingWarning

__all__ = [
    "FailedGuaranteeWarning",
    "PooledPreprocessingWarning",
    "PrivacyUtilityDisplay",
    "ReconstructionAuditor",
    "ReconstructionDisplay",
    "neg_certificate_scorer",
    "neg_success_scorer",
]
