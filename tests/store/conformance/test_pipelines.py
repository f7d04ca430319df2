"""What makes a pipeline's results count once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from godwit.core.errors import ManifestMoved, PositionGap, PositionMoved, StagingLost
from godwit.core.journal.shards import Position
from godwit.store.contract import Store
from godwit.store.pipelines import (
    HistogramRow,
    LakeFile,
    MinuteRow,
    PipelineAdvance,
    Publication,
    Staged,
    StoredVerdict,
    new_run_id,
)
from tests.store.conformance.harness import StoreHarness

MINUTE = 1_750_000_020_000  # 2025-06-15T15:07:00Z
DAY = "2025-06-15"
NIGHT = 1_750_031_940_000  # 2025-06-15T23:59:00Z


def run(number: int) -> str:
    return new_run_id(MINUTE + number, f"{number:04x}")


def minute(at_ms: int, group: str | None, *, processed: int = 1, depth: int = 5) -> MinuteRow:
    return (at_ms, "orders", group, 2, processed, 1, 0, 0, 3, 40 * processed, processed, 7, 3, depth)


def advance(first: int, last: int, *, epoch: str = "e1", shard: str = "orders#0") -> PipelineAdvance:
    return PipelineAdvance(shard=shard, epoch=epoch, first=first, last=last, at_ms=MINUTE)


async def published(
    store: Store, number: int, advances: list[PipelineAdvance], minutes: list[MinuteRow], histogram: list[HistogramRow]
) -> None:
    staged = await store.pipelines.stage(run(number), minutes, histogram)
    await store.pipelines.publish(Publication(run_id=run(number), advances={"analytics": advances}, staged=staged))


def file(name: str, *, day: str = DAY, rows: int = 10) -> LakeFile:
    return LakeFile(
        path=f"journal/{name}.parquet", dataset="journal", day=day, rows=rows, bytes=100, first_seq=1, last_seq=rows
    )


async def test_positions_move_with_what_is_published(store: Store) -> None:
    assert await store.pipelines.positions("analytics") == {}
    await store.pipelines.publish(
        Publication(
            run_id=run(1), advances={"a": [advance(1, 10), advance(1, 3, shard="mail#0")], "b": [advance(1, 4)]}
        )
    )
    await store.pipelines.publish(Publication(run_id=run(2), advances={"a": [advance(11, 20)]}))
    assert await store.pipelines.positions("a") == {"orders#0": Position("e1", 20), "mail#0": Position("e1", 3)}
    assert await store.pipelines.positions("b") == {"orders#0": Position("e1", 4)}
    places = await store.pipelines.places()
    assert [(one.pipeline, one.shard, one.seq, one.at_ms) for one in places] == [
        ("a", "mail#0", 3, MINUTE),
        ("a", "orders#0", 20, MINUTE),
        ("b", "orders#0", 4, MINUTE),
    ]
    assert await store.pipelines.forget("a") == 2
    assert await store.pipelines.positions("a") == {}


async def test_a_pipeline_begins_where_it_is_told_and_only_once(store: Store) -> None:
    await store.pipelines.begin("a", {"orders#0": Position("e1", 40), "mail#0": Position("e1", 0)})
    await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(41, 50)]}))
    await store.pipelines.begin("a", {"orders#0": Position("e1", 40), "new#0": Position("e1", 7)})
    assert await store.pipelines.positions("a") == {
        "orders#0": Position("e1", 50),
        "mail#0": Position("e1", 0),
        "new#0": Position("e1", 7),
    }


async def test_a_shard_that_was_not_there_at_the_beginning_is_read_from_its_first_row(store: Store) -> None:
    with pytest.raises(PositionGap):
        await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(2, 5)]}))
    await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(1, 5)]}))


async def test_rows_that_were_published_are_refused_and_nothing_changes(store: Store) -> None:
    await published(store, 1, [advance(1, 10)], [minute(MINUTE, None)], [])
    with pytest.raises(PositionMoved, match="row 10"):
        await published(store, 2, [advance(1, 12)], [minute(MINUTE, None)], [])
    (day,) = await store.pipelines.days()
    assert day.messages_processed == 1
    assert await store.pipelines.positions("analytics") == {"orders#0": Position("e1", 10)}


@pytest.mark.parametrize("second", [advance(12, 20), advance(11, 20, epoch="e2")], ids=["a hole", "another epoch"])
async def test_missing_rows_are_refused_unless_their_loss_is_accepted(store: Store, second: PipelineAdvance) -> None:
    await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(1, 10)]}))
    lost = Publication(run_id=run(2), advances={"a": [second]})
    with pytest.raises(PositionGap):
        await store.pipelines.publish(lost)
    assert await store.pipelines.positions("a") == {"orders#0": Position("e1", 10)}
    await store.pipelines.publish(Publication(run_id=run(2), advances={"a": [second]}, accept_loss=True))
    assert await store.pipelines.positions("a") == {"orders#0": Position(second.epoch, 20)}


async def test_of_two_drivers_with_the_same_rows_one_publishes(harness: StoreHarness) -> None:
    stores = [harness.open() for _ in range(6)]
    try:
        await stores[0].ping()
        outcomes = await asyncio.gather(
            *(
                published(
                    store,
                    number,
                    [advance(1, 10)],
                    [minute(MINUTE, "billing")],
                    [(MINUTE, "orders", "billing", "wait_ms", 3, 2)],
                )
                for number, store in enumerate(stores)
            ),
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", *["PositionMoved"] * 5]
        (day,) = await stores[0].pipelines.days()
        assert (day.messages_enqueued, day.messages_processed) == (2, 1)
    finally:
        for store in stores:
            await store.close()


async def test_a_day_is_the_sum_of_its_minutes_in_any_order(store: Store) -> None:
    later = [minute(NIGHT, None, processed=4, depth=9), minute(NIGHT, "billing", processed=4, depth=9)]
    await published(store, 1, [advance(1, 10)], later, [(NIGHT, "orders", "billing", "wait_ms", 3, 2)])
    first = [minute(MINUTE, None, processed=2), minute(MINUTE, "mail", processed=2), minute(NIGHT + 60_000, None)]
    await published(store, 2, [advance(11, 20)], first, [(MINUTE, "orders", "mail", "wait_ms", 3, 2)])
    await published(store, 3, [advance(21, 30)], [minute(NIGHT, None, processed=1, depth=1)], [])
    days = {(day.date, day.consumer_group): day for day in await store.pipelines.days()}
    assert set(days) == {(DAY, None), (DAY, "billing"), (DAY, "mail"), ("2025-06-16", None)}
    whole, billing = days[(DAY, None)], days[(DAY, "billing")]
    covered = (NIGHT - MINUTE) // 60_000 + 1
    assert (whole.messages_processed, whole.peak_queue_depth, whole.minutes_covered) == (7, 9, covered)
    assert (billing.messages_processed, billing.minutes_covered) == (4, covered)
    assert (whole.average_processing_time_ms, billing.messages_delivered) == (40, 3)
    assert whole.throughput_per_minute == pytest.approx(7 / covered, abs=0.005)
    assert days[("2025-06-16", None)].throughput_per_minute == 1.0
    assert [day.date for day in await store.pipelines.days(since="2025-06-16")] == ["2025-06-16"]


async def test_staged_numbers_that_are_gone_are_not_taken_for_none(store: Store) -> None:
    staged = Staged(run_id=run(1), minutes=1, histogram=0)
    with pytest.raises(StagingLost):
        await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(1, 5)]}, staged=staged))
    assert await store.pipelines.positions("a") == {}


async def test_what_a_killed_run_staged_is_never_counted_and_goes_after_a_day(store: Store) -> None:
    await store.pipelines.stage(run(1), [minute(MINUTE, None)], [])
    tomorrow = new_run_id(MINUTE + 86_400_000 + 10, "beef")
    staged = await store.pipelines.stage(tomorrow, [minute(MINUTE, None)], [])
    await store.pipelines.publish(Publication(run_id=tomorrow, advances={"a": [advance(1, 5)]}, staged=staged))
    (day,) = await store.pipelines.days()
    assert day.messages_processed == 1
    with pytest.raises(StagingLost):
        await store.pipelines.publish(Publication(run_id=run(1), staged=Staged(run_id=run(1), minutes=1, histogram=0)))


async def test_a_lake_lists_what_was_published_and_swaps_it_as_a_whole(store: Store) -> None:
    old = [file("one"), file("two"), file("other", day="2025-06-16")]
    await store.pipelines.publish(
        Publication(run_id=run(1), lake="main", advances={"lake main": [advance(1, 30)]}, add=old)
    )
    assert await store.pipelines.files("main", "journal") == sorted(old, key=lambda one: (one.day, one.path))
    assert await store.pipelines.files("main", "journal", days=["2025-06-16"]) == old[2:]
    assert await store.pipelines.files("second", "journal") == []
    swap = Publication(run_id=run(2), lake="main", add=[file("both", rows=20)], remove=[one.path for one in old[:2]])
    await store.pipelines.publish(swap)
    assert await store.pipelines.files("main", "journal", days=[DAY]) == [file("both", rows=20)]
    again = Publication(run_id=run(3), lake="main", add=[file("twice", rows=20)], remove=[one.path for one in old[:2]])
    with pytest.raises(ManifestMoved):
        await store.pipelines.publish(again)
    assert await store.pipelines.files("main", "journal", days=[DAY]) == [file("both", rows=20)]


async def test_files_that_stopped_counting_are_known_until_they_are_unlisted(store: Store) -> None:
    await store.pipelines.publish(Publication(run_id=run(1), lake="main", add=[file("one"), file("two")]))
    await store.pipelines.publish(Publication(run_id=run(2), lake="main", remove=[file("one").path]))
    far = 4_102_444_800_000
    assert await store.pipelines.removed("main", before_ms=far) == [file("one").path]
    assert await store.pipelines.removed("main", before_ms=MINUTE) == []
    assert await store.pipelines.listed("main") == {file("one").path, file("two").path}
    await store.pipelines.unlist("main", [file("one").path, file("two").path])
    assert await store.pipelines.listed("main") == {file("two").path}


async def test_a_state_moves_with_the_position_and_is_forgotten_with_it(store: Store) -> None:
    assert await store.pipelines.state("a") is None
    await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(1, 4)]}, states={"a": b"\0one"}))
    with pytest.raises(PositionMoved):
        await store.pipelines.publish(Publication(run_id=run(2), advances={"a": [advance(1, 4)]}, states={"a": b"no"}))
    assert await store.pipelines.state("a") == b"\0one"
    await store.pipelines.publish(Publication(run_id=run(3), advances={"a": [advance(5, 6)]}, states={"a": b"two"}))
    assert (await store.pipelines.state("a"), await store.pipelines.state("b")) == (b"two", None)
    await store.pipelines.forget("a")
    assert await store.pipelines.state("a") is None


async def test_a_position_that_the_broker_set_back_keeps_its_rows_under_another_epoch(store: Store) -> None:
    await store.pipelines.publish(Publication(run_id=run(1), advances={"a": [advance(1, 10)], "b": [advance(1, 10)]}))
    assert not await store.pipelines.set_back("a", "orders#0", Position("e1", 9), "e1~7")
    assert not await store.pipelines.set_back("a", "mail#0", Position("e1", 10), "e1~7")
    assert await store.pipelines.set_back("a", "orders#0", Position("e1", 10), "e1~7")
    assert await store.pipelines.positions("a") == {"orders#0": Position("e1~7", 10)}
    assert await store.pipelines.positions("b") == {"orders#0": Position("e1", 10)}
    again = Publication(run_id=run(2), advances={"a": [advance(1, 3)]})
    with pytest.raises(PositionGap):
        await store.pipelines.publish(again)
    await store.pipelines.publish(msgspec.structs.replace(again, accept_loss=True))
    assert await store.pipelines.positions("a") == {"orders#0": Position("e1", 3)}


async def test_verdicts_are_kept_in_order_one_of_each_number(store: Store) -> None:
    def verdict(number: int, body: bytes = b"{}") -> StoredVerdict:
        return StoredVerdict(number=number, body=body, hash=f"{number:064x}")

    assert await store.pipelines.last_verdict("a") is None
    assert await store.pipelines.attest("a", verdict(1))
    assert not await store.pipelines.attest("a", verdict(1, b"other"))
    assert await store.pipelines.attest("a", verdict(2, b"\0"))
    assert await store.pipelines.attest("b", verdict(1))
    assert await store.pipelines.last_verdict("a") == verdict(2, b"\0")
    assert await store.pipelines.verdicts("a") == [verdict(1), verdict(2, b"\0")]
    assert await store.pipelines.verdicts("a", after=1) == [verdict(2, b"\0")]
    await store.pipelines.forget("a")
    assert len(await store.pipelines.verdicts("a")) == 2
