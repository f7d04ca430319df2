"""Settings of all tests: how thorough Hypothesis is.

`ci` (the default) is the same on every run: a failure seen once is seen again, and is shown as it was found, with the
blob that repeats it. `soak` looks elsewhere each time and longer, and makes what it found as small as it can:
`./dev test tests/properties --hypothesis-profile=soak`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.servers import lasting

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci",
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=_SLOW,
)
settings.register_profile("soak", max_examples=2_000, deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of this suite."""
    config.addinivalue_line("markers", "promise(number): the promise of the broker contract that a test shows")


def pytest_sessionfinish() -> None:
    """Stop the servers that tests of this process started."""
    lasting.stop_all()
