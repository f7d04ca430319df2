"""Streamers and collectors as processes on one Redis server: 3 and 5 of them, as the manifests have it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from godwit.brokers.urls import connect
from godwit.core.failures.failure import FailureKind
from godwit.core.names import QueueName
from tests.project.specification import ROOT
from tests.servers.redis import RedisServer, redis_server
from tests.waiting import eventually

EXAMPLES = ROOT / "examples"
STREAM = "telemetry-stream"
STREAMERS, COLLECTORS, READINGS = 3, 5, 200
LONG = timedelta(seconds=60)


@contextmanager
def collectors(environment: dict[str, str]) -> Iterator[list[subprocess.Popen[Any]]]:
    """Run the collectors of all pods."""
    command = [sys.executable, "-m", "godwit", "worker", "telemetry:mq"]
    pods = [
        subprocess.Popen(command, cwd=EXAMPLES, env=environment | {"REDIS_CONSUMER_ID": f"collector-{number}"})
        for number in range(1, COLLECTORS + 1)
    ]
    try:
        yield pods
    finally:
        for pod in pods:
            pod.terminate()
        for pod in pods:
            pod.wait(120)


def redis_cli(server: RedisServer, *words: str) -> str:
    """Type a command, as a producer in any other language would send it."""
    ran = subprocess.run(["redis-cli", "-u", server.url, *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def stored(database: Path) -> list[tuple[str, str]]:
    """Return the sensor and the collector of every reading stored."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        try:
            return connection.execute("SELECT sensor, collector FROM reading").fetchall()
        except sqlite3.OperationalError:  # the first collector is just making the table
            return []


async def test_three_streamers_and_five_collectors_share_one_stream_and_survive_a_kill(tmp_path: Path) -> None:
    database = tmp_path / "readings.db"
    with redis_server() as server:
        environment = {
            **os.environ,
            "REDIS_URL": f"127.0.0.1:{server.port}",
            "TELEMETRY_DB": str(database),
            "READINGS": str(READINGS),
            "VISIBILITY_TIMEOUT": "2000",
            "MAX_RETRIES": "2",
        }
        stream = [sys.executable, "telemetry.py", "streamer"]
        with collectors(environment) as pods:
            streamers = [subprocess.Popen(stream, cwd=EXAMPLES, env=environment) for _ in range(STREAMERS)]  # noqa: ASYNC220
            await eventually(lambda: len(stored(database)) > 20, within=LONG, what="readings in the store")
            pods[0].kill()
            assert [pod.wait(120) for pod in streamers] == [0] * STREAMERS
            redis_cli(server, "XADD", STREAM, "*", "data", json.dumps({"sensor": "foreign", "celsius": 1.5}))
            redis_cli(server, "XADD", STREAM, "*", "payload", json.dumps({"sensor": "foreign", "celsius": 2000}))
            redis_cli(server, "XADD", STREAM, "*", "payload", json.dumps("no reading"))
            wanted = STREAMERS * READINGS + 1
            await eventually(lambda: len(stored(database)) == wanted, within=LONG, what="every reading in the store")
            async with connect(server.url) as broker:

                async def two_letters() -> bool:
                    return len(await broker.dead_letters.page(QueueName(STREAM))) == 2

                await eventually(two_letters, within=LONG, what="two dead letters")
                letters = await broker.dead_letters.page(QueueName(STREAM))
                (queue,) = await broker.stats()
    readings = stored(database)
    assert len(readings) == wanted
    assert [sensor for sensor, _ in readings].count("foreign") == 1
    assert len({collector for _, collector in readings}) >= 3, "one collector had it all to itself"
    tries = {letter.kind: letter.failures for letter in letters}
    assert tries == {FailureKind.TRANSIENT: 2, FailureKind.PERMANENT: 1}
    assert [(group.name, group.depth) for group in queue.groups] == [("collectors", 0)]


def test_the_pods_of_the_compose_file_are_the_processes_of_this_test() -> None:
    compose = (EXAMPLES / "pods" / "compose.yaml").read_text(encoding="utf-8")
    assert [int(count) for count in re.findall(r"replicas: (\d+)", compose)] == [STREAMERS, COLLECTORS]
    assert '"--appendonly", "yes"' in compose
    named = set(re.findall(r"^      ([A-Z_]+):", compose, re.MULTILINE)) - {"READINGS", "TELEMETRY_DB"}
    documented = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [name for name in sorted(named) if f"`{name}`" not in documented] == []
    assert {"REDIS_URL", "REDIS_STREAM", "REDIS_GROUP", "VISIBILITY_TIMEOUT", "MAX_RETRIES"} <= named


def test_the_image_runs_what_the_example_says() -> None:
    steps = (EXAMPLES / "pods" / "Dockerfile").read_text(encoding="utf-8")
    assert 'CMD ["godwit", "worker", "telemetry:mq"]' in steps
    copied = re.findall(r"^COPY (\S+) ", steps, re.MULTILINE)
    assert all((ROOT / path).exists() for path in copied)
