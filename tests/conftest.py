"""Settings for the whole suite: the draws of hypothesis are the same in every run."""

from hypothesis import settings

# No deadline: no test asserts a time. Derandomized: a red run is red again on the next machine.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
