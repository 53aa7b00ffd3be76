"""Measurements: ``python -m benchmarks.paper`` and ``python -m benchmarks.speed``."""
