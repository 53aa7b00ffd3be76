"""Properties that hypothesis tries to refute, by the same examples in every run."""

from hypothesis import HealthCheck, settings

PROPERTY = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
