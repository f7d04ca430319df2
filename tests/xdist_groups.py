"""Tests shared out among processes, also after one of these died: the test it died in has failed, the others go on.

xdist 3.8 keeps groups together (`--dist loadgroup`), but after a death it hands out the deadly test again, and the
process that gets it as its only one waits for ever for a second.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Groups(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's groups, whose run always ends."""

    def remove_node(self, node: WorkerController) -> str | None:
        workload = self.assigned_work.pop(node)
        died_in: tuple[dict[str, bool], str] | None = next(
            ((unit, test) for unit in workload.values() for test, done in unit.items() if not done), None
        )
        if died_in is None:
            return None
        unit, test = died_in
        unit[test] = True
        self.workqueue.update({scope: left for scope, left in workload.items() if not all(left.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return test

    def schedule(self) -> None:
        # A process begins a test once it knows the next one, or that there is none: twice tells it either.
        super().schedule()
        super().schedule()

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:  # a second new process may not have looked for its tests yet
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    """Share tests out by group."""
    return Groups(config, log)
