"""Nothing grows for ever: after messages are done, memory, keys and entries are what they were."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from godwit.brokers.contract import Ack
from godwit.core.messages.envelope import Envelope
from godwit.core.names import new_message_id
from tests.conformance.harness import LONG, G, Q
from tests.faults.publisher import BODY
from tests.faults.remote_harness import RemoteHarness, remote
from tests.servers.redis import fresh
from tests.waiting import eventually

ROUND = 5_000
ROUNDS = 4
WINDOW = timedelta(seconds=1)


def footprint(client: redis.Redis) -> dict[str, int]:
    """Return how much of everything a server holds."""
    counts = {
        "stream": client.xlen,
        "zset": client.zcard,
        "hash": client.hlen,
        "list": client.llen,
        "set": client.scard,
    }
    found: dict[str, int] = {"keys": 0, "entries": 0}
    for key in client.scan_iter(count=1_000):
        kind = str(client.type(key), "ascii")  # type: ignore[arg-type] # bytes, as nothing is decoded here
        found["keys"] += 1
        found["entries"] += int(counts[kind](key)) if kind in counts else 0
    return found


def used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


async def publish(harness: RemoteHarness, count: int) -> None:
    now = harness.now_ms
    for _ in range(0, count, 1_000):
        await harness.broker.publish([Envelope(new_message_id(), Q, BODY, len(BODY), now) for _ in range(1_000)])


async def drain(harness: RemoteHarness) -> int:
    done = 0
    while found := await harness.broker.pull(Q, G, worker="one", limit=200, lease=LONG):
        assert await harness.broker.settle([Ack(one.ack_id) for one in found]) == []
        done += len(found)
    return done


async def test_memory_keys_and_entries_return_to_where_they_were() -> None:
    server = fresh()
    with server.client() as client:
        async with remote(server.url) as harness:
            await harness.declare(dedup_window=WINDOW, journal_keep=timedelta(milliseconds=1))
            seen: list[tuple[dict[str, int], int]] = []
            for _ in range(ROUNDS):
                await publish(harness, ROUND)
                assert await drain(harness) == ROUND

                async def settled_down() -> bool:
                    await harness.broker.maintain()
                    await harness.broker.journal.trim()
                    return footprint(client)["entries"] < 200

                await eventually(settled_down, within=timedelta(seconds=15), what="a tidy server")
                seen.append((footprint(client), used(client)))
            first, memory = seen[0]
            assert all(found["keys"] <= first["keys"] + 1 for found, _ in seen), seen
            # What it writes to its file beside this, and what it had to say to us, takes memory for a moment.
            await eventually(lambda: used(client) <= memory * 1.05 + 100_000, what=f"the memory of before: {seen}")


@pytest.mark.parametrize("ttl", [None, timedelta(days=7)], ids=["", "with a ttl"])
async def test_a_ready_message_costs_at_most_450_bytes_and_its_life_1100_of_the_append_only_file(
    ttl: timedelta | None,
) -> None:
    server = fresh()
    with server.client() as client:
        async with remote(server.url) as harness:
            await harness.declare(ttl=ttl)
            await publish(harness, 1_000)
            assert await drain(harness) == 1_000
            memory, journal, written = used(client), journal_bytes(client), aof(client)
            await publish(harness, 4 * ROUND)
            # The journal stays when the message is gone: it is not part of what waiting costs.
            kept = (journal_bytes(client) - journal) / (4 * ROUND)
            ready = (used(client) - memory) / (4 * ROUND) - kept
            assert await drain(harness) == 4 * ROUND
            life = (aof(client) - written) / (4 * ROUND)
    print(f"{ready:.0f} bytes ready, {kept:.0f} of journal, {life:.0f} of the append-only file")
    assert ready <= 450, f"{ready:.0f} bytes a ready message, its entry in the journal not counted"
    assert kept <= 100, f"{kept:.0f} bytes of journal a message"
    assert life <= 1_100, f"{life:.0f} bytes of the file a message"


def journal_bytes(client: Any) -> int:
    return int(client.memory_usage(f"godwit:{{{Q}}}:journal", samples=0))


def aof(client: Any) -> int:
    return int(client.info("persistence")["aof_current_size"])
