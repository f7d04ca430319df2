"""Arguments, URLs and payloads that are no text, no URL or no number are the user's mistakes, never a bug of Godwit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.terminal import Terminal

BYTES = "\udcff\udcfe"
"""Two bytes that are no UTF-8, as Python gives them in `sys.argv`."""


@pytest.mark.parametrize(
    "words",
    [
        ("publish", "orders", BYTES, "--declare"),
        ("publish", "orders", f'"{BYTES}"', "--declare"),
        ("publish", BYTES, "1", "--declare"),
        ("publish", "orders", "1", "--declare", "--type", BYTES),
        ("publish", "orders", "1", "--declare", "--key", BYTES),
        ("publish", "orders", "1", "--declare", "--id", BYTES),
        ("publish", "orders", "1", "--declare", "--attribute", f"a={BYTES}"),
        ("publish", "orders", "1", "--declare", "--group", BYTES),
        ("publish", "orders", "1", "--delay", BYTES),
        ("pull", BYTES),
        ("ack", BYTES),
        ("nack", BYTES, "--reason", BYTES),
        ("message", "show", BYTES),
        ("pause", BYTES),
        ("dlq", "list", BYTES),
        ("route", BYTES),
        ("schedule", "show", BYTES),
        ("queues", "--url", BYTES),
        ("queues", "--url", f"redis://{BYTES}"),
        (BYTES,),
        ("publish", f"--{BYTES}"),
    ],
    ids=lambda words: " ".join(words).encode("ascii", "replace").decode(),
)
def test_bytes_that_are_no_text_are_named_with_what_is_allowed(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.type("publish", "orders", "0", "--declare")
    told = subprocess.run(
        [sys.executable, "-m", "godwit", *words],
        cwd=terminal.folder,
        env={**os.environ, "GODWIT_URL": terminal.url},
        capture_output=True,
        timeout=60,
        check=False,
    )
    output = (told.stdout + told.stderr).decode()
    assert told.returncode in {2, 4}, output
    assert "bug in Godwit" not in output


@pytest.mark.parametrize(
    "url",
    [
        *("amqp://[::1", "redis://[::1", "postgresql://[::1", "redis+cluster://[::1,b", "amqp://h:99999999"),
        *("amqp://h?heartbeat=nan", "amqp://h?heartbeat=-inf", "amqp://h?heartbeat=1e400s"),
        *("amqp://h?heartbeat=30s&heartbeat=nan", "redis://h/abc", "redis://h?patience=nan", "memory://?spill"),
        *("redis://h:x", "http://[", ":", "://", "a"),
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_as_such(terminal: Terminal, url: str) -> None:
    result = terminal.type("queues", url=url, code=2)
    assert "bug in Godwit" not in result.output
