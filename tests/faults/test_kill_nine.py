"""kill -9 of any process at any moment: nothing confirmed is lost, and repeated is only what the dead had in hand."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from random import Random

from tests.conformance.harness import LONG, Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import publish_and_die
from tests.faults.random_kills import ORDERED, RandomKills
from tests.faults.reconciliation import consistent, drained, ids, overlaps, url_of
from tests.faults.record import lines_of, read, read_all
from tests.faults.worker import work
from tests.waiting import eventually

MANY = 20_000
KILLS = 40
LONE_PUBLISHERS = 1_000
AT_ONCE = 6


async def test_kills_at_random_over_20_000_messages_lose_nothing(
    tmp_path: Path, children: ChildProcesses, file: Harness
) -> None:
    await file.declare(ORDERED)
    chaos = RandomKills(children=children, place=tmp_path, random=Random(7), count=MANY)
    chaos.begin()
    await chaos.run(KILLS)
    found = await chaos.end(file)
    assert chaos.kills >= KILLS // 2
    assert found.accepted == MANY
    assert found.held > 0, "the killed workers held nothing: the test showed nothing"
    found.verify()


async def test_an_id_returned_to_a_publisher_that_dies_at_once_is_delivered(
    tmp_path: Path, children: ChildProcesses, file: Harness
) -> None:
    await file.declare()
    nursery = children.start(
        publish_and_die, url_of(tmp_path), tmp_path / "accepted", times=LONE_PUBLISHERS, at_once=AT_ONCE
    )
    await children.finished(nursery, within=timedelta(seconds=100))
    accepted = {line[1] for line in read(tmp_path / "accepted")}
    assert len(accepted) == LONE_PUBLISHERS
    delivered: list[str] = []
    while found := await file.ids(lease=LONG):
        delivered += found
    assert sorted(delivered) == sorted(accepted)


async def test_the_directory_after_a_kill_of_everybody_opens_and_is_consistent(
    tmp_path: Path, children: ChildProcesses
) -> None:
    place = tmp_path / "live"
    place.mkdir()
    harness = Harness("sqlite", place, live=True)
    await harness.start()
    await harness.declare(ORDERED)
    await harness.stop()
    chaos = RandomKills(children=children, place=place, random=Random(3), count=100_000)
    chaos.begin()
    for copy in range(5):
        goal = chaos.written() + 50_000
        await eventually(lambda goal=goal: chaos.written() >= goal)
        for member in children.members:
            member.kill()
        children.kill_all()
        shutil.copytree(place, tmp_path / f"copy{copy}", ignore=_sockets)
        rows = await consistent(tmp_path / f"copy{copy}")
        accepted = {line[1] for line in lines_of(read_all(place, "publisher"), "accepted")}
        acked = {line[1] for line in lines_of(read_all(place, "worker"), "settled")}
        assert accepted <= set(ids(rows, "enqueued"))
        assert acked <= set(ids(rows, "acked"))
        chaos.begin()


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


async def test_ten_competing_processes_never_hold_the_same_message_at_once(
    tmp_path: Path, children: ChildProcesses, file: Harness
) -> None:
    await file.declare()
    stop = tmp_path / "stop"
    for number in range(10):
        children.start(
            work,
            url_of(tmp_path),
            tmp_path / f"w{number}.worker",
            name=f"w{number}",
            stop=stop,
            lease=LONG,
            limit=7,
            acks=0.7,
            longest=timedelta(milliseconds=4),
        )
    for first in range(0, 3_000, 100):
        await file.publish(*(f"m{number}" for number in range(first, first + 100)))

    async def empty() -> bool:
        return drained(await file.stats())

    await eventually(empty, within=timedelta(seconds=60), what="an empty queue")
    stop.touch()
    await children.finished(*children.members)
    by_worker = read_all(tmp_path, "worker")
    lines = list(lines_of(by_worker, "settled"))
    assert overlaps((line[1], line[3], line[4]) for line in lines) == []
    assert list(lines_of(by_worker, "refused")) == []
    assert len({line[1] for line in lines}) == 3_000
    assert len(lines) > 3_500, "messages came back to others"
    assert sum(len(found) > 0 for found in by_worker.values()) == 10
    await file.stop()
    rows = await consistent(tmp_path)
    assert len(ids(rows, "acked")) == 3_000


async def test_an_overlap_would_be_seen() -> None:
    assert overlaps([("a", 1, 5), ("b", 2, 3), ("a", 5, 9), ("a", 8, 10)]) == [("a", 8, 10)]
    assert overlaps([("a", 1, 9), ("a", 2, 3), ("a", 4, 5)]) == [("a", 2, 3), ("a", 4, 5)]
