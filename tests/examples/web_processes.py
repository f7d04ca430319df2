"""A web server and a worker of an example, started as its readers start them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.servers.processes import HOST, free_ports

STARTED = timedelta(seconds=60)
JSON = {"Content-Type": "application/json"}


class Customer:
    """Calls a web server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def call(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer; (0, None) while nothing listens."""
        connection = HTTPConnection(HOST, self._port, timeout=30)
        try:
            connection.request(method, path, None if content is None else json.dumps(content), JSON)
            answer = connection.getresponse()
            text = answer.read()
        except ConnectionRefusedError:
            return 0, None
        finally:
            connection.close()
        is_json = (answer.headers["Content-Type"] or "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else None


@contextlib.contextmanager
def serving(
    web: Callable[[int], Sequence[str]], worker: Sequence[str], *, folder: Path, environment: Mapping[str, str]
) -> Iterator[Customer]:
    """Run both; a process that ends with an error after SIGTERM fails the test."""
    (port,) = free_ports(1)
    processes = [subprocess.Popen(command, cwd=folder, env=environment) for command in (web(port), worker)]
    try:
        yield Customer(port)
        assert [process.poll() for process in processes] == [None, None]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
