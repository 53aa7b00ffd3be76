"""Records of every kind."""

from record_kinds import forged, release, release_of

__all__ = ["forged", "release", "release_of"]
