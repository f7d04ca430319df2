"""Settings of all tests: how thorough Hypothesis is.

`ci` (the default) is the same on every run: a failure seen once is seen again, and is shown as it was found, with the
blob that repeats it. `soak` looks elsewhere each time and longer, and makes what it found as small as it can:
`./dev test tests/properties --hypothesis-profile=soak`.
"""

from __future__ import annotations

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, Phase, settings

from tests import hang_watchdog, steal_time, xdist_groups
from tests.failure_report import Failures
from tests.servers import session_servers

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
    config.addinivalue_line("markers", "xdist_group(name): tests that one process runs; planted bugs go without xdist")
    if not config.getoption("numprocesses", None):  # with workers, the first process only waits for them
        hang_watchdog.watch()
        steal_time.watch()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))
        if config.pluginmanager.has_plugin("xdist"):
            config.pluginmanager.register(xdist_groups)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note which test runs, and for how long it may."""
    hang_watchdog.begin(item.nodeid, _seconds(item))


def pytest_runtest_logfinish() -> None:
    """Note that no test runs: a process may wait as long as others work."""
    hang_watchdog.rest()


def pytest_sessionfinish() -> None:
    """Stop the servers that tests of this process started."""
    hang_watchdog.begin("stopping the servers")
    session_servers.stop_all()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep groups of tests together, and let none ask for more time than a run can spare.

    xdist 3.8 writes the group (`xdist_group`) into a field that pytest 9.2 does not read.
    """
    for item in items:
        if _seconds(item) > hang_watchdog.LONGEST_TEST_SECONDS:
            raise pytest.UsageError(
                f"{item.nodeid} asks for {_seconds(item)} s; {hang_watchdog.LONGEST_TEST_SECONDS} is the most."
            )
        grouped = getattr(item, "_nodeid", None)
        if grouped is not None and grouped != item.nodeid:
            item._id = coerce_node_id(grouped)


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker is not None else item.config.getini("timeout"))
