"""`godwit doctor` as people and scripts see it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.cli.terminal import Terminal


def test_the_doctor_examines_the_configured_broker(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare")
    result = terminal.type("doctor", "--span", "10ms")
    assert result.stdout.splitlines()[0].split() == ["check", "found"]
    assert "journal of orders#0" in result.stdout
    assert "checks," in result.stderr


def test_scripts_read_the_findings_as_json(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare")
    (document,) = terminal.json("doctor", terminal.url, "--span", "10ms")
    assert document["url"] == terminal.url
    assert {finding["check"] for finding in document["findings"]} >= {"version", "health", "disk", "write-ahead log"}
    assert set(document["findings"][0]) == {"check", "severity", "found", "why", "remedy"}


def test_a_warning_decides_the_exit_code_only_when_asked(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare")
    with closing(sqlite3.connect(terminal.folder / "godwit.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    result = terminal.type("doctor", "--span", "10ms")
    assert "warning: journal mode" in result.stdout
    assert "goes back to WAL" in result.stdout
    # Looking at the journal has put the file back into WAL, as the remedy says.
    with closing(sqlite3.connect(terminal.folder / "godwit.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    terminal.type("doctor", "--span", "10ms", "--strict", code=8)


def test_what_cannot_be_examined_says_why_and_what_to_do(terminal: Terminal) -> None:
    assert terminal.error("doctor", code=3)["error"] == "BrokerUnavailable"
    assert terminal.error("doctor", "kafka://host", code=2)["error"] == "UnknownScheme"
    document = terminal.error("doctor", "redis://:hidden@127.0.0.1:1", code=3)
    assert "127.0.0.1:1" in document["fact"]
    assert "hidden" not in document["fact"]
    assert document["remedy"].startswith("Check that the server runs")
