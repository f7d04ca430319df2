from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from godwit import GroupSpec, QueueSpec, connect
from godwit.core.names import GroupName, QueueName
from tests.cli.terminal import Terminal


def declare(terminal: Terminal, name: str, groups: Sequence[GroupSpec] = (), **settings: Any) -> None:
    async def run() -> None:
        async with connect(terminal.url) as broker:
            await broker.declare(QueueSpec(name=QueueName(name), **settings), groups)

    asyncio.run(run())


def pulled(terminal: Terminal, queue: str = "orders") -> list[Any]:
    return terminal.json("pull", queue, "--limit", "1000", "--ack")


def test_the_id_of_a_published_message_is_printed(terminal: Terminal) -> None:
    result = terminal.type("publish", "orders", '{"id": 7}', "--declare")
    (message,) = pulled(terminal)
    assert result.stdout == f"{message['id']}\n"
    assert message["payload"] == {"id": 7}
    assert "1 message to 'orders'" in result.stderr


def test_every_option_reaches_the_message(terminal: Terminal) -> None:
    declare(terminal, "orders", [GroupSpec(name=GroupName("billing")), GroupSpec(name=GroupName("search"))])
    terminal.type(
        "publish", "orders", '"x"', "--type", "order.created", "--priority", "95", "--key", "customer 7",
        "--attribute", "region=eu", "--attribute", "note=a=b", "--expires", "2h", "--id", "order-7",
        "--group", "billing",
    )  # fmt: skip
    (message,) = terminal.json("pull", "orders", "--group", "billing")
    assert message["id"] == "order-7"
    assert (message["type"], message["priority"], message["ordering_key"]) == ("order.created", 95, "customer 7")
    assert message["attributes"] == {"region": "eu", "note": "a=b"}
    left = datetime.fromisoformat(message["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=115) < left <= timedelta(minutes=120)
    assert terminal.json("pull", "orders", "--group", "search", code=1) == []


@pytest.mark.parametrize("when", [("--delay", "1h"), ("--at", "2999-01-31T09:00:00+01:00")])
def test_a_message_for_later_waits(terminal: Terminal, when: tuple[str, str]) -> None:
    terminal.type("publish", "orders", "1", "--declare", *when)
    (queues,) = terminal.json("queues")
    assert queues[0]["groups"][0]["delayed"] == 1


def test_the_same_id_is_accepted_once(terminal: Terminal) -> None:
    assert terminal.json("publish", "orders", "1", "--id", "a", "--declare") == [{"id": "a", "fresh": True}]
    assert terminal.json("publish", "orders", "1", "--id", "a") == [{"id": "a", "fresh": False}]


def test_lines_of_a_file_are_published_in_order(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(950)) + "\n\n", encoding="utf-8")
    receipts = terminal.json("publish", "orders", "--file", str(file), "--declare")
    messages = pulled(terminal)
    assert [message["payload"]["n"] for message in messages] == list(range(950))
    assert [receipt["id"] for receipt in receipts] == [message["id"] for message in messages]


@pytest.mark.parametrize("words", [(), ("--file", "-")])
def test_lines_of_a_pipe_are_published(terminal: Terminal, words: tuple[str, ...]) -> None:
    result = terminal.type("publish", "orders", "--declare", *words, input='{"n": 1}\n"two"\nnull')
    assert [message["payload"] for message in pulled(terminal)] == [{"n": 1}, "two", None]
    assert len(result.stdout.splitlines()) == 3


def test_with_an_id_publishing_a_file_again_changes_nothing(terminal: Terminal) -> None:
    for fresh in (True, False):
        receipts = terminal.json("publish", "orders", "--declare", "--id", "monday", input="1\n\n3\n")
        assert receipts == [{"id": "monday-1", "fresh": fresh}, {"id": "monday-3", "fresh": fresh}]


@pytest.mark.parametrize("line", ["{", "nan", '{"a": 1} {"b": 2}', "\udcff", "[" * 100 + "]" * 100])
def test_one_bad_line_refuses_the_whole_file_and_is_named(terminal: Terminal, tmp_path: Path, line: str) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_bytes(b"1\n" * 500 + line.encode("utf-8", "surrogateescape") + b"\n2\n")
    error = terminal.error("publish", "orders", "--file", str(file), "--declare", code=2)
    assert "line 501" in error["fact"]
    assert error["remedy"]
    assert not Path(terminal.folder, "godwit.db").exists()


def test_a_file_that_does_not_fit_says_how_far_it_got(terminal: Terminal) -> None:
    declare(terminal, "orders", max_size=500)
    result = terminal.type("publish", "orders", "--json", input="1\n" * 700, code=6)
    error = json.loads(result.stderr)
    accepted = len(result.stdout.splitlines())
    assert accepted == len(pulled(terminal)) > 0
    assert f"{accepted:,} messages were accepted" in error["fact"]
    assert f"line {accepted + 1}" in error["remedy"]


def test_a_full_queue_asks_to_come_back(terminal: Terminal) -> None:
    declare(terminal, "orders", max_size=1)
    terminal.type("publish", "orders", "1")
    assert terminal.error("publish", "orders", "2", code=5)["error"] == "QueueFull"


def test_an_unknown_queue_is_refused_with_those_there_are(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare")
    result = terminal.type("publish", "order", "1", code=4)
    assert result.stdout == ""
    assert result.stderr == (
        "Queue 'order' is not declared (declared: 'orders'). Check the name, or create the queue with --declare.\n"
    )


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("{",), "JSON"),
        (("hello",), "JSON"),
        (("1", "--priority", "101"), "101"),
        (("1", "--priority", "high"), "high"),
        (("1", "--delay", "-5s"), "-5s"),
        (("1", "--delay", "soon"), "soon"),
        (("1", "--delay", "99999999999d"), "99999999999d"),
        (("1", "--at", "2030-01-31T09:00:00"), "time zone"),
        (("1", "--at", "tomorrow"), "tomorrow"),
        (("1", "--expires", "2030-01-31T09:00:00"), "time zone"),
        (("1", "--delay", "1s", "--at", "2030-01-31T09:00:00Z"), "--at"),
        (("1", "--attribute", "region"), "KEY=VALUE"),
        (("1", "--attribute", "googx=1"), "reserved"),
        (("1", "--id", "two words"), "two words"),
        (("1", "--type", ""), "type"),
        (("1", "--key", ""), "ordering_key"),
        (("1", "--group", "bad group"), "bad group"),
        (("1", "--file", "x"), "--file"),
        (("--file", "missing.ndjson"), "missing.ndjson"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(terminal: Terminal, words: tuple[str, ...], word: str) -> None:
    error = terminal.error("publish", "orders", "--declare", *words, code=2)
    assert word in error["fact"] + error["remedy"]
    assert not Path(terminal.folder, "godwit.db").exists()


def test_a_queue_name_that_cannot_be_one_is_refused(terminal: Terminal) -> None:
    assert terminal.error("publish", "two words", "1", "--declare", code=2)["error"] == "InvalidName"


def test_the_payload_is_in_no_error(terminal: Terminal) -> None:
    result = terminal.type("publish", "orders", '{"password": "hunter2"', "--declare", code=2)
    assert "hunter2" not in result.output
