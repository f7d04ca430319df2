"""The shared port: small values with versions and an end."""

from __future__ import annotations

import asyncio

from tests.conformance.harness import LEASE, MOMENT, Harness


async def test_a_value_that_was_never_written_is_missing(harness: Harness) -> None:
    assert await harness.broker.shared.get("x") is None


async def test_a_value_is_written_when_it_is_missing_and_read_by_every_client(harness: Harness) -> None:
    version = await harness.broker.shared.put("x", b"\x00one", expected=None)
    entry = await (await harness.another()).shared.get("x")
    assert entry is not None
    assert (entry.value, entry.version) == (b"\x00one", version)


async def test_a_write_with_another_version_changes_nothing(harness: Harness) -> None:
    shared = harness.broker.shared
    first = await shared.put("x", b"one", expected=None)
    assert first is not None
    assert await shared.put("x", b"two", expected=None) is None
    assert await shared.put("x", b"two", expected=first + 1) is None
    second = await shared.put("x", b"two", expected=first)
    assert second not in (None, first)
    assert await shared.put("x", b"three", expected=first) is None
    entry = await shared.get("x")
    assert entry is not None
    assert entry.value == b"two"


async def test_a_write_to_a_missing_value_with_a_version_changes_nothing(harness: Harness) -> None:
    assert await harness.broker.shared.put("x", b"one", expected=1) is None
    assert await harness.broker.shared.get("x") is None


async def test_of_many_writers_at_once_one_wins(harness: Harness) -> None:
    shared = [harness.broker.shared, (await harness.another()).shared]
    won = await asyncio.gather(*(shared[n % 2].put("x", str(n).encode(), expected=None) for n in range(10)))
    assert sum(version is not None for version in won) == 1


async def test_a_value_past_its_ttl_is_missing(harness: Harness) -> None:
    shared = harness.broker.shared
    await shared.put("x", b"one", expected=None, ttl=LEASE)
    await harness.let_pass(LEASE / 2)
    assert await shared.get("x") is not None
    await harness.outage(LEASE / 2 + MOMENT)
    assert await shared.get("x") is None
    assert await shared.scan("") == {}
    assert await shared.put("x", b"two", expected=None) is not None


async def test_a_write_without_ttl_stays(harness: Harness) -> None:
    shared = harness.broker.shared
    version = await shared.put("x", b"one", expected=None, ttl=LEASE)
    await shared.put("x", b"two", expected=version)
    await harness.let_pass(LEASE * 2)
    assert await shared.get("x") is not None


async def test_a_deleted_value_is_missing_and_its_old_version_is_worth_nothing(harness: Harness) -> None:
    shared = harness.broker.shared
    version = await shared.put("x", b"one", expected=None)
    await shared.delete("x")
    await shared.delete("x")
    assert await shared.get("x") is None
    assert await shared.put("x", b"two", expected=version) is None


async def test_a_value_written_anew_does_not_take_up_an_old_version(harness: Harness) -> None:
    shared = harness.broker.shared
    old = await shared.put("x", b"one", expected=None)
    await shared.delete("x")
    await shared.put("x", b"two", expected=None)
    assert await shared.put("x", b"three", expected=old) is None


async def test_scanning_gives_all_values_whose_key_begins_so(harness: Harness) -> None:
    shared = harness.broker.shared
    for key in ("pause:orders", "pause:mail", "pausf", "breaker:orders", "pause%", "PAUSE:x"):
        await shared.put(key, key.encode(), expected=None)
    found = await shared.scan("pause:")
    assert {key: entry.value for key, entry in found.items()} == {
        "pause:orders": b"pause:orders",
        "pause:mail": b"pause:mail",
    }
    assert set(await shared.scan("pause%")) == {"pause%"}
    assert len(await shared.scan("")) == 6


async def test_scanning_gives_pages_in_the_order_of_keys(harness: Harness) -> None:
    shared = harness.broker.shared
    keys = ["a/1", "a/10", "a/2", "a/\u00e9", "a/\U0001f426", "b/1"]
    for key in reversed(keys):
        await shared.put(key, b"", expected=None)
    assert list(await shared.scan("a/", limit=2)) == ["a/1", "a/10"]
    assert list(await shared.scan("a/", after="a/10", limit=2)) == ["a/2", "a/\u00e9"]
    assert list(await shared.scan("a/", after="a/2")) == ["a/\u00e9", "a/\U0001f426"]
    assert list(await shared.scan("a/", after="a/\U0001f426", limit=2)) == []
    assert list(await shared.scan("a/", after="A")) == keys[:5]
    assert list(await shared.scan("a/", after="b")) == []
    assert list(await shared.scan("", limit=1)) == ["a/1"]


async def test_a_page_is_full_whatever_has_passed_its_ttl(harness: Harness) -> None:
    shared = harness.broker.shared
    for number in range(6):
        await shared.put(f"a/{number}", b"", expected=None, ttl=LEASE if number < 4 else None)
    await harness.let_pass(LEASE + MOMENT)
    assert list(await shared.scan("a/", limit=2)) == ["a/4", "a/5"]


async def test_clearing_removes_the_values_between_two_keys(harness: Harness) -> None:
    shared = harness.broker.shared
    versions = {key: await shared.put(key, b"", expected=None) for key in ("a/1", "a/2", "a/2/x", "a/3", "b")}
    await shared.clear("a/", "a/3")
    assert list(await shared.scan("")) == ["a/3", "b"]
    assert await shared.get("a/2/x") is None
    assert await shared.put("a/2", b"", expected=versions["a/2"]) is None
    await shared.clear("a/3", "a/3")
    await shared.clear("c", "d")
    assert list(await shared.scan("")) == ["a/3", "b"]


async def test_values_survive_a_restart(harness: Harness) -> None:
    version = await harness.broker.shared.put("x", b"one", expected=None)
    await harness.restart()
    entry = await harness.broker.shared.get("x")
    assert entry is not None
    assert (entry.value, entry.version) == (b"one", version)
