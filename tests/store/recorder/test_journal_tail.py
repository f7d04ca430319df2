"""While the recorder yields, a message's status is that of the tables as they will be once it has caught up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock
from godwit.core.journal.statuses import MessageStatus, Status
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import JournalBody, QueueSpec
from godwit.runtime.effects import status
from godwit.runtime.recorder.pace import BEHIND_MOST, GATHER, LONGEST_REST, PATIENCE, Pace
from godwit.runtime.recorder.recorder import Recorder
from tests.store.conformance.harness import BACKENDS, harness_of
from tests.store.recorder.random_histories import Life
from tests.store.recorder.test_projection import journal_rows, published_once


def essence(found: MessageStatus | None) -> MessageStatus | None:
    """Leave out when a copy of a message was done that failed as a whole: whether that is kept depends on batches."""
    return found if found is None else msgspec.structs.replace(found, processed_at=None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(4))
async def test_what_is_not_recorded_is_told_as_it_will_be_recorded(
    backend: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "NEAR", 0)
    clock = ManualClock()
    broker = MemoryBroker(clock=clock)
    life = Life(broker, clock, seed)
    await life.begin()
    with harness_of(backend, tmp_path) as harness:
        async with harness.open() as store:
            recorder = Recorder(broker.journal, store.messages, batch_rows=40, clock=clock)
            for _ in range(3):
                await life.live(25)
                before = await store.messages.positions()
                names = [f"m{number}" for number in range(1, life.count + 1)]
                told = {name: await status.recorded(broker, store, name, clock) for name in names}
                assert await store.messages.positions() == before, "asking does not record"
                await recorder.catch_up()
                later = {name: await store.messages.status(name) for name in names}
                # What two queues have under one id is one row, that of whichever is recorded last.
                once = published_once(await journal_rows(broker))
                assert {name: essence(told[name]) for name in once} == {name: essence(later[name]) for name in once}
                assert {name: one and one.groups for name, one in told.items()} == {
                    name: one and one.groups for name, one in later.items()
                }


async def test_a_status_is_told_at_once_however_far_the_recorder_is_behind(tmp_path: Path) -> None:
    broker = MemoryBroker()
    await broker.declare(QueueSpec(name="orders", journal_body=JournalBody.ON))
    with harness_of("sqlite", tmp_path) as harness:
        async with harness.open() as store:
            for first in range(0, 3 * status.NEAR, 200):
                await broker.publish([seal(Message(id=f"o{first + one}", queue="orders")) for one in range(200)])
            found = await status.status_of(broker, store, "o777")
            assert found is not None
            assert (found.status, found.queue) == (Status.PENDING, "orders")
            assert await store.messages.positions() == {}, "nobody had to record for it"
            assert await status.status_of(broker, store, "nobody") is None


def test_a_recorder_yields_only_while_it_cannot_keep_up_and_not_for_ever() -> None:
    pace = Pace()
    pace.looked(0, 1_000)
    assert pace.rest(1_000, 1_010, behind=9_000) == GATHER, "nothing is known yet: somebody may have begun to work"
    assert pace.rest(1_000, 1_010, behind=0) == timedelta(0)
    pace.looked(10_000, 1_100)  # a hundred rows each millisecond
    assert pace.rest(200, 1_105, behind=9_000) == timedelta(milliseconds=5 * PATIENCE)
    assert pace.rest(1_000, 3_100, behind=9_000) == LONGEST_REST
    assert pace.rest(1_000, 1_120, behind=BEHIND_MOST + 1) == timedelta(0), "the journal must not be trimmed unread"
    pace.looked(13_000, 1_200)  # thirty rows each millisecond
    assert pace.rest(400, 1_230, behind=9_000) == LONGEST_REST
    assert pace.rest(400, 1_220, behind=9_000) == timedelta(milliseconds=20), "nearly: it rests half of the time"
    assert pace.rest(400, 1_213, behind=9_000) == timedelta(0), "it just keeps up, and must go on"
    pace.looked(13_100, 1_300)  # one row each millisecond: it can be recorded as it comes
    assert pace.rest(1_000, 1_320, behind=9_000) == timedelta(0)
