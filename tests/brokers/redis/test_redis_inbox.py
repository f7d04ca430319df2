"""The inbox: what other programs add with plain XADD, typed into redis-cli as the specification shows it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from datetime import timedelta

import pytest

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.inbox import read_entries
from godwit.core.errors import BrokerUnavailable, QueueFull
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.chunks import decode_chunk
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, MessageMetadata
from godwit.core.queues import GroupSpec, QueueSpec
from tests.servers.redis import RedisServer, fresh
from tests.waiting import eventually, soon

STREAM, GROUP = "telemetry-stream", "collectors"
LEASE = timedelta(seconds=15)


def redis_cli(server: RedisServer, *words: str) -> str:
    command = ["redis-cli", "-p", str(server.port), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout.strip()


async def collected(broker: RedisBroker, group: str = GROUP, limit: int = 10) -> list[Delivery]:
    return await broker.pull(STREAM, group, worker="collector-1", limit=limit, lease=LEASE)


async def test_the_four_commands_of_the_specification_make_messages_for_every_group() -> None:
    server = fresh()
    redis_cli(server, "XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM")
    entry = redis_cli(server, "XADD", STREAM, "*", "data", '{"temperature": 21.5}')
    assert entry in redis_cli(server, "XREADGROUP", "GROUP", GROUP, "consumer-1", "STREAMS", STREAM, ">")
    assert redis_cli(server, "XACK", STREAM, GROUP, entry) == "1"
    redis_cli(server, "XADD", STREAM, "*", "payload", '{"temperature": 22}')
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP), GroupSpec(name="archive")])
        for group in (GROUP, "archive"):
            found = await collected(broker, group)
            assert [delivery.open().payload for delivery in found] == [{"temperature": 21.5}, {"temperature": 22}]
            assert found[0].message_id == f"{STREAM}:{entry}"
            assert {(delivery.envelope.type, delivery.envelope.priority) for delivery in found} == {("message", 50)}
            assert await broker.settle([Ack(delivery.ack_id) for delivery in found]) == []
        assert redis_cli(server, "XLEN", STREAM) == "0"
        chunks = [decode_chunk(chunk) for chunk in await broker.journal.read(f"{STREAM}#0")]
        assert [(str(chunk.event), chunk.group, len(chunk.rows)) for chunk in chunks if chunk.event == "enqueued"] == [
            ("enqueued", GROUP, 2),
            ("enqueued", "archive", 2),
        ]


async def test_fields_of_the_entry_become_fields_of_the_message() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        words = ("id", "mine", "type", "sensor.read", "priority", "90", "ordering_key", "s1", "payload", "[1]")
        redis_cli(server, "XADD", STREAM, "*", *words)
        redis_cli(server, "XADD", STREAM, "*", *words)
        (delivery,) = await collected(broker)
        envelope = delivery.envelope
        assert (envelope.id, envelope.type, envelope.priority, envelope.ordering_key) == (
            "mine",
            "sensor.read",
            90,
            "s1",
        )
        assert (await broker.stats())[0].duplicates == 1


async def test_the_fields_that_the_specification_adds_make_a_message_with_its_metadata() -> None:
    server = fresh()
    metadata = {
        "correlationId": "n-7", "userId": "u-1", "source": "orchestrator", "version": "1.0",
        "contentType": "application/json", "encoding": None, "headers": {"tenant": "acme"}, "tries": 3,
    }  # fmt: skip
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        words = ("type", "email", "priority", "90", "payload", '{"to": "a@b.c"}', "metadata", json.dumps(metadata))
        redis_cli(server, "XADD", STREAM, "*", *words)
        redis_cli(server, "XADD", STREAM, "*", "data", "1", "metadata", "null")
        redis_cli(server, "XADD", STREAM, "*", "data", "2", "metadata", '{"user_id": "u-2"}')
        first, second, third = sorted(await collected(broker), key=lambda one: -one.envelope.priority)
        assert (first.envelope.type, first.envelope.priority) == ("email", 90)
        assert first.open().payload == {"to": "a@b.c"}
        assert first.open().metadata == MessageMetadata(
            correlation_id="n-7", user_id="u-1", source="orchestrator", headers={"tenant": "acme", "tries": "3"}
        )
        assert second.open().metadata == MessageMetadata()
        assert third.open().metadata == MessageMetadata(user_id="u-2")
        assert await broker.dead_letters.page(STREAM) == []


async def test_a_pull_that_waits_gets_what_is_added_meanwhile() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        pull = asyncio.create_task(
            broker.pull(STREAM, GROUP, worker="w", limit=1, lease=LEASE, wait=timedelta(seconds=20))
        )
        await asyncio.to_thread(redis_cli, server, "XADD", STREAM, "*", "data", "7")
        (delivery,) = await soon(pull, 5)
        assert delivery.open().payload == 7


@pytest.mark.parametrize(
    "fields",
    [("data", "{not json"), ("data", "1", "payload", "2"), ("body", "1"), ("data", "1", "colour", "red"),
     ("data", "1", "metadata", "[1]"),
     ("data", "1", "metadata", '{"userId": 1}'), ("data", "1", "metadata", '{"headers": [1], "more": 1}'),
     ("data", "1", "metadata", "{not json"),
     ("data", "1", "priority", "high"), ("data", "1", "id", "with space"), ("data", b"\xff\x00".decode("latin-1"))],
)  # fmt: skip
async def test_an_entry_that_cannot_be_read_is_a_dead_letter_with_its_fields(fields: tuple[str, ...]) -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP), GroupSpec(name="archive")])
        with server.client() as client:
            client.execute_command("XADD", STREAM, "*", *(field.encode("latin-1") for field in fields))
            client.xadd(STREAM, {"data": "1"})
        (good,) = await collected(broker)
        assert good.open().payload == 1
        assert await collected(broker) == []
        letters = await broker.dead_letters.page(STREAM)
        assert {(letter.group, letter.kind, letter.attempt) for letter in letters} == {
            (GROUP, FailureKind.PERMANENT, 0),
            ("archive", FailureKind.PERMANENT, 0),
        }
        kept = json.loads(letters[0].envelope.body)["payload"]["fields"]
        assert set(kept) == set(fields[::2])
        events = [decode_chunk(chunk) for chunk in await broker.journal.read(f"{STREAM}#0")]
        assert sum(len(chunk.rows) for chunk in events if chunk.event == "dead_lettered") == 2
        stats = (await broker.stats())[0].groups
        assert [(group.depth, group.dead) for group in stats] == [(1, 1), (1, 1)]


async def test_entries_wait_in_the_inbox_while_the_queue_is_full() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM, max_size=2), [GroupSpec(name=GROUP)])
        for n in range(5):
            redis_cli(server, "XADD", STREAM, "*", "data", str(n))
        await broker.maintain()
        assert redis_cli(server, "XLEN", STREAM) == "3"
        with pytest.raises(QueueFull):
            await broker.publish([seal(Message(queue=STREAM))])
        got = list[object]()
        for _ in range(10):
            found = await collected(broker)
            await broker.settle([Ack(delivery.ack_id) for delivery in found])
            got += [delivery.open().payload for delivery in found]
        assert got == [0, 1, 2, 3, 4]


async def test_many_processes_move_each_entry_once() -> None:
    server = fresh()
    async with RedisBroker(server.url) as one, RedisBroker(server.url) as two:
        await one.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        with server.client() as client, client.pipeline(transaction=False) as pipe:
            for n in range(1_000):
                pipe.xadd(STREAM, {"data": str(n)})
            pipe.execute()
        await asyncio.gather(*(broker.maintain() for broker in (one, two) * 3))
        assert (await one.stats())[0].published == 1_000
        assert [delivery.open().payload for delivery in await collected(two, limit=2_000)] == list(range(1_000))


async def test_an_entry_that_another_process_moved_is_passed_over() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM, dedup_window=timedelta(0)), [GroupSpec(name=GROUP)])
        with server.client() as client:
            client.xadd(STREAM, {"data": "1"}, id="5-0")
            (entry,) = client.xrange(STREAM)
        found = [(entry[0], [word for pair in entry[1].items() for word in pair])]
        envelopes, dead = read_entries(STREAM, found)
        for _ in range(2):  # as if two processes had read the same entry
            await broker._publisher.accept(envelopes, mode="inbox", tickets=["5-0"], dead=dead)
        assert (await broker.stats())[0].published == 1


async def test_a_key_of_another_type_made_later_does_not_stop_pulls() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        redis_cli(server, "SET", STREAM, "mine")
        assert await collected(broker) == []
        assert redis_cli(server, "GET", STREAM) == "mine"


async def hostile_entries(server: RedisServer, *values: bytes) -> None:
    with server.client() as client:
        for value in values:
            client.xadd(STREAM, {"payload": value})


HOSTILE_PAYLOADS = {
    "100,000 brackets": b"[" * 100_000,
    "100,000 brackets that close": b"[" * 100_000 + b"]" * 100_000,
    "11 MB": b'"' + b"x" * 11_000_000 + b'"',
    "11 MB that are no JSON": b"x" * 11_000_000,
    "11 MB of NUL": b"\0" * 11_000_000,
    "a lone surrogate": b'"\\ud800"',
}


@pytest.mark.parametrize("case", HOSTILE_PAYLOADS)
async def test_an_entry_that_no_message_can_hold_becomes_a_dead_letter_and_good_ones_go_on(case: str) -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        await hostile_entries(server, b'"before"', HOSTILE_PAYLOADS[case], b'"after"')
        found = await collected(broker)
        assert [delivery.open().payload for delivery in found] == ["before", "after"]
        assert [delivery.crashes for delivery in found] == [0, 0]
        (letter,) = await broker.dead_letters.page(STREAM)
        assert len(letter.envelope.body) < 1_000_000
        assert await broker.maintain() == 0


async def test_an_entry_of_a_queue_whose_name_is_long_is_a_message() -> None:
    server, name = fresh(), "q" * 255
    async with RedisBroker(server.url) as broker:
        await broker.declare(QueueSpec(name=name), [GroupSpec(name=GROUP)])
        with server.client() as client:
            entry = client.xadd(name, {"payload": b"1"}).decode()
        (delivery,) = await broker.pull(name, GROUP, worker="w", limit=1, lease=LEASE)
        assert (delivery.open().payload, delivery.message_id.endswith(f":{entry}")) == (1, True)


async def test_a_pull_whose_inbox_cannot_be_moved_gives_what_it_leased_or_hands_it_back() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker, RedisBroker(server.url) as other:
        await broker.declare(QueueSpec(name=STREAM), [GroupSpec(name=GROUP)])
        await broker.publish([seal(Message(queue=STREAM, payload="leased"))])
        await hostile_entries(server, b'"in the inbox"')
        moving = asyncio.Event()

        async def move(*_: object, **__: object) -> int:
            moving.set()
            await asyncio.Event().wait()
            return 0

        broker._inbox.move = move  # type: ignore[method-assign]
        pulling = asyncio.create_task(collected(broker))
        await moving.wait()
        pulling.cancel()
        await asyncio.wait([pulling])

        async def returned() -> bool:
            found = await collected(other)
            return "leased" in [delivery.open().payload for delivery in found if delivery.crashes == 0]

        await eventually(returned)

        async def fail(*_: object, **__: object) -> int:
            raise BrokerUnavailable("redis", "odd", "wait")

        broker._inbox.move = fail  # type: ignore[method-assign]
        await broker.publish([seal(Message(queue=STREAM, payload="more"))])
        await hostile_entries(server, b'"in the inbox again"')
        assert "more" in [delivery.open().payload for delivery in await collected(broker)]


async def test_a_foreign_key_of_a_queues_name_does_not_stop_the_upkeep_of_the_others() -> None:
    server = fresh()
    async with RedisBroker(server.url) as broker:
        for name in ("a", "orders", "z"):
            await broker.declare(QueueSpec(name=name), [GroupSpec(name=GROUP)])
        with server.client() as client:
            client.set("orders", 1)
            for name in ("a", "z"):
                client.xadd(name, {"payload": b"1"})
        assert await broker.maintain() == 2
        assert {queue.name: queue.groups[0].depth for queue in await broker.stats()} == {"a": 1, "orders": 0, "z": 1}
        with server.client() as client:
            client.set("godwit:{orders}:leases:" + GROUP, 1)
            client.xadd("a", {"payload": b"2"})
        assert await broker.maintain() == 1
        assert {queue.name for queue in await broker.stats()} == {"a", "z"}
        assert {"a#0", "z#0"} <= set(await broker.journal.shards())
