from __future__ import annotations

import json

import pytest

from godwit.cli.words import size
from tests.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def two_queues(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "--declare", input="1\n2\n3\n")
    terminal.type(
        "publish", "a-queue-with-quite-a-long-name-that-needs-more-than-half-a-line", "1", "--declare", "--delay", "1h"
    )


def test_every_queue_and_group_is_a_line(terminal: Terminal) -> None:
    head, first, second = terminal.type("queues").stdout.splitlines()
    assert head.split() == ["queue", "group", "ready", "blocked", "delayed", "leased", "dead", "bytes", "full", "state"]
    assert first.split()[:7] == [
        "a-queue-with-quite-a-long-name-that-needs-more-than-half-a-line",
        "default",
        "0",
        "0",
        "1",
        "0",
        "0",
    ]
    assert second.split()[:3] == ["orders", "default", "3"]
    assert head.index("ready") + len("ready") == second.index(" 3 ") + 2


def test_one_document_holds_everything(terminal: Terminal) -> None:
    (queues,) = terminal.json("queues", "orders")
    (queue,) = queues
    assert (queue["name"], queue["published"], queue["duplicates"]) == ("orders", 3, 0)
    (group,) = queue["groups"]
    assert set(group) == {
        "name", "ready", "blocked", "delayed", "leased", "dead", "bytes", "leased_bytes", "dropped", "full", "depth",
        "state",
    }  # fmt: skip
    assert (group["ready"], group["depth"], group["full"]) == (3, 3, False)


def test_watching_shows_them_again(terminal: Terminal) -> None:
    looks = terminal.type("queues", "orders", "--watch", "--every", "1ms", "--times", "3")
    assert looks.stdout.count("in/s") == 3
    lines = terminal.type("queues", "--watch", "--every", "1ms", "--times", "2", "--json").stdout.splitlines()
    assert [len(json.loads(line)) for line in lines] == [2, 2]


def test_an_unknown_queue_is_named_with_those_there_are(terminal: Terminal) -> None:
    error = terminal.error("queues", "order", code=4)
    assert "'orders'" in error["fact"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (3 << 30, "3.0 GB"), (5 << 50, "5120.0 TB")]
)
def test_sizes_are_short(number: int, text: str) -> None:
    assert size(number) == text
