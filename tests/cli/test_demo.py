from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from godwit.brokers.contract import GroupStats
from godwit.cli.demo.journal_tally import JournalTally
from godwit.cli.demo.reconciliation import Reconciliation, reconcile
from godwit.cli.demo.records import Accepted, Handled, Record, read
from godwit.cli.demo.workload import GROUPS, QueueGroup, doomed, messages
from godwit.core.names import GroupName, QueueName
from tests.cli.terminal import Terminal

ORDERS = QueueGroup(QueueName("orders"), GroupName("billing"))
EVENTS = QueueGroup(QueueName("events"), GroupName("stock"))


def demo(terminal: Terminal, *words: str) -> tuple[int, dict[str, object]]:
    ran = subprocess.run(
        [sys.executable, "-m", "godwit", "demo", "--messages", "1000", "--workers", "3", "--json", *words],
        capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "TMPDIR": str(terminal.folder)},
    )  # fmt: skip
    assert ran.stderr == ""
    document: dict[str, object] = json.loads(ran.stdout)
    return ran.returncode, document


@pytest.mark.xdist_group("demo")
def test_the_demo_reconciles_although_a_worker_is_killed(terminal: Terminal) -> None:
    code, document = demo(terminal)
    assert (document["problems"], code) == ([], 0)
    lines = document["lines"]
    assert isinstance(lines, list)
    assert {(line["queue"], line["group"]) for line in lines} == set(GROUPS)
    for line in lines:
        assert line["published"] == line["done"] + line["dead"] + line["open"] > 0
        assert (line["open"], line["lost"], line["out_of_order"]) == (0, 0, 0)
    assert sum(line["dead"] for line in lines) > 0
    held = document["held_by_killed_worker"]
    elsewhere = document["leases_run_out_elsewhere"]
    assert isinstance(held, int)
    assert isinstance(elsewhere, int)
    assert held > 0
    assert sum(line["twice"] for line in lines) <= held + elsewhere
    assert document["folder"] is None
    assert list(terminal.folder.iterdir()) == []


@pytest.mark.xdist_group("demo")
def test_the_demo_notices_a_message_that_was_acked_without_being_handled(terminal: Terminal) -> None:
    place = terminal.folder / "demo"
    code, document = demo(terminal, "--sabotage", "--path", str(place))
    problems = document["problems"]
    assert isinstance(problems, list)
    assert code == 7
    assert any("lost: accepted, and neither done, dead nor open" in problem for problem in problems)
    assert any("acked in the journal but in no worker's record" in problem for problem in problems)
    assert document["folder"] == str(place)
    queues = terminal.type("queues", "--url", f"sqlite:///{place / 'godwit.db'}")
    assert "billing" in queues.stdout


@pytest.mark.xdist_group("demo")
def test_control_c_stops_every_process_of_the_demo(terminal: Terminal) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "godwit", "demo"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(terminal.folder)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while "started" not in (line := process.stdout.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        _, remarks = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "Traceback" not in remarks
    folders = [entry.name for entry in terminal.folder.iterdir()]
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert folders == []
    assert not any(str(terminal.folder).encode() in command for command in commands)


@pytest.mark.parametrize("words", [("--messages", "-1"), ("--messages", "many"), ("--workers", "1"), ("--path", ".")])
def test_a_demo_that_cannot_be_played_is_refused(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal.error("demo", *words, code=2)["remedy"]


def test_the_same_seed_makes_the_same_messages_and_some_of_them_must_fail() -> None:
    first, second = (list(messages(500, publisher=1, seed=3)) for _ in range(2))
    assert [message.payload for message in first] == [message.payload for message in second]
    assert 0 < sum(map(doomed, first)) < 50


# The verdict: each disagreement alone, on a small book that balances without it.


def accepted(*ids: str, place: QueueGroup = ORDERS, doomed: bool = False) -> list[Accepted]:
    return [Accepted(id=name, queue=place.queue, doomed=doomed) for name in ids]


def handled(*ids: str, place: QueueGroup = ORDERS, key: str | None = None, turns: Iterable[int] = ()) -> list[Handled]:
    order = list(turns) or [0] * len(ids)
    return [
        Handled(id=name, queue=place.queue, group=place.group, worker="w", at_ns=at, key=key, turn=order[at])
        for at, name in enumerate(ids)
    ]


def verdict(
    entries: list[Accepted | Handled],
    *,
    arrived: str = "",
    acked: str = "",
    ran_out: str = "",
    letters: str = "",
    held: str = "",
    depth: int = 0,
    place: QueueGroup = ORDERS,
) -> Reconciliation:
    tally = JournalTally()
    tally.arrived[place] |= set(arrived)
    tally.acked[place] |= set(acked)
    tally.ran_out[place] |= set(ran_out)
    empty = {
        name: GroupStats(
            name=name.group, ready=depth if name == place else 0, blocked=0, delayed=0, leased=0, dead=0, bytes=0,
            leased_bytes=0, dropped=0, full=False,
        )
        for name in GROUPS
    }  # fmt: skip
    dead = {name: set(letters) if name == place else set[str]() for name in GROUPS}
    return reconcile(entries, tally, empty, dead, held={place: set(held)})


def test_a_book_that_balances_has_no_problem() -> None:
    judged = verdict([*accepted("a", "b"), *handled("a", "b")], arrived="ab", acked="ab")
    assert judged.problems == ()
    assert (judged.total("published"), judged.total("done"), judged.total("lost")) == (2, 2, 0)


@pytest.mark.parametrize(
    ("judged", "word"),
    [
        (verdict([*accepted("a", "b"), *handled("a")], arrived="ab", acked="a"), "lost"),
        (verdict([*accepted("a"), *handled("a")], arrived="", acked="a"), "not in the journal"),
        (verdict([*accepted("a"), *handled("a")], arrived="ab", acked="a"), "in no publisher's record"),
        (verdict([*accepted("a", "b"), *handled("a")], arrived="ab", acked="ab"), "in no worker's record"),
        (verdict([*accepted("a"), *handled("a")], arrived="a", acked=""), "neither acked nor open"),
        (verdict([*accepted("a"), *handled("a", "a")], arrived="a", acked="a"), "handled twice"),
        (verdict([*accepted("a", doomed=True), *handled("a")], arrived="a", acked="a"), "cannot work"),
        (verdict([*accepted("a"), *handled("a")], arrived="a", acked="a", letters="a"), "among the dead letters"),
        (verdict([*accepted("a"), *handled("a")], arrived="a", acked="a", depth=1), "stats say 1 open"),
        (
            verdict(
                [*accepted("a", "b", place=EVENTS), *handled("a", "b", place=EVENTS, key="k", turns=(2, 1))],
                arrived="ab", acked="ab", place=EVENTS,
            ),
            "out of order",
        ),
    ],
)  # fmt: skip
def test_each_disagreement_is_a_problem(judged: Reconciliation, word: str) -> None:
    assert not judged.reconciled
    assert any(word in problem for problem in judged.problems), judged.problems


@pytest.mark.parametrize("reason", ["held", "ran_out"])
def test_a_message_whose_lease_ran_out_may_be_handled_twice(reason: str) -> None:
    twice: list[Accepted | Handled] = [*accepted("a"), *handled("a", "a")]
    judged = (
        verdict(twice, arrived="a", acked="a", held="a")
        if reason == "held"
        else verdict(twice, arrived="a", acked="a", ran_out="a")
    )
    assert judged.problems == ()
    assert judged.total("twice") == 1


def test_a_line_cut_off_by_a_kill_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.ndjson"
    record = Record(str(path))
    record.add(handled("a", "b"))
    record.close()
    path.write_bytes(path.read_bytes()[:-5])
    assert [entry.id for entry in read([path])] == ["a"]
