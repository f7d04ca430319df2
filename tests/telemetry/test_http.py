from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest

from godwit.core.clock import ManualClock
from godwit.telemetry.health import Check, HealthStatus, QueueHealthMonitor, QueueMetrics
from godwit.telemetry.http import MAX_CONNECTIONS, MAX_HEAD_BYTES, TelemetryServer
from godwit.telemetry.metrics import QueueMetricsCollector
from tests.logs import capture_logs
from tests.telemetry.prometheus_parser import open_metrics_families, plain_families
from tests.waiting import eventually

Answer = tuple[int, dict[str, str], bytes]


class Site:
    """A running server over numbers that a test can change."""

    def __init__(self) -> None:
        self.collector = QueueMetricsCollector()
        self.collector.enqueued("orders", 'odd "type"\\\n')
        self.numbers = QueueMetrics()
        self.broken = False
        self.monitor = QueueHealthMonitor(metrics=self._numbers, version="9", clock=ManualClock())
        self._health = self.monitor.get_health_status
        self.server = TelemetryServer(
            metrics=self._metrics,
            health=self.health,
            ready=self.monitor.get_readiness,
            timeout=timedelta(milliseconds=300),
        )

    async def _numbers(self) -> QueueMetrics:
        return self.numbers

    async def health(self) -> HealthStatus:
        return await self._health()

    async def _metrics(self, open_metrics: bool) -> str:
        if self.broken:
            raise RuntimeError("no page")
        return self.collector.render(open_metrics=open_metrics)

    async def ask(self, path: str, *, method: str = "GET", accept: str = "*/*", body: bytes | None = None) -> Answer:
        def call() -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
            try:
                connection.request(method, path, body=body, headers={"Accept": accept})
                answer = connection.getresponse()
                return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
            finally:
                connection.close()

        return await asyncio.to_thread(call)

    async def send(self, raw: bytes) -> bytes:
        """Send bytes as they are; return all that comes back until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            writer.write(raw)
            async with asyncio.timeout(5):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    async with made.server:
        yield made


async def test_metrics_are_served_in_the_format_the_client_asks_for(site: Site) -> None:
    status, headers, body = await site.ask("/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    (family,) = (f for f in plain_families(body.decode()) if f.name == "queue_messages_enqueued")
    assert family.samples[0].labels["type"] == 'odd "type"\\\n'
    status, headers, body = await site.ask("/metrics", accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert len(open_metrics_families(body.decode())) == len(site.collector.families)


async def test_health_is_200_or_503_with_the_same_body(site: Site) -> None:
    status, headers, body = await site.ask("/health/queue")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["healthy"] is True
    site.numbers = QueueMetrics(deepest=5_000, queue_length=5_000)
    status, _, body = await site.ask("/health/queue?verbose=1")
    said = json.loads(body)
    assert (status, said["status"], said["metrics"]["queue_length"]) == (503, "unhealthy", 5_000)
    assert set(said) == {"status", "timestamp", "checks", "version", "healthy", "metrics"}


async def test_other_paths_are_404_and_other_methods_405(site: Site) -> None:
    assert (await site.ask("/"))[0] == 404
    assert (await site.ask("/metrics/../health/queue"))[0] == 404
    status, headers, _ = await site.ask("/metrics", method="POST", body=b"x" * 100_000)
    assert (status, headers["allow"], headers["connection"]) == (405, "GET, HEAD", "close")
    assert (await site.ask("/metrics", method="BREW"))[0] == 405
    status, headers, body = await site.ask("/metrics", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 100


async def test_a_connection_serves_several_requests(site: Site) -> None:
    one = b"GET /health/queue HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /health/queue HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    said = await site.send(one + one + last)
    assert said.count(b"HTTP/1.1 200 OK") == 3
    assert said.count(b"Connection: keep-alive") == 2
    assert (await site.send(b"GET /health/queue HTTP/1.0\r\n\r\n" * 2)).count(b"200 OK") == 1


async def test_a_body_is_never_read_as_the_next_request(site: Site) -> None:
    inner = b"GET /metrics HTTP/1.1\r\n\r\n"
    for header in (b"Content-Length: %d" % len(inner), b"Transfer-Encoding: chunked"):
        said = await site.send(b"GET /nothing HTTP/1.1\r\n" + header + b"\r\n\r\n" + inner)
        assert said.count(b"HTTP/1.1 ") <= 1


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/2.0\r\n\r\n",
        b"GET  /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nContent-Length: 9\r\ncontent-length: 0\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_answered_400_and_closed(site: Site, raw: bytes) -> None:
    assert (await site.send(raw)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert (await site.ask("/metrics"))[0] == 200


async def test_an_oversized_head_is_answered_431_and_closed(site: Site) -> None:
    raw = b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (MAX_HEAD_BYTES + 10)
    assert (await site.send(raw)).startswith(b"HTTP/1.1 431 ")
    endless = b"a" * (MAX_HEAD_BYTES * 40)
    assert (await site.send(endless))[:12] in {b"HTTP/1.1 431", b""}, "a reset may overtake the answer"
    assert (await site.ask("/metrics"))[0] == 200


async def test_a_client_that_dribbles_or_says_nothing_is_cut_off(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.server.port)
    silent, other = await asyncio.open_connection("127.0.0.1", site.server.port)
    writer.write(b"GET /metr")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
        assert await silent.read() == b""
    for each in (writer, other):
        each.close()
    await eventually(lambda: not site.server._connections)


async def test_a_client_that_does_not_read_is_cut_off(site: Site) -> None:
    for number in range(2_000):
        site.collector.acked(f"{'long' * 50}-{number}", "g")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", site.server.port))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 80)
        await eventually(lambda: bool(site.server._connections))
        await eventually(lambda: not site.server._connections)
    assert (await site.ask("/metrics"))[0] == 200


async def test_connections_are_limited_and_come_free_again(site: Site) -> None:
    held = [await asyncio.open_connection("127.0.0.1", site.server.port) for _ in range(MAX_CONNECTIONS)]
    await eventually(lambda: len(site.server._connections) == MAX_CONNECTIONS)
    assert await site.send(b"GET /metrics HTTP/1.1\r\n\r\n") == b""
    for _, writer in held:
        writer.close()
    await eventually(lambda: not site.server._connections)
    assert (await site.ask("/metrics"))[0] == 200


async def test_a_broken_page_is_500_and_says_nothing_of_the_reason(site: Site) -> None:
    site.broken = True
    with capture_logs() as logs:
        status, _, body = await site.ask("/metrics")
    assert (status, body) == (500, b"Internal Server Error\n")
    assert logs[0]["event"] == "telemetry_page_failed"


async def test_it_listens_on_loopback_and_closing_ends_open_connections() -> None:
    site = Site()
    await site.server.start()
    assert site.server._server is not None
    assert {name.getsockname()[0] for name in site.server._server.sockets} == {"127.0.0.1"}
    port = site.server.port
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, said: complaints.append(said))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await eventually(lambda: bool(site.server._connections))
    await site.server.close()
    assert await reader.read() == b""
    assert complaints == []
    writer.close()
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", port)
    await site.server.close()


async def test_three_questions_about_health_have_three_answers(site: Site) -> None:
    async def broker() -> Check:
        return Check("broker", healthy=works, detail="answers")

    works = True
    site.monitor.register("broker", broker, own=True)
    site.numbers = QueueMetrics(deepest=100_000)
    answers = {path: await site.ask(f"/health/{path}") for path in ("live", "ready", "queue")}
    assert {path: answer[0] for path, answer in answers.items()} == {"live": 200, "ready": 200, "queue": 503}
    assert json.loads(answers["ready"][2])["status"] == "ready"
    works = False
    status, _, body = await site.ask("/health/ready")
    assert (status, [check["name"] for check in json.loads(body)["checks"]]) == (503, ["broker"])
    assert (await site.ask("/health/live"))[0] == 200


async def test_clients_that_never_read_count_until_they_are_cut_off_and_do_not_survive_the_end(site: Site) -> None:
    for n in range(2_000):
        site.collector.enqueued(f"queue-{n}", "x" * 100)  # an answer that no buffer takes as a whole
    clients = list[socket.socket]()
    for _ in range(MAX_CONNECTIONS):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", site.server.port))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 8)
        clients.append(client)

    async def is_served() -> bool:
        try:
            return (await site.ask("/health/live"))[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    await eventually(is_served, within=timedelta(seconds=20))
    await site.server.close()
    for client in clients:
        client.settimeout(5)
        with suppress(ConnectionResetError):
            while client.recv(1_000_000):
                pass
        client.close()
