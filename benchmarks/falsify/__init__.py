"""``python -m benchmarks.falsify``: attacks every bound, the noise, the accountant and the reading."""
