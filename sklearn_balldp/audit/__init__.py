"""Audits: informed attacks on a release, compared with its certificates."""

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
