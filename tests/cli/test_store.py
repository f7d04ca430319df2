"""`godwit db` and `godwit message ID`."""

from __future__ import annotations

from tests.cli.terminal import Terminal
from tests.servers.postgres import fresh_database


def test_a_postgres_schema_is_upgraded_on_request_and_its_state_told(terminal: Terminal) -> None:
    with fresh_database(migrated=False) as url:
        store = ("--store", url)
        (before,) = terminal.json("db", "status", *store, code=8)
        assert before["applied"] == []
        assert "0003-messages" in before["pending"]
        (done,) = terminal.json("db", "upgrade", *store)
        assert done["applied"] == before["pending"]
        (after,) = terminal.json("db", "status", *store)
        assert (after["pending"], after["unknown"]) == ([], [])
        assert "up to date" in terminal.type("db", "upgrade", *store).stderr


def test_a_database_that_is_down_is_a_sentence_and_an_exit_code(terminal: Terminal) -> None:
    error = terminal.error("db", "status", "--store", "postgresql://somebody:secret@127.0.0.1:9/none", code=3)
    assert error["error"] == "StoreUnavailable"
    assert "secret" not in error["fact"]


def test_a_message_is_found_by_its_id_alone(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare", "--id", "order")
    (waiting,) = terminal.json("message", "order")
    assert (waiting["status"], waiting["attempts"], waiting["next_retry"]) == ("pending", 0, None)
    terminal.type("pull", "orders", "--ack")
    shown = terminal.type("message", "order")
    assert "completed" in shown.stdout
    (done,) = terminal.json("message", "show", "order")
    assert (done["status"], done["attempts"]) == ("completed", 1)
    assert done["last_attempt"] is not None


def test_a_message_that_nobody_knows_is_not_found(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare")
    assert terminal.error("message", "nobody", code=4)["error"] == "MessageUnknown"


def test_without_a_store_the_status_of_a_message_is_refused(terminal: Terminal) -> None:
    assert terminal.error("message", "m1", code=3, url="memory://")["error"] == "StoreRequired"
