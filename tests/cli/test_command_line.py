from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import godwit
from godwit.cli.exits import Exit, exit_of
from godwit.core import errors
from godwit.core.errors import GodwitError
from tests.cli.documented import PAGE, commands, help_of, page_with, section
from tests.cli.terminal import Terminal
from tests.steal_time import calm


def test_the_version_is_printed(terminal: Terminal) -> None:
    assert terminal.type("--version").stdout == f"godwit {godwit.__version__}\n"


def test_without_a_command_the_help_is_shown(terminal: Terminal) -> None:
    assert terminal.type().stdout == terminal.type("--help").stdout


def test_the_page_shows_the_help_of_every_command() -> None:
    assert page_with(section()) == PAGE.read_text(encoding="utf-8"), "run: python -m tests.cli.documented"


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_help_has_an_example_and_explains_every_option(command: tuple[str, ...]) -> None:
    text = help_of(*command)
    assert "Example" in text
    assert re.findall(r"^ +(?:-\w, )?--[\w-]+(?: \S+)?$", text, re.MULTILINE) == []
    assert max(map(len, text.splitlines())) <= 80


def test_a_command_imports_only_what_it_needs() -> None:
    code = "import sys, godwit.cli.app as a; a.app(['--version'], standalone_mode=False)"
    code = f"import atexit, sys; atexit.register(lambda: print(*sys.modules)); {code}"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"godwit.manager", "godwit.runtime", "sqlite3", "rich.progress"} & set(loaded)


def test_a_similar_command_is_suggested(terminal: Terminal) -> None:
    assert "queues" in terminal.error("queue", code=2)["fact"]


def test_every_exit_code_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == {int(code) for code in Exit}


def every_error(root: type[GodwitError] = GodwitError) -> list[type[GodwitError]]:
    return [root, *(error for child in root.__subclasses__() for error in every_error(child))]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_that_is_not_success(kind: type[GodwitError]) -> None:
    assert exit_of(kind.__new__(kind)) in set(Exit) - {Exit.OK, Exit.EMPTY, Exit.BUG}


def test_a_busy_broker_asks_to_come_back() -> None:
    assert exit_of(errors.BrokerBusy("publish", 10)) is Exit.TRY_LATER


def test_a_missing_file_is_not_made_by_looking(terminal: Terminal) -> None:
    for words in (("queues",), ("pull", "orders"), ("publish", "orders", "1"), ("ack", "x"), ("backup", "copy.db")):
        assert "does not exist" in terminal.error(*words, code=3)["fact"]
    assert list(terminal.folder.iterdir()) == []


def test_a_broker_without_queues_is_empty(terminal: Terminal) -> None:
    assert terminal.type("queues", "--json", code=1, url="memory://").stdout == "[]\n"
    assert "no queues" in terminal.type("queues", code=1, url="memory://").stderr


@pytest.mark.parametrize(
    ("url", "code"),
    [("mysql://localhost/x", 2), ("godwit.db", 2), ("memory://somewhere", 2), ("sqlite:///", 2), ("", 2)],
)
def test_a_bad_url_is_refused(terminal: Terminal, url: str, code: int) -> None:
    error = terminal.error("publish", "orders", "1", "--declare", "--url", url, code=code)
    assert error["remedy"]


def test_a_place_that_cannot_be_written_is_an_unavailable_broker(terminal: Terminal) -> None:
    (terminal.folder / "file").write_bytes(b"")
    url = f"sqlite:///{terminal.folder / 'file' / 'godwit.db'}"
    assert terminal.error("publish", "orders", "1", "--declare", "--url", url, code=3)["remedy"]


def test_a_file_that_is_no_database_is_an_unavailable_broker(terminal: Terminal) -> None:
    (terminal.folder / "godwit.db").write_bytes(b"certainly not a database " * 1_000)
    assert terminal.error("queues", code=3)["error"] == "StorageCorrupt"


def test_a_bug_is_called_one(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("godwit.cli.args.connection.connect_for", broken)
    error = terminal.error("queues", code=70, url="memory://")
    assert error["fact"] == "Unexpected ZeroDivisionError: by zero"
    assert "--debug" in error["remedy"]


def test_debug_shows_the_traceback_wherever_it_stands(terminal: Terminal) -> None:
    for words in (("--debug", "queues"), ("queues", "--debug")):
        ran = terminal.start(*words, "--url", "nonsense://")
        assert ran.returncode == 2
        assert "Traceback" in ran.stderr
        assert "No broker has the URL scheme" in ran.stderr


def test_a_session_of_real_processes(terminal: Terminal) -> None:
    published = terminal.start("publish", "orders", '{"n": 1}', "--declare")
    assert published.returncode == 0
    seen = terminal.start("pull", "orders")
    assert published.stdout.strip() in seen.stdout
    assert '{"n":1}' in seen.stdout
    assert terminal.start("pull", "orders", "--ack").returncode == 0
    assert terminal.start("pull", "orders", "--ack").returncode == 1
    table = terminal.start("queues")
    assert "\x1b" not in table.stdout + table.stderr + seen.stdout


def test_what_nobody_could_read_is_not_acked(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "--declare", input="1\n" * 5_000)
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", "godwit", "pull", "orders", "--limit", "5000", "--ack", "--json", "--url", terminal.url],
        stdout=writer, stderr=subprocess.PIPE, text=True, timeout=200, check=False,
    )  # fmt: skip
    os.close(writer)
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    (queues,) = terminal.json("queues")
    assert queues[0]["groups"][0]["ready"] == 5_000


def test_control_c_ends_a_watch_well_and_a_wait_with_130(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "1", "--declare", "--delay", "1h")
    for words, code in (
        (("queues", "--watch", "--json", "--every", "50ms"), 0),
        (("pull", "orders", "--wait", "50s"), 130),
    ):
        with subprocess.Popen(
            [sys.executable, "-m", "godwit", *words, "--url", terminal.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            if code == 0:
                assert process.stdout is not None
                process.stdout.readline()
            else:
                leased_or_waiting(process)
            process.send_signal(signal.SIGINT)
            _, remarks = process.communicate(timeout=200)
        assert process.returncode == code, remarks
        assert b"Traceback" not in remarks


def leased_or_waiting(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has opened the broker: then it waits for messages."""
    deadline = calm() + 20
    descriptors = Path(f"/proc/{process.pid}/fd")
    while calm() < deadline:
        with contextlib.suppress(OSError):  # descriptors come and go
            if any("godwit.db" in str(entry.readlink()) for entry in descriptors.iterdir()):
                return
    raise AssertionError("the broker was never opened")
