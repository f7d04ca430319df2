from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from godwit.brokers.urls import connect
from godwit.cli.app import report_error
from godwit.cli.exits import Exit
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.shared_keys import instance_key
from godwit.runtime.worker.heartbeat import ConsumerInstance, InstanceStatus
from tests.cli.terminal import Terminal


def groups(terminal: Terminal, queue: str) -> list[str]:
    (queues,) = terminal.json("queues", queue)
    return [group["name"] for group in queues[0]["groups"]]


def test_a_queue_is_declared_with_its_groups(terminal: Terminal) -> None:
    assert terminal.json("declare", "orders", "--group", "billing", "--group", "stock") == [
        {"queue": "orders", "groups": ["billing", "stock"]}
    ]
    assert groups(terminal, "orders") == ["billing", "stock"]
    again = terminal.type("declare", "orders", "--group", "mail")
    assert "'orders' has the groups 'billing', 'mail', 'stock'." in again.stderr
    terminal.type("declare", "emails")
    assert groups(terminal, "emails") == ["default"]
    assert terminal.error("declare", "no such name", code=2)["error"] == "InvalidName"


def test_a_group_is_removed_with_what_waits_for_it(terminal: Terminal) -> None:
    terminal.type("declare", "orders", "--group", "billing", "--group", "stock")
    terminal.type("publish", "orders", "7")
    assert "--yes" in terminal.error("group", "remove", "orders", "stock", code=2)["remedy"]
    wrong = terminal.error("group", "remove", "orders", "stok", "--yes", code=4)
    assert "Did you mean 'stock'?" in wrong["remedy"]
    assert "Did you mean 'orders'?" in terminal.error("group", "remove", "order", "stock", "--yes", code=4)["remedy"]
    assert terminal.json("group", "remove", "orders", "stock", "--yes") == [
        {"queue": "orders", "group": "stock", "removed": 1}
    ]
    assert groups(terminal, "orders") == ["billing"]


def test_publishing_says_which_groups_a_new_queue_has(terminal: Terminal) -> None:
    new = terminal.type("publish", "orders", "7", "--declare")
    assert "Queue 'orders' is new and has the group 'default'. Groups that are declared later do not get" in new.stderr
    assert "godwit declare orders --group NAME" in new.stderr
    assert "is new" not in terminal.type("publish", "orders", "8", "--declare").stderr
    terminal.type("declare", "emails", "--group", "senders")
    assert "is new" not in terminal.type("publish", "emails", "8", "--declare").stderr


def test_publishing_declares_what_the_configuration_says(terminal: Terminal) -> None:
    (terminal.folder / "godwit.toml").write_text('[[queues]]\nname = "orders"\nconsumer_groups = ["billing"]\n')
    done = terminal.start("publish", "orders", "7", "--declare")
    assert done.returncode == 0, done.stderr
    assert "is new" not in done.stderr
    assert groups(terminal, "orders") == ["billing"]


async def test_workers_are_listed_with_what_they_do(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    now = SYSTEM_CLOCK.now_ms()
    async with connect(terminal.url) as broker:
        for name, beat in (("alive", now), ("silent", now - 60_000)):
            instance = ConsumerInstance(
                id=name, queue="orders", group="billing", status=InstanceStatus.ACTIVE, last_heartbeat_ms=beat,
                interval_ms=5_000, started_ms=now - 90_000, processed_count=7, error_count=2, concurrency=10,
            )  # fmt: skip
            key = instance_key("orders", "billing", name)
            await broker.shared.put(key, msgspec.json.encode(instance), expected=None)
    shown = terminal.start("workers", "--json")
    assert shown.returncode == 0, shown.stderr
    alive, silent = (msgspec.json.decode(line) for line in shown.stdout.splitlines())
    assert (alive["id"], alive["status"], alive["processed_count"]) == ("alive", "active", 7)
    assert (silent["id"], silent["status"], silent["detail"]) == ("silent", "failed", "no heartbeat")
    table = terminal.start("workers").stdout
    assert "alive" in table
    assert "no heartbeat" in table
    assert terminal.start("workers", "emails").returncode == 1, "nobody serves it"


def test_a_missing_package_is_a_sentence_and_no_bug(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("godwit.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    error = terminal.error("db", "status", "--store", "postgresql://localhost/x", code=3)
    assert (error["fact"], error["remedy"]) == (
        "The PostgreSQL store needs a package that is not installed",
        "Install godwit[postgres].",
    )


@pytest.mark.parametrize(
    ("package", "remedy"), [("pyarrow", "Install godwit[spark]."), ("weather", "Install it: pip install weather.")]
)
def test_a_package_that_a_command_imports_is_named(
    package: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ModuleNotFoundError(f"No module named {package!r}", name=f"{package}.part")
    assert report_error(error, as_json=False) is Exit.UNAVAILABLE
    assert capsys.readouterr().err == f"This command needs the package {package!r}, which is not installed. {remedy}\n"
    assert report_error(ModuleNotFoundError("No module named 'godwit.x'", name="godwit.x"), as_json=False) is Exit.BUG
