from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def two_orders(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "--declare", "--id", "order", input="1\n2\n")


def test_a_backup_is_a_broker_with_the_same_messages(terminal: Terminal) -> None:
    target = terminal.folder / "copy.db"
    (answer,) = terminal.json("backup", str(target))
    assert answer == {
        "source": str(terminal.folder / "godwit.db"),
        "target": str(target),
        "bytes": target.stat().st_size,
    }
    terminal.type("pull", "orders", "--limit", "2", "--ack")
    saved = terminal.type("pull", "orders", "--limit", "2", url=f"sqlite:///{target}")
    assert [line for line in saved.stdout.splitlines() if line.startswith("order-")] == [
        "order-1  message",
        "order-2  message",
    ]


def test_a_file_that_exists_is_replaced_only_by_force(terminal: Terminal) -> None:
    target = terminal.folder / "copy.db"
    target.write_bytes(b"precious")
    assert "--force" in terminal.error("backup", str(target), code=2)["remedy"]
    assert target.read_bytes() == b"precious"
    assert "saved in" in terminal.type("backup", str(target), "--force").stderr


def test_only_a_sqlite_file_has_a_backup(terminal: Terminal) -> None:
    terminal.error("backup", "copy.db", code=2, url="memory://")


def test_a_target_that_cannot_be_written_is_an_error(terminal: Terminal) -> None:
    terminal.error("backup", str(terminal.folder / "nowhere" / "copy.db"), code=3)


def test_the_source_is_not_overwritten_by_itself(terminal: Terminal) -> None:
    terminal.error("backup", str(terminal.folder / "godwit.db"), "--force", code=2)
    assert len(terminal.json("pull", "orders", "--limit", "5")) == 2
