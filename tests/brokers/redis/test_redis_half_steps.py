"""Scripts that fail half-way: at whichever command, a script has done everything or nothing.

Each script runs with an error in place of its n-th command, for every n, against the same stored state; what is stored
afterwards is what was stored before, or what the whole script stores. The script then runs again, without an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.resources import files
from typing import Any, Final

import hiredis
import msgspec
import pytest
import redis
from msgspec import structs

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Settlement
from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client.client import RedisClient
from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.publish.fast_command import fast_publish_command, packed_one
from godwit.brokers.redis.pull import PullOrder
from godwit.core.failures.failure import FailureKind, ProcessingError
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Routing
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, Overflow, QueueSpec
from tests.brokers.redis.prepared_queue import DEAD, KEYED, LEASE, SOON, G, PreparedQueue, Q, opened_queue
from tests.servers.redis import Program

DEFAULT: Final = GroupName("default")
INJECTED: Final = "ERR injected"
HARNESS: Final = """
local left, real = %d, redis
local redis = setmetatable({
  call = function(...)
    left = left - 1
    if left == 0 then error({err = '%s'}) end
    return real.call(...)
  end,
  pcall = function(...)
    left = left - 1
    if left == 0 then return {err = '%s'} end
    return real.pcall(...)
  end,
}, {__index = real})
"""
UNIMPORTANT: Final = frozenset({b"w", b"letters"})
"""Fields that may change: numbers of dead letters left out, and what is written to be refused above maxmemory."""
LUA: Final = files("godwit.brokers.redis") / "lua"
SHARED: Final = frozenset(name.encode() for name in keys.SHARED)
Saved = dict[bytes, bytes]
Stored = dict[bytes, Any]


Act = Callable[[PreparedQueue], Awaitable[object]]
Call = tuple[str, Sequence[Any]]
"""A script and what follows its text: the number of keys, keys, arguments."""


async def settle_all(prepared: PreparedQueue) -> None:
    error = ProcessingError(message="no", timestamp=prepared.now())
    one, two, three, four = (each.ack_id for each in prepared.held[2:6])
    first, second = (each.ack_id for each in prepared.keyed[1:3])
    verbs: list[Settlement] = [
        Nack(one, timedelta(0), error), Nack(two, SOON), GiveUp(three, FailureKind.PERMANENT), HandBack(four),
        Ack(first), GiveUp(second, FailureKind.PERMANENT), Ack(AckId("orders#0#g#01-1:gone")),
    ]  # fmt: skip
    await prepared.broker.settle(verbs)


async def ack_after_others(prepared: PreparedQueue) -> None:
    """Ack leases of which another process ended one."""
    async with RedisBroker(prepared.server.url, now=lambda: str(prepared.clock.now_ms())) as other:
        await other.settle([HandBack(prepared.held[3].ack_id)])
    await ack_all(prepared)


async def ack_all(prepared: PreparedQueue) -> None:
    await prepared.broker.settle([Ack(one.ack_id, run_ms=1) for one in prepared.held[2:6]])


async def after_all(prepared: PreparedQueue, act: Callable[[], Awaitable[object]]) -> None:
    """Act when everything is due: leases, delays and expiries."""
    prepared.clock.advance(LEASE + SOON)
    await act()


async def replay(prepared: PreparedQueue) -> None:
    letters = await prepared.broker.dead_letters.page(Q)
    assert len(letters) == 2
    await prepared.broker.dead_letters.replay([one.id for one in letters])


async def discard(prepared: PreparedQueue) -> None:
    await prepared.broker.dead_letters.discard([one.id for one in await prepared.broker.dead_letters.page(Q)])


async def change(prepared: PreparedQueue) -> None:
    groups = [GroupSpec(name=G, max_crashes=9), GroupSpec(name=GroupName("new"), overflow=Overflow.DROP)]
    await prepared.broker.declare(QueueSpec(name=Q, lanes=4, max_size=8), groups)


async def crowd(prepared: PreparedQueue) -> None:
    """Publish into a queue where one group drops what does not fit."""
    await prepared.broker.purge(Q, KEYED)
    await prepared.broker.purge(Q, G)
    groups = [
        GroupSpec(name=G, overflow=Overflow.DROP),
        GroupSpec(name=KEYED, message_ordering=True, overflow=Overflow.DROP),
    ]
    await prepared.broker.declare(QueueSpec(name=Q, lanes=4, max_size=6), groups)
    await publish(prepared)


async def publish(prepared: PreparedQueue) -> None:
    await prepared.broker.publish([
        prepared.message("p1", ordering_key="k0"), prepared.message("p2", ordering_key="k7"), prepared.later("p3"),
        prepared.message("p4"), prepared.expiring("p5", LEASE), prepared.message("p4"), prepared.message("b1"),
        prepared.message("p6", routing=Routing(consumer_group=G)),
    ])  # fmt: skip


async def inbox(prepared: PreparedQueue) -> None:
    with prepared.server.client() as client:
        client.xadd(Q, {"payload": '{"a": 1}'}, id="1-1")
        client.xadd(Q, {"payload": "spoiled"}, id="1-2")
    await prepared.broker.maintain()


async def commit(prepared: PreparedQueue) -> None:
    ends = (await prepared.broker.journal.shards())[f"{Q}#0"]
    await prepared.broker.journal.commit("reader", f"{Q}#0", Position(ends.epoch, ends.last_seq))


async def recount(prepared: PreparedQueue) -> None:
    """Find copies that wait nowhere, heads without a copy, places without one, and counters that are wrong."""
    with prepared.server.client() as client:
        part = dict(zip(keys.GROUP_PARTS, keys.block(Q, KEYED), strict=True))
        client.delete(part["delayed"])
        client.hset(part["heads"], "k5", 999)
        client.zadd(part["again"], {"998": 998})
        client.zadd(part["leases"], {"p997:gone": 5})
        client.hset(part["group"], "letters", 0)
    await prepared.broker.maintain()


async def trim(prepared: PreparedQueue) -> None:
    prepared.clock.advance(timedelta(days=30))
    await prepared.broker.journal.trim()


SCENES: Final[dict[str, tuple[str, Act]]] = {
    "publish": ("publish", publish),
    "publish with drops": ("publish", crowd),
    "publish from the inbox": ("publish", inbox),
    "publish dead letters": ("publish", lambda prepared: prepared.broker.maintain()),
    "pull": ("pull", lambda prepared: prepared.pull(G, 5)),
    "pull what is due": ("pull", lambda prepared: after_all(prepared, lambda: prepared.pull(G, 50))),
    "pull keys that are due": ("pull", lambda prepared: after_all(prepared, lambda: prepared.pull(KEYED, 50))),
    "settle": ("settle", settle_all),
    "ack": ("ack", ack_all),
    "ack what is gone": ("ack", ack_after_others),
    "extend": ("extend", lambda prepared: prepared.broker.extend([one.ack_id for one in prepared.held], SOON)),
    "cancel a head": ("cancel", lambda prepared: prepared.broker.cancel(Q, MessageId("a0"))),
    "cancel in lanes": ("cancel", lambda prepared: prepared.broker.cancel(Q, MessageId("b5"))),
    "cancel what is delayed": ("cancel", lambda prepared: prepared.broker.cancel(Q, MessageId("l1"))),
    "purge": ("purge", lambda prepared: prepared.broker.purge(Q)),
    "hold": ("note_hold", lambda prepared: prepared.broker.note_hold(Event.PAUSED, Q, G, hold=b"{}", actor="ann")),
    "remove": ("remove", lambda prepared: prepared.broker.remove(Q)),
    "remove a group": ("remove", lambda prepared: prepared.broker.remove(Q, KEYED)),
    "declare": ("declare", change),
    "declare a new queue": ("declare", lambda prepared: prepared.broker.declare(QueueSpec(name=QueueName("other")))),
    "replay": ("replay", replay),
    "discard": ("discard", discard),
    "maintain": ("maintain", lambda prepared: after_all(prepared, prepared.broker.maintain)),
    "recount": ("recount", recount),
    "commit": ("commit", commit),
    "forget": ("forget", lambda prepared: after_all(prepared, prepared.broker.maintain)),
    "trim": ("trim", trim),
    "shared put": ("shared", lambda prepared: prepared.broker.shared.put("c", b"2", expected=None, ttl=SOON)),
    "shared put for ever": ("shared", lambda prepared: prepared.broker.shared.put("a", b"2", expected=1)),
    "shared delete": ("shared", lambda prepared: prepared.broker.shared.delete("a")),
}


@contextmanager
def recorded(
    monkeypatch: pytest.MonkeyPatch, prepared: PreparedQueue, client: redis.Redis
) -> Iterator[list[tuple[Call, Saved]]]:
    """Record the calls of scripts and, of each, what was stored before."""
    calls: list[tuple[Call, Saved]] = []
    runner = prepared.broker._reach
    run, run_each = runner.run_script, RedisClient.run_each

    def note(name: str, named: Sequence[str], arguments: Sequence[Any], signed: bool) -> None:
        calls.append(((name, [len(named), *named, *arguments, *(["run"] if signed else [])]), saved(client)))

    async def noted(name: str, named: Any, arguments: Any, *, signed: bool = False, **more: Any) -> Any:
        note(name, named, arguments, signed)
        return await run(name, named, arguments, signed=signed, **more)

    async def noted_each(self: RedisClient, name: str, each: Any, *, signed: bool = False) -> Any:
        for named, arguments in each:
            note(name, named, arguments, signed)
        return await run_each(self, name, each, signed=signed)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_script", noted)
        patch.setattr(RedisClient, "run_each", noted_each)
        yield calls


def names(client: redis.Redis) -> list[bytes]:
    found: Any = client.keys()
    return list(found)


def saved(client: redis.Redis) -> Saved:
    """Return all keys as the server itself writes them down."""
    dumps: dict[bytes, Any] = {key: client.dump(key) for key in names(client)}
    return dumps


def restore(client: redis.Redis, before: Saved) -> None:
    client.flushall()
    with client.pipeline(transaction=False) as pipe:
        for key, value in before.items():
            pipe.restore(key, 0, value)
        pipe.execute()


def stored(client: redis.Redis) -> Stored:
    """Return what is stored, without what may change."""
    found: Stored = {}
    for key in names(client):
        kind: Any = client.type(key)
        if b":wake:" in key or key in SHARED:
            continue
        if kind == b"hash":
            found[key] = kept(client.hgetall(key))
        elif kind == b"zset":
            pairs: Any = client.zrange(key, 0, -1, withscores=True)
            found[key] = dict(pairs)
        elif kind == b"stream":
            entries: Any = client.xrange(key)
            found[key] = [fields for _, fields in entries] if b":letters:" in key else entries
    found[b"shared"] = shared_values(client)
    return {key: value for key, value in found.items() if value}


def kept(fields: Any) -> dict[bytes, bytes]:
    """Return the fields that may not change; the last byte of what a group holds says who was woken."""
    return {
        name: value[:-1] if name.startswith(b"g:") else value
        for name, value in fields.items()
        if name not in UNIMPORTANT
    }


def shared_values(client: redis.Redis) -> dict[bytes, tuple[int, str]]:
    """Return the end and the value of all shared values that readers and the upkeep find; numbers may be left out."""
    values, listed, ends = keys.SHARED
    fields: Any = client.hgetall(values)
    found: dict[bytes, tuple[int, str]] = {}
    for field, packed in fields.items():
        if field == b"version":
            continue
        _, until, value, _ = msgspec.msgpack.decode(packed, type=tuple[int, int, str, str])
        if client.zscore(listed, field[1:]) is not None and (not until or client.zscore(ends, field[1:]) == until):
            found[field] = until, value
    return found


def run(client: redis.Redis, call: Call, failing: int = 0) -> object:
    """Run a script, with an error in place of a command; return its answer, or the error."""
    name, words = call
    try:
        return client.eval(HARNESS % (failing, INJECTED, INJECTED) + script(name).source, *words)
    except redis.ResponseError as error:
        return error


def commands_of(client: redis.Redis, call: Call) -> int:
    """Run a script; return how many commands it has."""
    name, words = call
    body = f"local function body()\n{script(name).source}\nend\nbody()\nreturn -left"
    answer: Any = client.eval(HARNESS % (0, INJECTED, INJECTED) + body, *words)
    return int(answer)


def without_leases(client: redis.Redis, call: Call) -> Stored:
    """Return what is stored after the first of a script's two steps: a pull keeps what it did because it was due."""
    name, (many, *words) = call
    if name == "pull":
        words[many + 4] = "0"  # the limit
        run(client, (name, [many, *words]))
    return stored(client)


def check(client: redis.Redis, call: Call, before: Saved) -> int:
    """Let a script fail at each of its commands; return how often it said so."""
    restore(client, before)
    at_first = stored(client)
    between = without_leases(client, call)
    restore(client, before)
    many = commands_of(client, call)
    whole = stored(client)
    failures = 0
    for number in range(1, many + 1):
        restore(client, before)
        failed = run(client, call, number)
        now = stored(client)
        where = f"{call[0]}, command {number} of {many}, answer {failed!r}"
        assert now in (at_first, between, whole), f"half a step: {where}: {nearest(now, at_first, between, whole)}"
        if isinstance(failed, redis.ResponseError):
            assert "injected" in str(failed), where
            failures += 1
        if now != whole:
            again = run(client, call)
            assert not isinstance(again, redis.ResponseError), f"{where}: the next one fails: {again}"
            assert stored(client) == whole, f"{where}: the next one differs: {difference(whole, stored(client))}"
    return failures


def nearest(now: Stored, *whole: Stored) -> str:
    return min((difference(one, now) for one in whole), key=len)


def difference(one: Stored, other: Stored) -> str:
    """Return what differs, of hashes and sorted sets by field."""

    def fields(found: Stored) -> dict[tuple[bytes, bytes], Any]:
        return {
            (key, field): value
            for key, held in found.items()
            for field, value in (held if isinstance(held, dict) else {b"": held}).items()
        }

    before, now = fields(one), fields(other)
    return "; ".join(
        f"{place}: {before.get(place)} -> {now.get(place)}"
        for place in before.keys() | now.keys()
        if before.get(place) != now.get(place)
    )


PROGRAMS: Final[tuple[Program, ...]] = ("redis", "valkey")
ON_VALKEY: Final = ("publish", "pull", "maintain")
"""Scenes whose scripts take entries of streams back, which newer servers allow in another way."""


@pytest.mark.parametrize(
    ("program", "scene"), [*(("redis", scene) for scene in SCENES), *(("valkey", scene) for scene in ON_VALKEY)]
)
async def test_a_script_that_fails_at_any_command_has_done_all_or_nothing(
    program: Program, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, act = SCENES[scene]
    async with opened_queue(program) as prepared:
        with prepared.server.client() as client:
            with recorded(monkeypatch, prepared, client) as calls:
                await act(prepared)
            wanted = [(call, before) for call, before in calls if call[0] == name]
            assert sum(check(client, *each) for each in wanted[-2:]) > 2


def test_every_script_that_changes_something_is_here() -> None:
    scripts = {path.name.removesuffix(".lua") for path in LUA.iterdir()}
    changing = {name for name in scripts if not name.startswith("_")} - {"grown", "snapshot", "stats"}
    assert {name for name, _ in SCENES.values()} | {"arrive", "arrive_one", "pull_one"} == changing


def plain(prepared: PreparedQueue, *messages: Envelope) -> Call:
    known = prepared.broker._catalog.known(Q)
    assert known is not None
    made = fast_publish_command(known, messages)
    assert made is not None
    name, names, words = made
    return name, [len(names), *names, str(prepared.clock.now_ms()), Q, *words]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("expires", [False, True])
async def test_a_chunk_that_fails_at_any_command_is_stored_or_not(expires: bool, program: Program) -> None:
    async with opened_queue(program) as prepared:
        await prepared.broker.declare(QueueSpec(name=DEAD), [GroupSpec(name=GroupName("second"))])
        await prepared.broker.declare(QueueSpec(name=Q, lanes=4), [GroupSpec(name=G)])
        spans = [SOON * 3, SOON, SOON * 2] if expires else []
        messages = [prepared.expiring(f"x{n}", span) for n, span in enumerate(spans)]
        messages += [prepared.message("y1"), prepared.message("y2", priority=90)]
        with prepared.server.client() as client:
            before = saved(client)
            assert check(client, plain(prepared, *messages), before) > 5
            assert check(client, plain(prepared, prepared.message("z")), before) > 5


FAILING_DELETIONS: Final = """
local real = redis
local redis = setmetatable({
  call = function(command, key, ...)
    if command == 'XDEL' then error({err = 'ERR injected'}) end
    return real.call(command, key, ...)
  end,
}, {__index = real})
"""


async def test_a_deletion_that_cannot_be_carried_out_is_made_good_by_the_upkeep() -> None:
    async with opened_queue() as prepared:
        held = prepared.held[2]
        with prepared.server.client() as client:
            names = (*keys.step(Q), *keys.block(Q, G))
            ack = (1, held.ack_id.split("#", 3)[3], "ack", 0, "", "", "", 1, "")
            source = FAILING_DELETIONS + script("settle").source
            now = prepared.clock.now_ms()
            assert client.eval(source, len(names), *names, now, Q, 1, 1, G, *ack) == []
            assert client.hget(keys.block(Q, G)[0], "recount") == b"1"
        assert await prepared.broker.maintain() > 0
        (stats,) = [one for queue in await prepared.broker.stats() for one in queue.groups if one.name == G]
        copies = [one for one in (await prepared.broker.journal.snapshot(Q)).copies if one.group == G]
        assert stats.depth == sum(one.state != "dead" for one in copies)
        assert held.message_id in {one.message_id for one in await prepared.pull(G, 10)}, "what is stored is delivered"


async def come_and_gone(prepared: PreparedQueue) -> None:
    """Let a message come and go: the next one takes the short way."""
    await prepared.broker.publish([structs.replace(prepared.message("before"), queue=DEAD)])
    (delivery,) = await prepared.broker.pull(DEAD, DEFAULT, worker="w", limit=1, lease=LEASE)
    await prepared.broker.settle([Ack(delivery.ack_id, run_ms=1)])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("expires", [False, True])
async def test_one_message_that_fails_at_any_command_is_stored_or_not(expires: bool, program: Program) -> None:
    async with opened_queue(program) as prepared:
        await come_and_gone(prepared)
        known = await prepared.broker._catalog.ask(DEAD)
        envelope = prepared.expiring("x") if expires else prepared.message("x")
        envelope = structs.replace(envelope, queue=DEAD)
        words = read_command(packed_one(known, envelope, str(prepared.clock.now_ms())))
        with prepared.server.client() as client:
            assert check(client, ("arrive_one", words[2:]), saved(client)) > 4


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_pull_of_one_that_fails_at_any_command_leased_it_or_not(program: Program) -> None:
    async with opened_queue(program) as prepared:
        await come_and_gone(prepared)
        await prepared.broker.publish([structs.replace(prepared.message("x"), queue=DEAD)])
        order = PullOrder(DEAD, DEFAULT, "w", 10_000, 0)
        with prepared.server.client() as client:
            client.delete(keys.wake(DEAD, DEFAULT))
            _, command = prepared.broker._taker.waiting(order, "run")
            client.hset(keys.block(DEAD, DEFAULT)[0], "run", "run")
            assert check(client, ("pull_one", command[2:]), saved(client)) > 5


def read_command(packed: bytes) -> list[bytes]:
    """Return the words of a command as it is sent."""
    reader = hiredis.Reader()
    reader.feed(packed)
    words: list[bytes] = reader.gets()
    return words
