"""Settings of the tests as a whole."""

from hypothesis import HealthCheck, settings

# The same examples on every run. To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")
