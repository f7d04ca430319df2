"""A fresh instance for each test, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from godwit.core.clock import ManualClock
from godwit.messagequeue import MessageQueue


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Iterator[MessageQueue]:
    MessageQueue.reset_instance(clock=clock)
    yield MessageQueue.get_instance()
    MessageQueue.reset_instance()
