"""Ball differential privacy for scikit-learn heads on fixed embeddings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
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

#: Names by the module that holds them. It is imported when a name is first asked for: scikit-learn
#: alone takes two seconds, and the help of a command needs none of it.
_HELD = {
    "accounting": ("PrivacyAccountant", "compose_releases"),
    "audit": ("PrivacyUtilityDisplay", "ReconstructionAuditor", "ReconstructionDisplay"),
    "classifiers": (),
    "datasets": (),
    "encoders": (),
    "heads": (
        "BallDPLinearDiscriminant",
        "BallDPLogisticRegression",
        "BallDPRidgePrototype",
        "BallDPSquaredHingeSVC",
    ),
    "mechanisms": ("GradientPerturbation", "OutputPerturbation"),
    "privacy": (),
    "publish": ("verify",),
    "radius": ("RadiusPolicy",),
    "rows": (),
}


def __getattr__(name: str) -> Any:
    for module, names in _HELD.items():
        if name == module or name in names:
            held = import_module(f".{module}", __name__)
            value = globals()[name] = held if name == module else getattr(held, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HELD})
