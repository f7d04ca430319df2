"""The journal a store keeps for brokers that cannot: read like any broker's own."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.external_journal import JournalStep
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.store.chunks import packed
from godwit.store.contract import Store
from godwit.store.postgres.database import sql
from tests.store.conformance.harness import StoreHarness

SHARD = "orders#0"
EVER = 1 << 60


def step(*ids: str, at_ms: int = 1_000, depth: int | None = None) -> JournalStep:
    rows = [(one, number) for number, one in enumerate(ids)]
    return JournalStep(at_ms=at_ms, event=Event.CANCELLED, queue="orders", group="default", depth=depth, rows=rows)


async def rows(store: Store, after: Position | None = None, limit: int = 1_000) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while chunks := await store.journal.read(SHARD, after, limit=limit):
        for chunk in map(decode_chunk, chunks):
            found += [row for row in rows_of(chunk, SHARD) if after is None or row["seq"] > after.seq]
        after = Position(found[-1]["epoch"], found[-1]["seq"])
    return found


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [row["message_id"] for row in found]


async def test_steps_come_back_as_rows_with_dense_numbers(store: Store) -> None:
    await store.journal.append(SHARD, [step("a", "b", depth=2), step("c")])
    await store.journal.append(SHARD, [step("d")])
    found = await rows(store)
    assert ids(found) == ["a", "b", "c", "d"]
    assert [row["seq"] for row in found] == [1, 2, 3, 4]
    assert (found[0]["depth"], found[0]["group"], found[0]["event"]) == (2, "default", Event.CANCELLED)
    kept = (await store.journal.shards())[SHARD]
    assert (kept.epoch, kept.first_seq, kept.last_seq) == (found[0]["epoch"], 1, 4)
    assert kept.bytes > 0


async def test_actor_and_version_come_back_with_the_steps_that_have_them(store: Store) -> None:
    plain = step("a")
    steps = [plain, replace(plain, actor="ann"), replace(plain, app_version="2.1"), plain]
    await store.journal.append(SHARD, steps)
    assert [(row["actor"], row["app_version"]) for row in await rows(store)] == [
        (None, None), ("ann", None), (None, "2.1"), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_page_by_page_gives_the_same_rows(store: Store, limit: int) -> None:
    for number in range(7):
        await store.journal.append(SHARD, [step(f"{number}a", f"{number}b")])
    assert await rows(store, limit=limit) == await rows(store)
    assert len(await store.journal.read(SHARD, limit=3)) == 1


async def test_at_never_decreases(store: Store) -> None:
    await store.journal.append(SHARD, [step("a", at_ms=5_000), step("b", at_ms=4_000)])
    await store.journal.append(SHARD, [step("c", at_ms=3_000), step("d", at_ms=6_000)])
    assert [row["at"] for row in await rows(store)] == [5_000, 5_000, 5_000, 6_000]


async def test_many_writers_at_once_lose_nothing_and_keep_their_own_order(harness: StoreHarness, store: Store) -> None:
    stores = [harness.open() for _ in range(4)]
    try:

        async def write(name: int) -> None:
            for number in range(25):
                await stores[name].journal.append(SHARD, [step(f"{name}-{number:02d}")])

        writing = asyncio.gather(*(write(name) for name in range(4)))
        seen: list[dict[str, Any]] = []
        while len(seen) < 100:
            after = Position(seen[-1]["epoch"], seen[-1]["seq"]) if seen else None
            try:
                seen += await rows(store, after)
            except JournalLost:  # nothing was written yet
                await asyncio.sleep(0)
        await writing
        assert [row["seq"] for row in seen] == list(range(1, 101))
        for name in range(4):
            assert [one for one in ids(seen) if one.startswith(f"{name}-")] == [f"{name}-{n:02d}" for n in range(25)]
    finally:
        for one in stores:
            await one.close()


@pytest.mark.parametrize("backend", ["postgres"])  # SQLite has one writer at a time
async def test_a_slow_writers_row_is_late_but_never_skipped(harness: StoreHarness, store: Store) -> None:
    await store.journal.append(SHARD, [step("first")])
    slow = await asyncpg.connect(harness.url)
    try:
        writing = slow.transaction()
        await writing.start()
        stored = packed(step("slow"))
        await slow.execute(sql("journal/append"), SHARD, *([value] for value in stored))
        await store.journal.append(SHARD, [step("quick")])
        assert ids(await rows(store)) == ["first"], "a reader must not pass a row that may still come"
        end = Position((await rows(store))[-1]["epoch"], 1)
        await writing.commit()
        assert ids(await rows(store, end)) == ["slow", "quick"]
        assert [row["seq"] for row in await rows(store)] == [1, 2, 3]
    finally:
        await slow.close()


@pytest.mark.parametrize("backend", ["postgres"])  # SQLite has one writer at a time
async def test_a_writer_that_rolls_back_leaves_no_gap(harness: StoreHarness, store: Store) -> None:
    await store.journal.append(SHARD, [step("first")])
    slow = await asyncpg.connect(harness.url)
    try:
        writing = slow.transaction()
        await writing.start()
        await slow.execute(sql("journal/append"), SHARD, *([value] for value in packed(step("never"))))
        await store.journal.append(SHARD, [step("last")])
        await writing.rollback()
        assert [(row["message_id"], row["seq"]) for row in await rows(store)] == [("first", 1), ("last", 2)]
    finally:
        await slow.close()


async def test_what_is_not_there_is_a_loss_not_silence(store: Store) -> None:
    with pytest.raises(JournalLost):
        await store.journal.read("nobody#0")
    await store.journal.append(SHARD, [step("a")])
    epoch = (await store.journal.shards())[SHARD].epoch
    for position in (Position("another", 1), Position(epoch, 2)):
        with pytest.raises(JournalLost):
            await store.journal.read(SHARD, position)
    assert await store.journal.read(SHARD, Position(epoch, 1)) == []


async def test_a_reader_holds_trimming_back_up_to_the_size_limit(store: Store) -> None:
    await store.journal.append(SHARD, [step("a", "b", at_ms=1_000)])
    await store.journal.append(SHARD, [step("c", at_ms=2_000)])
    await store.journal.append(SHARD, [step("d", at_ms=3_000)])
    epoch = (await store.journal.shards())[SHARD].epoch
    await store.journal.commit("reader", SHARD, Position(epoch, 2))
    assert await store.journal.committed("reader") == {SHARD: Position(epoch, 2)}
    assert await store.journal.trim(SHARD, before_ms=2_500, max_bytes=EVER) == 2
    assert ids(await rows(store)) == ["c", "d"]
    with pytest.raises(JournalLost):
        await store.journal.read(SHARD, Position(epoch, 1))
    size = (await store.journal.shards())[SHARD].bytes
    assert await store.journal.trim(SHARD, before_ms=0, max_bytes=size - 1) == 1
    kept = (await store.journal.shards())[SHARD]
    assert (kept.first_seq, kept.last_seq, kept.dropped) == (4, 4, 1)
    await store.journal.forget("reader")
    assert await store.journal.trim(SHARD, before_ms=EVER, max_bytes=EVER) == 1
    await store.journal.append(SHARD, [step("e")])
    assert [row["seq"] for row in await rows(store)] == [5], "numbers go on after a full trim"


async def test_committing_to_another_journal_is_refused(store: Store) -> None:
    await store.journal.append(SHARD, [step("a")])
    with pytest.raises(JournalLost):
        await store.journal.commit("reader", SHARD, Position("another", 1))
