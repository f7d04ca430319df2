"""Keys and scripts: one slot per queue and partition, scripts that say what they take."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import pytest
from redis.crc import key_slot

from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.layout import keys
from godwit.core.errors import InvalidName
from godwit.core.queues import QueueSpec

LUA: Final = files("godwit.brokers.redis") / "lua"
SCRIPTS: Final = sorted(path.name.removesuffix(".lua") for path in LUA.iterdir() if not path.name.startswith("_"))


def all_keys(queue: str, partition: int = 0) -> list[str]:
    names = ("meta", "journal", "readers", "dedup0", "dedup1", "later")
    return [
        *(keys.part(queue, name, partition) for name in names),
        *keys.block(queue, "billing", partition),
        *keys.block(queue, "mail:lane", partition),
    ]


@pytest.mark.parametrize("queue", ["orders", "a:b", "x@y/z+1", "q" * 255])
def test_all_keys_of_a_queue_are_in_the_slot_of_its_inbox(queue: str) -> None:
    assert {key_slot(key.encode()) for key in all_keys(queue)} == {key_slot(keys.inbox(queue).encode())}


def test_partitions_have_slots_and_keys_of_their_own() -> None:
    slots = [{key_slot(key.encode()) for key in all_keys("orders", partition)} for partition in range(4)]
    assert [len(one) for one in slots] == [1] * 4
    assert len(set.union(*slots)) == 4


def test_no_two_queues_groups_or_partitions_share_a_key() -> None:
    places = [("a", 0), ("a", 1), ("a:1", 0), ("a:l0", 0), ("l0:a", 0)]
    found = [key for queue, partition in places for key in all_keys(queue, partition)]
    found += [key for group in ("g", "l0:g", "group:g") for key in keys.block("a", group)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ["{orders}", "a{b}", "a}b", "a#1"])
def test_names_that_would_change_the_hash_tag_are_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        QueueSpec(name=name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_takes_and_gives(name: str) -> None:
    lines = (LUA / f"{name}.lua").read_text().splitlines()
    top = "\n".join(line for line in lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))])
    assert "-- KEYS" in top
    assert "-- ARGV" in top
    assert "--@include" not in script(name).source


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_make_no_key_names_of_their_own(name: str) -> None:
    assert "godwit:" not in script(name).source
