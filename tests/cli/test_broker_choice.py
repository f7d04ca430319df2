"""Which broker a command works on: --url, GODWIT_URL, REDIS_URL, RABBITMQ_URL, REDIS_HOST, godwit.toml, godwit.db."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from godwit.cli.app import app

NOTHING = dict.fromkeys(("GODWIT_URL", "GODWIT_STORE_URL", "REDIS_URL", "RABBITMQ_URL", "REDIS_HOST"))
COMMANDS = [
    ["queues"],
    ["pull", "q"],
    ["ack", "a"],
    ["nack", "a"],
    ["message", "discard", "q", "m"],
    ["dlq", "list"],
    ["dlq", "patterns"],
    ["pause", "q"],
    ["resume", "q"],
    ["purge", "q", "--yes"],
    ["publish", "q", "1"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*words: str, **environment: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    result = CliRunner(env={**NOTHING, **environment}).invoke(app, words, prog_name="godwit")
    return result.exit_code, result.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_asks_the_environment_in_the_documented_order(words: list[str]) -> None:
    code, output = typed(*words)
    assert (code, "sqlite:///godwit.db" in output) == (3, True)
    code, output = typed(*words, GODWIT_URL="sqlite:///named.db", REDIS_URL="redis://nowhere:1")
    assert (code, "sqlite:///named.db" in output) == (3, True)
    code, output = typed(*words, "--url", "sqlite:///argument.db", GODWIT_URL="sqlite:///named.db")
    assert (code, "sqlite:///argument.db" in output) == (3, True)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_two_brokers_at_one_level_are_refused_by_every_command(words: list[str]) -> None:
    code, output = typed(*words, REDIS_URL="redis://a", RABBITMQ_URL="amqp://b")
    assert code == 2
    assert "two brokers are named" in output


def test_the_file_in_the_folder_is_asked_after_the_environment(folder: Path) -> None:
    (folder / "godwit.toml").write_text('broker_url = "sqlite:///of-the-file.db"')
    assert "sqlite:///of-the-file.db" in typed("queues")[1]
    assert "sqlite:///named.db" in typed("queues", GODWIT_URL="sqlite:///named.db")[1]


def test_a_bad_url_does_not_show_its_password() -> None:
    code, output = typed("queues", "--url", "redis//user:hush@host")
    assert code == 2
    assert "hush" not in output


@pytest.mark.parametrize(
    ("words", "environment", "store"),
    [
        ((), {}, "sqlite:///godwit.db"),
        (("--url", "sqlite:///a.db"), {}, "sqlite:///a.db"),
        (("--url", "redis://a"), {}, "none"),
        (("--url", "redis://a"), {"GODWIT_STORE_URL": "sqlite:///b.db"}, "sqlite:///b.db"),
        (("--store", "sqlite:///c.db"), {"GODWIT_STORE_URL": "sqlite:///b.db"}, "sqlite:///c.db"),
    ],
)
def test_the_store_is_named_or_is_the_file_of_a_sqlite_broker(
    words: tuple[str, ...], environment: dict[str, str], store: str
) -> None:
    code, output = typed("config", *words, **environment)
    assert code == 0
    (line,) = (line for line in output.splitlines() if line.startswith("store_url"))
    assert line.split()[1] == store


def test_a_worker_refuses_a_url_that_its_module_does_not_listen_to(folder: Path) -> None:
    (folder / "deaf_shop.py").write_text(
        "from godwit import MessageQueueManager\n"
        "mq = MessageQueueManager.from_url('memory://')\n"
        "@mq.consumer('orders')\n"
        "async def charge(message): ...\n"
    )
    code, output = typed("worker", "deaf_shop:mq", "--url", "sqlite:///a.db")
    assert code == 2
    assert "names its own broker, memory://" in output
