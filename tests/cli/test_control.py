from __future__ import annotations

import asyncio
import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from godwit.brokers.urls import connect
from godwit.core.journal.chunks import decode_chunk
from tests.cli.terminal import Terminal
from tests.project.specification import ROOT

NOTIFICATIONS = str(ROOT / "examples" / "notifications.toml")


@pytest.fixture(autouse=True)
def three_orders(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "--declare", "--id", "order", input="1\n2\n3\n")


def state(terminal: Terminal) -> str:
    (queues,) = terminal.json("queues", "orders")
    return str(queues[0]["groups"][0]["state"])


def test_a_pause_is_shown_and_lifted(terminal: Terminal) -> None:
    assert terminal.json("pause", "orders", "--reason", "the bank is down") == [
        {"queue": "orders", "group": None, "changed": True, "paused": True, "draining": False}
    ]
    assert state(terminal) == "paused"
    again = terminal.type("pause", "orders")
    assert "'orders' is paused since " in again.stderr
    assert "(the bank is down)" in again.stderr
    assert terminal.type("queues", "orders").stdout.splitlines()[1].split()[-1] == "paused"
    assert "'orders' is resumed." in terminal.type("resume", "orders").stderr
    assert state(terminal) == "active"
    assert "was not held back" in terminal.type("resume", "orders").stderr


def test_a_group_is_paused_by_itself(terminal: Terminal) -> None:
    terminal.type("pause", "orders", "--group", "default")
    assert state(terminal) == "paused"
    assert "godwit resume orders --group default" in terminal.type("resume", "orders").stderr
    assert terminal.json("resume", "orders", "--group", "default")[0]["changed"] is True
    assert state(terminal) == "active"


def test_a_drained_queue_refuses_messages_and_says_what_is_left(terminal: Terminal) -> None:
    assert "3 messages left." in terminal.type("drain", "orders").stderr
    assert state(terminal) == "draining"
    assert terminal.error("publish", "orders", "4", code=5)["error"] == "QueueDraining"
    assert terminal.json("drain", "orders", "--wait", "10ms", code=5)[0]["left"] == 3
    terminal.type("pull", "orders", "--limit", "3", "--ack")
    assert terminal.json("drain", "orders", "--wait", "10s") == [
        {"queue": "orders", "group": None, "changed": False, "paused": False, "draining": True, "left": 0}
    ]
    terminal.type("resume", "orders")
    terminal.type("publish", "orders", "4")


def test_purging_asks_first(terminal: Terminal) -> None:
    assert "--yes" in terminal.error("purge", "orders", code=2)["remedy"]
    assert terminal.json("purge", "orders", "--group", "default", "--yes") == [
        {"queue": "orders", "group": "default", "purged": 3}
    ]
    assert "0 messages of 'orders' deleted." in terminal.type("purge", "orders", "--yes").stderr


def test_a_waiting_message_is_discarded_once(terminal: Terminal) -> None:
    assert terminal.json("message", "discard", "orders", "order-2") == [
        {"queue": "orders", "id": "order-2", "discarded": True}
    ]
    assert terminal.error("message", "discard", "orders", "order-2", code=4)["error"] == "MessageNotWaiting"
    assert [message["id"] for message in terminal.json("pull", "orders", "--limit", "9")] == ["order-1", "order-3"]


@pytest.mark.parametrize("command", ["pause", "resume", "drain", "purge"])
def test_a_mistyped_queue_or_group_is_not_found(terminal: Terminal, command: str) -> None:
    words = ("--yes",) if command == "purge" else ()
    assert terminal.error(command, "ordres", *words, code=4)["error"] == "QueueNotFound"
    if command != "drain":
        assert terminal.error(command, "orders", "--group", "nobody", *words, code=4)["error"] == "GroupNotFound"
    assert terminal.error(command, code=2)["remedy"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("message", "discard", "nothing", "x"), 4),
        (("message", "discard", "orders"), 2),
        (("message", "discard", "orders", "two words"), 2),
        (("drain", "orders", "--wait", "soon"), 2),
    ],
)
def test_bad_input_has_an_exit_code_and_a_remedy(terminal: Terminal, words: tuple[str, ...], code: int) -> None:
    assert terminal.error(*words, code=code)["remedy"]
    assert state(terminal) == "active"


# Routing


def routed(terminal: Terminal, message: dict[str, Any], *words: str, code: int = 0) -> dict[str, Any]:
    (document,) = terminal.json("route", json.dumps(message), "--config", NOTIFICATIONS, *words, code=code)
    found: dict[str, Any] = document
    return found


def test_a_route_is_explained_step_by_step(terminal: Terminal) -> None:
    document = routed(terminal, {"type": "urgent", "priority": 90})
    (chosen,) = [step for step in document["steps"] if step["chosen"]]
    assert (document["queue"], document["declared"]) == (chosen["queue"], True)
    assert chosen["looked_at"].startswith("rule of ")
    assert [step["looked_at"] for step in document["steps"]][:2] == ["routing.target_queue", "queue"]
    assert document["steps"][-1]["looked_at"] == "default_queue"


def test_a_route_is_shown_as_a_table_with_the_choice_marked(terminal: Terminal) -> None:
    message = '{"type": "urgent", "priority": 90}'
    result = terminal.type("route", "-", "--config", NOTIFICATIONS, input=message)
    (marked,) = [line for line in result.stdout.splitlines() if line.startswith("->")]
    assert "the condition holds" in marked
    assert "It goes to " in result.stderr


def test_an_explicit_queue_wins_and_may_be_unknown(terminal: Terminal) -> None:
    document = routed(terminal, {"type": "urgent", "queue": "elsewhere"})
    assert (document["queue"], document["declared"]) == ("elsewhere", False)
    result = terminal.type("route", '{"queue": "elsewhere"}', "--config", NOTIFICATIONS)
    assert "does not declare" in result.stderr


def test_a_message_without_a_route_is_not_found(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text("")
    (document,) = terminal.json("route", "{}", "--config", str(file), code=4)
    assert document["queue"] is None
    assert "No queue" in terminal.type("route", "{}", "--config", str(file), code=4).stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("{",),
        ("[1]",),
        ('{"prioritty": 1}',),
        ('{"priority": "high"}',),
        ("{}", "--config", "/no/such/file.toml"),
    ],
)
def test_a_route_that_cannot_be_asked_for_is_bad_input(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal.error("route", *words, code=2)["remedy"]


def actors(url: str) -> list[tuple[str, str | None]]:
    """Return the events that an actor asked for, with its name."""

    async def read() -> list[tuple[str, str | None]]:
        async with connect(url) as broker:
            chunks = [decode_chunk(chunk) for chunk in await broker.journal.read("orders#0")]
        return [(chunk.event, chunk.actor) for chunk in chunks if chunk.actor is not None]

    return asyncio.run(read())


def test_the_journal_names_the_user_or_who_the_option_says(terminal: Terminal) -> None:
    terminal.type("pause", "orders")
    terminal.type("resume", "orders", "--actor", "ada")
    terminal.type("drain", "orders", "--actor", "ada")
    terminal.type("message", "discard", "orders", "order-1", "--actor", "ada")
    terminal.type("purge", "orders", "--yes", "--actor", "ada")
    assert actors(terminal.url) == [
        ("paused", getpass.getuser()), ("resumed", "ada"), ("draining", "ada"), ("cancelled", "ada"), ("purged", "ada"),
    ]  # fmt: skip


def test_an_actor_that_no_journal_can_keep_is_refused(terminal: Terminal) -> None:
    assert "actor" in str(terminal.error("purge", "orders", "--yes", "--actor", "a\nb", code=2))
    assert actors(terminal.url) == []
