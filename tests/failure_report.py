"""Failures told as they happen: a long run that is ended from outside has then said what it knew."""

from __future__ import annotations

import pytest


class Failures:
    """Prints one line for each failure, at once."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say which test failed, where and why."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = (
                f"{crash.path}:{crash.lineno}: {crash.message.splitlines()[0]}"
                if crash and crash.message
                else str(report.longrepr)
            )
            terminal.write_line(f"\nfailed in {report.duration:.0f} s: {report.nodeid} ({report.when}): {why[:400]}")
