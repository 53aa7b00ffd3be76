"""Ball differential privacy for scikit-learn heads on fixed embeddings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .accounting import PrivacyAccountant as PrivacyAccountant
    from .accounting import compose_releases as compose_releases
    from .audit import PrivacyUtilityDisplay as PrivacyUtilityDisplay
    from .audit import ReconstructionAuditor as ReconstructionAuditor
    from .audit import ReconstructionDisplay as ReconstructionDisplay
    from .heads import BallDPLinearDiscriminant as BallDPLinearDiscriminant
    from .heads import BallDPLogisticRegression as BallDPLogisticRegression
    from .heads import BallDPRidgePrototype as BallDPRidgePrototype
    from .heads import BallDPSquaredHingeSVC as BallDPSquaredHingeSVC
    from .mechanisms import GradientPerturbation as GradientPerturbation
    from .mechanisms import OutputPerturbation as OutputPerturbation
    from .publish import verify as verify
    from .radius import RadiusPolicy as RadiusPolicy

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
__all__ = ["__version__", *sorted(name for names in _HELD.values() for name in names)]


def __getattr__(name: str) -> Any:
    for module, names in _HELD.items():
        if name == module or name in names:
            held = import_module(f".{module}", __name__)
            value = globals()[name] = held if name == module else getattr(held, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HELD})
