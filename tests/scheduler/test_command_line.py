"""`godwit schedule` and `godwit scheduler`, typed as a person would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.core.clock import utc_now
from tests.cli.terminal import Terminal
from tests.waiting import eventually


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal(tmp_path)
    terminal.type("publish", "mail", "1", "--declare")
    return terminal


def test_a_schedule_is_added_listed_shown_and_changed(terminal: Terminal) -> None:
    added = terminal.type(
        "schedule",
        "add",
        "mail",
        '{"to": 1}',
        "--cron",
        "0 7 * * MON-FRI",
        "--timezone",
        "Europe/Berlin",
        "--id",
        "daily",
    )
    assert added.stdout == "daily\n"
    head, line = terminal.type("schedule", "list").stdout.splitlines()
    assert head.split() == ["id", "queue", "when", "zone", "next", "status", "fired"]
    assert line.startswith("daily  mail   0 7 * * MON-FRI  Europe/Berlin")
    assert "p50" not in terminal.type("schedule", "show", "daily").stdout
    (shown,) = terminal.json("schedule", "show", "daily")
    assert (shown["cron"], shown["status"], shown["message"]["payload"]) == ("0 7 * * MON-FRI", "active", {"to": 1})
    assert len(shown["next"]) == 5
    terminal.type("schedule", "pause", "daily")
    assert terminal.json("schedule", "list", "--status", "paused")[0]["id"] == "daily"
    terminal.type("schedule", "resume", "daily")
    terminal.type("schedule", "cancel", "daily")
    assert terminal.type("schedule", "cancel", "daily", code=1).stderr == "daily was over already.\n"
    assert "fires no more" in terminal.type("schedule", "resume", "daily", code=2).stderr
    assert "There is no schedule 'other'" in terminal.type("schedule", "cancel", "other", code=4).stderr


def test_a_message_due_tomorrow_waits_in_the_store_until_it_is_cancelled(terminal: Terminal) -> None:
    assert terminal.type("schedule", "list", code=1).stderr == "Nothing is scheduled.\n"
    known = terminal.type("schedule", "add", "mail", "--at", "1d").stdout.strip()
    (listed,) = terminal.json("schedule", "list")
    assert (listed["id"], listed["status"]) == (known, "created")
    (ticked,) = terminal.json("scheduler", "--once")
    assert ticked["sent"] == 0
    terminal.type("schedule", "cancel", known)
    assert terminal.json("schedule", "show", known)[0]["status"] == "cancelled"


def test_previews_need_no_store(terminal: Terminal) -> None:
    lines = terminal.type(
        "schedule", "preview", "--cron", "30 2 29 2 *", "--timezone", "Asia/Tokyo", "-n", "3"
    ).stdout.splitlines()
    assert [line[4:] for line in lines] == ["-02-29 02:30:00+09:00"] * 3
    refused = terminal.type("schedule", "preview", "--cron", "0 0 31 2 *", code=2).stderr
    assert "there is no 31 February, so it would never fire" in refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mail"], "Give either --cron or --at"),
        (["mail", "--cron", "@daily", "--at", "1h"], "Give either --cron or --at"),
        (["mail", "--cron", "* * *"], "has 3 fields"),
        (["mail", "--cron", "@daily", "--timezone", "Mars"], "Use an IANA name"),
        (["mail", "--at", "2020-01-01T00:00:00Z"], "in the past"),
        (["mail", "--at", "500d"], "SCHEDULER_MAX_FUTURE_DAYS"),
        (["mail", "{", "--at", "2h"], "PAYLOAD"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(terminal: Terminal, words: list[str], said: str) -> None:
    assert said in terminal.type("schedule", "add", *words, code=2).stderr


def test_an_unknown_queue_is_refused(terminal: Terminal) -> None:
    assert "'nowhere' is not declared" in terminal.type("schedule", "add", "nowhere", "--at", "1d", code=4).stderr


def test_a_campaign_is_loaded_once_and_cancelled_as_a_whole(terminal: Terminal, tmp_path: Path) -> None:
    due = utc_now() + timedelta(days=2)
    rows = [{"key": f"u{number}", "deliver_at": due.isoformat(), "payload": number} for number in range(50)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    load = ("schedule", "load", "spring", str(file), "--queue", "mail")
    assert terminal.type(*load).stderr == "50 read, 50 scheduled.\n"
    assert terminal.type(*load, code=1).stderr == "50 read, 0 scheduled.\n"
    (state,) = terminal.json("schedule", "campaign", "spring")
    assert (state["planned"], state["waiting"]) == (50, 50)
    assert terminal.json("schedule", "campaign", "spring", "--cancel", "--yes") == [{"cancelled": 50}]
    assert "'spring' was cancelled" in terminal.type(*load, code=2).stderr


def test_loading_shows_on_a_terminal_how_far_it_is(terminal: Terminal, tmp_path: Path) -> None:
    due = (utc_now() + timedelta(days=2)).isoformat()
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"key": str(number), "deliver_at": due}) for number in range(5_000)))
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "godwit", "schedule", "load", "spring", str(file), "--queue", "mail"],
        env={**os.environ, "GODWIT_URL": terminal.url, "TERM": "xterm-256color", "COLUMNS": "80"},
        stdout=subprocess.DEVNULL,
        stderr=follower,
    ) as process:
        os.close(follower)
        said = b""
        with contextlib.suppress(OSError):  # the other side is closed at the end
            while part := os.read(leader, 65_536):
                said += part
    os.close(leader)
    assert process.returncode == 0
    assert b"5,000 read, 5,000 scheduled." in said
    assert b"\xe2\x94\x81" in said, "a bar"
    assert re.search(rb"spring.*\d+(\.\d)?/\d+(\.\d)? kB", said)


def test_a_bad_line_is_named(terminal: Terminal) -> None:
    due = (utc_now() + timedelta(days=2)).isoformat()
    good = json.dumps({"key": "a", "deliver_at": due})
    for bad, said in (
        ('{"key": 1}', "line 2 of -"),
        (json.dumps({"key": "b", "deliver_at": "2027-01-01T00:00:00"}), "without a time zone"),
        (json.dumps({"key": "", "deliver_at": due}), "key is ''"),
    ):
        typed = terminal.type("schedule", "load", "c", "-", "--queue", "mail", input=f"{good}\n{bad}\n", code=2)
        assert said in typed.stderr


def test_a_scheduler_process_sends_what_is_due_and_leaves_at_sigterm(terminal: Terminal) -> None:
    known = terminal.type("schedule", "add", "mail", '"late"', "--at", "90m").stdout.strip()
    (terminal.folder / "godwit.toml").write_text('[scheduler]\nlook_ahead = "2h"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "godwit", "scheduler"],
        cwd=terminal.folder,
        env={**os.environ, "GODWIT_URL": terminal.url},
        stderr=subprocess.DEVNULL,
    )
    try:

        async def published() -> bool:
            found = await asyncio.to_thread(terminal.json, "schedule", "show", known)
            return bool(found[0]["status"] == "published")

        asyncio.run(eventually(published, within=timedelta(seconds=60)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    (queue,) = terminal.json("queues", "mail")[0]
    assert queue["groups"][0]["delayed"] == 1
