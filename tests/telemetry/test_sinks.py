from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from godwit.core.errors import InvalidSetting
from godwit.telemetry.alerts import Alert, AlertName
from godwit.telemetry.sinks import WebhookRefused, WebhookSink, log_sink, tell
from tests.logs import capture_logs

ALERT = Alert(
    name=AlertName.HIGH_QUEUE_DEPTH,
    state="firing",
    subject="orders/billing",
    value=1200,
    threshold=1000,
    at=datetime(2026, 1, 2, tzinfo=UTC),
)
NOW = timedelta(0)


class Hook(ThreadingHTTPServer):
    """A webhook that answers with the given statuses, then 200."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?team=a"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Hook)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(server.statuses.pop(0) if server.statuses else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def hook(*statuses: int) -> Iterator[Hook]:
    with Hook(*statuses) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def test_a_webhook_gets_the_alert_as_json() -> None:
    with hook() as server:
        await WebhookSink(server.url, headers={"Authorization": "Bearer x"})(ALERT)
        ((path, headers, body),) = server.got
    assert path == "/hook?team=a"
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Bearer x"
    assert msgspec.json.decode(body) == {
        "name": "HIGH_QUEUE_DEPTH",
        "state": "firing",
        "subject": "orders/billing",
        "value": 1200.0,
        "threshold": 1000.0,
        "at": "2026-01-02T00:00:00Z",
    }


async def test_a_webhook_is_tried_again_but_not_for_ever() -> None:
    with hook(500, 429) as server:
        await WebhookSink(server.url, pause=NOW)(ALERT)
        assert len(server.got) == 3
    with hook(*[503] * 9) as server, pytest.raises(WebhookRefused, match="503"):
        await WebhookSink(server.url, pause=NOW)(ALERT)
    assert len(server.got) == 3


@pytest.mark.parametrize("status", [400, 404, 302])
async def test_a_webhook_that_says_no_is_not_asked_again(status: int) -> None:
    with hook(status) as server, pytest.raises(WebhookRefused, match=str(status)):
        await WebhookSink(server.url, pause=NOW)(ALERT)
    assert len(server.got) == 1


async def test_a_webhook_nobody_serves_raises_after_its_attempts() -> None:
    with Hook() as server:
        url = server.url
    with pytest.raises(OSError, match=r"\d"):
        await WebhookSink(url, pause=NOW)(ALERT)


async def test_a_webhook_that_dribbles_or_talks_nonsense_is_given_up_in_time() -> None:
    async def dribble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            pass
        finally:
            writer.close()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"x" * 100_000)
        writer.close()

    for behaviour, error in ((dribble, TimeoutError), (nonsense, EOFError)):
        async with await asyncio.start_server(behaviour, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            sink = WebhookSink(f"http://127.0.0.1:{port}", timeout=timedelta(seconds=0.2), attempts=2, pause=NOW)
            with pytest.raises((error, ConnectionError)):
                await sink(ALERT)


@pytest.mark.parametrize(
    "url",
    ["ftp://a.test/x", "http://", "http://user:pw@a.test/", "not a url", "http://a.test/\r\nX: y", "http://a.test:xx/"],
)
def test_a_webhook_address_that_cannot_work_is_refused_without_showing_secrets(url: str) -> None:
    with pytest.raises(InvalidSetting, match="webhook") as caught:
        WebhookSink(url)
    assert "pw" not in str(caught.value)


def test_a_header_cannot_smuggle_another_one_in() -> None:
    with pytest.raises(InvalidSetting, match="header"):
        WebhookSink("http://a.test", headers={"X": "a\r\nY: b"})


async def test_a_sink_that_fails_or_hangs_does_not_stop_the_others() -> None:
    told: list[str] = []

    def broken(alert: Alert) -> None:
        raise RuntimeError("no")

    async def hangs(alert: Alert) -> None:
        await asyncio.Event().wait()

    async def works(alert: Alert) -> None:
        told.append(alert.subject)

    def works_in_a_thread(alert: Alert) -> None:
        told.append(threading.current_thread().name)

    with capture_logs() as logs:
        await tell([broken, hangs, works, works_in_a_thread], [ALERT], timeout=timedelta(seconds=0.2))
    assert told[0] == "orders/billing"
    assert told[1] != threading.current_thread().name
    assert sorted(entry["error"] for entry in logs) == ["RuntimeError: no", "TimeoutError"]
    assert {entry["event"] for entry in logs} == {"alert_sink_failed"}


async def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    told: list[Alert] = []

    async def later(alert: Alert) -> None:
        told.append(alert)

    await tell([partial(lambda call, alert: call(alert), later)], [ALERT])
    assert told == [ALERT]


def test_the_log_gets_fields() -> None:
    with capture_logs() as logs:
        log_sink(ALERT)
        log_sink(msgspec.structs.replace(ALERT, state="cleared"))
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert logs[0] == {
        "event": "alert",
        "log_level": "warning",
        "alert": "HIGH_QUEUE_DEPTH",
        "state": "firing",
        "subject": "orders/billing",
        "value": 1200,
        "threshold": 1000,
    }
