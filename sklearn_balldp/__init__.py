"""Ball differential privacy for scikit-learn heads on fixed embeddings."""

from ._version import __version__
from .heads.ridge_prototype import BallDPRidgePrototype

__all__ = ["BallDPRidgePrototype", "__version__"]
