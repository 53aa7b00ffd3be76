"""Measurements: ``python -m benchmarks`` remakes all that the pages show."""
