"""A row of the journal that cannot be recorded stops neither the rows around it nor the other queues."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from godwit.core.clock import ManualClock
from godwit.core.journal.vocabulary import Event
from godwit.core.limits import LARGEST_COUNT, LATEST_MS
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.contract import Store
from godwit.telemetry.metrics import QueueMetricsCollector
from tests.hostile import OddTextError, UnshowableError
from tests.store.conformance.harness import StoreHarness
from tests.store.recorder.written_journal import AWAY, NOON_MS, WrittenJournal, arrival
from tests.store.tables import rows

HUGE = 2**64 - 1
YEAR_302_000_MS = 9_467_000_000_000_000
"""What `Retry(after=300_000 years)` once put into a journal."""


@pytest.fixture
def journal() -> WrittenJournal:
    return WrittenJournal()


@pytest.fixture
def metrics() -> QueueMetricsCollector:
    return QueueMetricsCollector()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON_MS)


@pytest.fixture
def recorder(journal: WrittenJournal, store: Store, metrics: QueueMetricsCollector, clock: ManualClock) -> Recorder:
    return Recorder(journal, store.messages, metrics=metrics, clock=clock)


async def recorded(harness: StoreHarness) -> set[str]:
    return {row["message_id"] for row in await rows(harness.url, "SELECT message_id FROM queue_messages")}


async def lost(harness: StoreHarness) -> dict[str, int]:
    return {row["shard"]: row["lost"] for row in await rows(harness.url, "SELECT shard, lost FROM recorder_position")}


HOSTILE_ARRIVALS: dict[str, dict[str, Any]] = {
    "an instant of the year 302,000": {"ready_at": YEAR_302_000_MS},
    "an instant beyond 64 bits": {"deliver_at": HUGE},
    "an instant before 1970": {"expires_at": -62_135_596_800_000},
    "a fraction": {"ready_at": 1.5},
    "not a number": {"ready_at": float("nan")},
    "an instant of text": {"ready_at": "soon"},
    "a priority beyond INTEGER": {"priority": 2**31},
    "a priority beyond 64 bits": {"priority": -(2**63)},
    "copies without end": {"copies": sys.maxsize},
    "a long type": {"type": "t" * 10_000},
    "no type": {"type": None},
    "a type with NUL": {"type": "a\0b"},
    "a type that is no text": {"type": {"a": 1}},
    "attempts without end": {"body": b'{"payload":1,"retry_policy":{"max_attempts":%d}}' % sys.maxsize},
    "attempts beyond 64 bits": {"body": b'{"payload":1,"retry_policy":{"max_attempts":%d}}' % (10**30)},
    "a creation without a zone": {"body": b'{"payload":1,"created_at":"2026-01-01T00:00:00"}'},
    "a creation of the year 1": {"body": b'{"payload":1,"created_at":"0001-01-01T00:00:00Z"}'},
    "a deep body": {"body": b'{"payload":%b1%b}' % (b"[" * 100_000, b"]" * 100_000)},
    "a body that is none": {"body": b"\xff\0"},
    "a body of text": {"body": '{"payload":1}'},
    "a payload with NUL": {"body": b'{"payload":"\\u0000"}'},
    "a number beyond all bounds": {"body": b'{"payload":1e400}'},
}


@pytest.mark.parametrize("changes", HOSTILE_ARRIVALS.values(), ids=HOSTILE_ARRIVALS.keys())
async def test_an_odd_value_is_brought_inside_the_limits_and_its_neighbours_are_recorded(
    harness: StoreHarness, store: Store, journal: WrittenJournal, recorder: Recorder, changes: dict[str, Any]
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1), arrival("odd", 2, **changes), arrival("a3", 3)])
    journal.write("b#0", Event.ENQUEUED, [arrival("b1", 1)])
    await recorder.tick()
    assert recorder.lag.rows == 0
    assert await recorded(harness) == {"a1", "odd", "a3", "b1"}
    assert await lost(harness) == {"a#0": 0, "b#0": 0}
    found = await store.messages.status("odd")
    assert found is not None
    assert found.queue == "a"


async def test_a_delay_of_300_000_years_is_recorded_as_the_latest_instant(
    store: Store, journal: WrittenJournal, recorder: Recorder
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1)])
    nacked = ["a1", 1, "d1", 2**40, 2**31, -5, HUGE, "order", 1, None, "transient" * 9, "f" * 500, YEAR_302_000_MS]
    journal.write("a#0", Event.NACKED, [nacked])
    await recorder.tick()
    found = await store.messages.status("a1")
    assert found is not None
    (group,) = found.groups
    assert group.next_retry is not None
    assert int(group.next_retry.timestamp() * 1000) == LATEST_MS
    assert (group.attempts, group.failures, group.crashes, group.run_ms) == (
        LARGEST_COUNT,
        LARGEST_COUNT,
        0,
        LARGEST_COUNT,
    )


@pytest.mark.parametrize("at", [2**63 - 1, -(2**63), 0])
async def test_a_chunk_of_any_time_is_recorded(
    harness: StoreHarness, store: Store, journal: WrittenJournal, recorder: Recorder, at: int
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1)], at=at)
    journal.write("a#0", Event.ACKED, [["a1", 1, "d", 1, 0, 0, 5, "order", 1, None, b"not json"]], at=at)
    await recorder.tick()
    assert recorder.lag.rows == 0
    assert len(await rows(harness.url, "SELECT * FROM queue_messages_history")) == 1
    found = await store.messages.status("a1")
    assert found is not None
    assert found.status == "completed"


@pytest.mark.parametrize("result", [b"not json", b"\xff\xfe", b'"\\u0000"', b'"\\ud800"', b"[" * 100_000, b"", "text"])
async def test_a_result_of_any_bytes_is_kept_and_read_again(
    store: Store, journal: WrittenJournal, recorder: Recorder, result: Any
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1)])
    journal.write("a#0", Event.ACKED, [["a1", 1, "d", 1, 0, 0, 5, "order", 1, None, result]])
    await recorder.tick()
    found = await store.messages.status("a1")
    assert found is not None
    assert found.status == "completed"


@pytest.mark.parametrize(
    "spec",
    [
        b'{"name":"a","priority":2147483648}',
        b'{"name":"a","priority":%d}' % (10**30),
        b'{"name":"a","type":"%b"}' % (b"t" * 1_000),
        b'{"name":"a\\u0000"}',
        b"\xff",
        b"[" * 100_000,
        None,
    ],
)
async def test_settings_of_a_queue_that_no_column_holds_are_recorded_as_far_as_they_can(
    harness: StoreHarness, journal: WrittenJournal, recorder: Recorder, spec: bytes | None
) -> None:
    journal.write("a#0", Event.QUEUE_CREATED, [[spec]], group=None)
    journal.write("a#0", Event.GROUP_CREATED, [[spec]])
    journal.write("b#0", Event.ENQUEUED, [arrival("b1", 1)])
    await recorder.tick()
    assert recorder.lag.rows == 0
    assert [row["name"] for row in await rows(harness.url, "SELECT name FROM message_queues")] == ["a"]
    assert await recorded(harness) == {"b1"}


UNUSABLE: dict[str, list[Any]] = {
    "no message id": arrival("", 2),
    "a message id that is no text": [7, *arrival("x", 2)[1:]],
    "a message id that is too long": arrival("x" * 256, 2),
    "a publish_seq beyond 64 bits": arrival("x", 2**63),
    "an empty row": [],
}


@pytest.mark.parametrize("row", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_a_row_of_no_message_is_passed_over_and_counted(
    harness: StoreHarness,
    journal: WrittenJournal,
    recorder: Recorder,
    metrics: QueueMetricsCollector,
    row: list[Any],
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1), row, arrival("a3", 3)])
    await recorder.tick()
    assert await recorded(harness) == {"a1", "a3"}
    assert await lost(harness) == {"a#0": 1}
    assert (recorder.lost, recorder.lag.rows) == (1, 0)
    assert "godwit_recorder_unusable_total 1" in metrics.render()


async def test_what_the_store_refuses_is_found_by_halving_and_everything_else_is_recorded(
    harness: StoreHarness, store: Store, journal: WrittenJournal, recorder: Recorder
) -> None:
    """The name of a group has no limit of its own here: PostgreSQL's column has. SQLite takes it."""
    journal.write("b#0", Event.ENQUEUED, [arrival(f"b{seq}", seq) for seq in range(1, 20)])
    journal.write("a#0", Event.ENQUEUED, [arrival(f"a{seq}", seq) for seq in range(1, 20)])
    journal.write("a#0", Event.ENQUEUED, [arrival("odd", 20)], group="g" * 300)
    journal.write("a#0", Event.ENQUEUED, [arrival(f"a{seq}", seq) for seq in range(21, 40)])
    await recorder.tick()
    found = await recorded(harness)
    assert found - {"odd"} == {f"a{seq}" for seq in range(1, 40) if seq != 20} | {f"b{seq}" for seq in range(1, 20)}
    assert recorder.lag.rows == 0
    assert recorder.lost == (harness.backend == "postgres")
    assert await recorder.tick() == 0


@pytest.mark.parametrize("chunk", [b"\xc1", b"", b"\x91" * 100_000])
async def test_a_chunk_that_cannot_be_read_is_made_up_for_by_a_list_of_what_is_there(
    harness: StoreHarness, journal: WrittenJournal, recorder: Recorder, chunk: bytes
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1)])
    journal.add("a#0", chunk, 5)
    journal.write("b#0", Event.ENQUEUED, [arrival("b1", 1)])
    await recorder.catch_up()
    assert recorder.lag.rows == 0
    assert "b1" in await recorded(harness)
    journal.chunks["a#0"].clear()
    journal.write("a#0", Event.ENQUEUED, [arrival("a9", 9)])
    await recorder.catch_up()
    assert {"a9", "b1"} <= await recorded(harness)


async def test_an_event_that_nobody_knows_is_passed_over(
    harness: StoreHarness, journal: WrittenJournal, recorder: Recorder
) -> None:
    newer = msgspec.msgpack.encode([1, "e1", 1, NOON_MS, "teleported", "a", "g", None, None, [["x", 1], ["y", 2]]])
    journal.add("a#0", newer, 2)
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 3)])
    await recorder.catch_up()
    assert await recorded(harness) == {"a1"}
    assert await lost(harness) == {"a#0": 2}


@pytest.mark.parametrize(
    "error",
    [AWAY, OddTextError(), UnshowableError(), RuntimeError("OOM command not allowed")],
    ids=["away", "odd text", "unshowable", "out of memory"],
)
async def test_a_shard_that_cannot_be_read_waits_and_the_others_are_recorded(
    harness: StoreHarness, journal: WrittenJournal, recorder: Recorder, clock: ManualClock, error: Exception
) -> None:
    journal.write("a#0", Event.ENQUEUED, [arrival("a1", 1)])
    journal.write("b#0", Event.ENQUEUED, [arrival("b1", 1)])
    journal.broken["a#0"] = error
    assert await recorder.tick() == 1
    assert await recorded(harness) == {"b1"}
    assert [name for name, _ in recorder.troubles] == ["a#0"]
    journal.broken.clear()
    assert await recorder.tick() == 0, "it is left alone for a while"
    clock.advance(recorder.troubles.longest)
    assert await recorder.tick() == 1
    assert await recorded(harness) == {"a1", "b1"}
    assert not len(recorder.troubles)


async def test_a_broker_of_which_nothing_can_be_read_is_an_outage(journal: WrittenJournal, recorder: Recorder) -> None:
    for shard in ("a#0", "b#0"):
        journal.write(shard, Event.ENQUEUED, [arrival("x", 1)])
        journal.broken[shard] = AWAY
    with pytest.raises(type(AWAY)):
        await recorder.tick()


async def test_a_shard_that_takes_no_commit_is_tried_again_and_the_others_are_told(
    journal: WrittenJournal, recorder: Recorder, clock: ManualClock
) -> None:
    for shard in ("a#0", "b#0"):
        journal.write(shard, Event.ENQUEUED, [arrival(f"{shard[0]}1", 1)])
    journal.uncommittable["a#0"] = AWAY
    await recorder.tick()
    assert set(journal.commits) == {"b#0"}
    journal.uncommittable.clear()
    clock.advance(recorder.troubles.longest)
    await recorder.tick()
    assert set(journal.commits) == {"a#0", "b#0"}
