"""What every test shares."""

from hypothesis import HealthCheck, settings

# The same examples on every run and no verdict by the clock: a busy machine fails nothing. Other seeds:
# `pytest --hypothesis-profile=default --hypothesis-seed=N`.
settings.register_profile("gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")
