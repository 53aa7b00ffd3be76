"""``python -m benchmarks.falsify``: attacks on bounds, noise, sums of releases, and reading."""
