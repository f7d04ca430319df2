from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from godwit.brokers.urls import connect
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal_all
from godwit.core.names import GroupName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.admin.builders import Q, bury, bury_ids, error, messages
from tests.cli.terminal import Terminal

FIRST = "orders#0#default#000000000001"


@pytest.fixture(autouse=True)
def three_letters(terminal: Terminal) -> None:
    async def make() -> None:
        async with connect(terminal.url) as broker:
            await broker.declare(QueueSpec(name=Q))
            await bury_ids(broker, "a", "b", text="ValueError: no user 7")
            await bury_ids(broker, "c", type="invoice", kind=FailureKind.TRANSIENT, text="refused")

    asyncio.run(make())


def group(terminal: Terminal) -> dict[str, Any]:
    (queues,) = terminal.json("queues", "orders")
    found: dict[str, Any] = queues[0]["groups"][0]
    return found


def names(documents: list[Any]) -> list[str]:
    return [document["id"] for document in documents]


def test_dead_letters_are_listed_as_a_table(terminal: Terminal) -> None:
    head, *rows = terminal.type("dlq", "list", "orders").stdout.splitlines()
    assert head.split() == ["dead", "letter", "message", "type", "kind", "dead", "for", "tries", "pattern", "error"]
    assert rows[0].split()[:4] == [FIRST, "a", "order", "permanent"]
    assert [row.index("ValueError") for row in rows[:2]] == [head.index("error")] * 2
    assert "\x1b" not in head


def test_a_list_is_a_document_a_line(terminal: Terminal) -> None:
    first, *_ = documents = terminal.json("dlq", "list")
    assert names(documents) == ["a", "b", "c"]
    assert set(first) == {
        "letter", "id", "queue", "group", "type", "kind", "dead_at", "attempt", "failures", "crashes", "size",
        "fingerprint", "error_type", "error",
    }  # fmt: skip
    assert (first["letter"], first["kind"], first["error"]) == (FIRST, "permanent", "ValueError: no user 7")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--kind", "transient"), ["c"]),
        (("--type", "order"), ["a", "b"]),
        (("--message-id", "b"), ["b"]),
        (("--older-than", "1h"), []),
        (("--newer-than", "1h"), ["a", "b", "c"]),
        (("--died-before", "2020-01-01T00:00:00Z"), []),
        (("--group", "default", "--limit", "1"), ["a"]),
        (("--group", "other"), []),
        (("--after", FIRST), ["b", "c"]),
    ],
)
def test_filters_are_options(terminal: Terminal, words: tuple[str, ...], found: list[str]) -> None:
    assert names(terminal.json("dlq", "list", "orders", *words, code=0 if found else 1)) == found


def test_a_pattern_selects_its_letters(terminal: Terminal) -> None:
    ((common, rare),) = terminal.json("dlq", "patterns")
    assert (common["count"], common["kinds"], common["places"]) == (2, {"permanent": 2}, {"orders/default": 2})
    assert (rare["count"], rare["message"], rare["sample_message_id"]) == (1, "refused", "c")
    assert names(terminal.json("dlq", "list", "--fingerprint", common["fingerprint"])) == ["a", "b"]
    table = terminal.type("dlq", "patterns", "orders").stdout
    assert common["fingerprint"] in table
    assert "permanent 2" in table


def test_a_longer_list_says_how_to_go_on(terminal: Terminal) -> None:
    result = terminal.type("dlq", "list", "orders", "--limit", "2")
    assert "--after 'orders#0#default#000000000002'" in result.stderr
    assert "There are more" not in terminal.type("dlq", "list", "orders", "--limit", "3").stderr


def test_nothing_found_has_its_own_exit_code(terminal: Terminal) -> None:
    for words in (("list", "orders"), ("show", "orders"), ("patterns", "orders"), ("replay", "orders")):
        terminal.type("dlq", *words, "--type", "nothing", code=1)
    assert terminal.json("dlq", "patterns", "--type", "nothing", code=1) == [[]]
    assert terminal.json("dlq", "discard", "orders", "--type", "nothing", "--yes", code=1) == [
        {"deleted": 0, "missing": 0, "read": 3}
    ]


def test_everything_about_one_letter_is_shown(terminal: Terminal) -> None:
    text = terminal.type("dlq", "show", FIRST).stdout
    assert text.startswith("a  order\n")
    assert "    at\n    ValueError: no user 7\n" in text  # the traceback
    assert '"priority": 40' in text
    (document,) = terminal.json("dlq", "show", FIRST)
    assert document["message"]["payload"] == {"id": "a"}
    assert [one["traceback"] for one in document["errors"]] == ["at\nValueError: no user 7"]
    assert document["raw"] is None
    assert names(terminal.json("dlq", "show", "orders", "--message-id", "c")) == ["c"]


def test_what_is_no_message_is_shown_raw_and_cannot_play_tricks(terminal: Terminal) -> None:
    async def make() -> None:
        (sealed,) = seal_all(messages("raw"))
        body = b"\x1b[2J\xff"
        async with connect(terminal.url) as broker:
            await bury(broker, [msgspec.structs.replace(sealed, body=body, size=4)], error=error("\x1b[31mred"))

    asyncio.run(make())
    for words in (("show", "orders", "--message-id", "raw"), ("list", "orders"), ("patterns",)):
        assert "\x1b" not in terminal.type("dlq", *words).output
    (document,) = terminal.json("dlq", "show", "orders", "--message-id", "raw")
    assert (document["message"], base64.b64decode(document["raw"])) == (None, b"\x1b[2J\xff")


def test_one_letter_is_replayed_once(terminal: Terminal) -> None:
    assert terminal.json("dlq", "replay", FIRST) == [{"replayed": 1, "missing": 0, "read": 1}]
    assert (group(terminal)["ready"], group(terminal)["dead"]) == (1, 2)
    assert terminal.error("dlq", "replay", FIRST, code=4)["error"] == "LetterNotFound"


def test_those_that_match_are_replayed(terminal: Terminal) -> None:
    assert (
        "2 dead letters would be replayed."
        in terminal.type("dlq", "replay", "orders", "--type", "order", "--dry-run").stderr
    )
    assert group(terminal)["dead"] == 3
    assert "2 dead letters replayed." in terminal.type("dlq", "replay", "orders", "--type", "order").stderr
    assert (group(terminal)["ready"], group(terminal)["dead"]) == (2, 1)


def test_a_patch_changes_what_is_replayed(terminal: Terminal) -> None:
    terminal.type("dlq", "replay", FIRST, "--patch", '{"payload": {"fixed": true}, "priority": 90}')
    terminal.type("dlq", "replay", "orders", "--type", "invoice", "--patch", '{"payload": null}')
    first, second = terminal.json("pull", "orders", "--limit", "10", "--ack")
    assert (first["payload"], first["priority"]) == ({"id": "a", "fixed": True}, 90)
    assert second["payload"] is None
    assert group(terminal)["dead"] == 1


def test_deleting_many_asks_first(terminal: Terminal) -> None:
    assert "--yes" in terminal.error("dlq", "discard", "orders", code=2)["remedy"]
    assert group(terminal)["dead"] == 3
    assert terminal.json("dlq", "discard", "orders", "--dry-run") == [{"matching": 3}]
    terminal.type("dlq", "discard", FIRST)
    assert terminal.json("dlq", "discard", "orders", "--yes") == [{"deleted": 2, "missing": 0, "read": 2}]
    assert group(terminal)["dead"] == 0


def test_a_queue_that_stays_full_is_a_reason_to_come_back(terminal: Terminal) -> None:
    async def make() -> None:
        async with connect(terminal.url) as broker:
            await broker.declare(QueueSpec(name=Q, max_size=2), [GroupSpec(name=GroupName("default"))])

    asyncio.run(make())
    result = terminal.type("dlq", "replay", "orders", "--patience", "10ms", code=5)
    assert "2 dead letters replayed." in result.stderr
    assert "To continue, repeat the command" in result.stderr
    assert "is full" in result.stderr


def test_control_c_keeps_what_was_replayed_and_says_how_to_continue(terminal: Terminal) -> None:
    words = [sys.executable, "-m", "godwit", "dlq", "replay", "orders", "--rate", "0.5", "--url", terminal.url]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        while group(terminal)["dead"] == 3:
            pass
        process.send_signal(signal.SIGINT)
        _, remarks = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "1 dead letter replayed." in remarks
    assert "--died-before" in remarks
    assert (group(terminal)["ready"], group(terminal)["dead"]) == (1, 2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list", "nothing"), 4),
        (("list", "no queue"), 2),
        (("list", "orders", "--kind", "sad"), 2),
        (("list", "orders", "--limit", "0"), 2),
        (("list", "orders", "--older-than", "soon"), 2),
        (("list", "orders", "--died-before", "2030-01-01"), 2),
        (("list", "--after", FIRST), 2),
        (("list", "orders", "--message-id", "two words"), 2),
        (("show",), 2),
        (("show", "orders#0#default#000000000099"), 4),
        (("show", "#"), 4),
        (("replay",), 2),
        (("replay", "nothing"), 4),
        (("replay", "orders", "--rate", "0"), 2),
        (("replay", "orders", "--rate", "fast"), 2),
        (("replay", "orders", "--patch", "{"), 2),
        (("replay", "orders", "--patch", "[1]"), 2),
        (("replay", "orders", "--patch", '{"id": "x"}'), 2),
        (("replay", "orders", "--patch", '{"priority": 101}'), 2),
        (("discard", "nothing", "--yes"), 4),
        (("discard", "orders#0#default#000000000099"), 4),
        (("nonsense",), 2),
    ],
)
def test_bad_input_has_an_exit_code_and_a_remedy(terminal: Terminal, words: tuple[str, ...], code: int) -> None:
    document = terminal.error("dlq", *words, code=code)
    assert document["fact"]
    assert document["remedy"]
    assert group(terminal)["dead"] == 3


def test_without_a_command_the_help_is_shown(terminal: Terminal) -> None:
    assert terminal.type("dlq").stdout == terminal.type("dlq", "--help").stdout
    assert "patterns" in terminal.type("dlq").stdout
