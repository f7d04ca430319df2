"""A very small HTTP/1.1 server for `/metrics` and three questions about health, meant for the loopback address.

It reads a request's head and nothing else: size, time and number of connections are bounded, a request with a body is
answered and its connection closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Self

import msgspec

from godwit.core.logs import get_logger
from godwit.core.settings import DEFAULTS
from godwit.telemetry import exposition
from godwit.telemetry.health import HealthStatus, Readiness

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_CONNECTIONS: Final = 64
TIMEOUT: Final = timedelta(seconds=10)

_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_METHODS: Final = frozenset({"GET", "HEAD"})
_WORDS_OF_A_REQUEST_LINE: Final = 3

_log = get_logger(__name__)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a request, header names in lower case."""

    method: str
    path: str
    version: str
    headers: dict[str, str]

    @property
    def keeps_alive(self) -> bool:
        """Say whether the client may send another request on this connection."""
        has_body = self.headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in self.headers
        closes = "close" in self.headers.get("connection", "").lower()
        return self.version == "HTTP/1.1" and not closes and not has_body


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer; `allow` goes with 405."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    allow: str = ""

    def encode(self, *, keeps_alive: bool, head_only: bool) -> bytes:
        """Return the bytes to send."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
        ]
        if self.allow:
            lines.append(f"Allow: {self.allow}")
        head = "\r\n".join((*lines, "", "")).encode("ascii")
        return head if head_only else head + self.body


class BadHead(Exception):
    """What came is not a request this server reads."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status
        super().__init__(status)


class TelemetryServer:
    """Serves metrics and health until it is closed; port 0 takes any free port."""

    def __init__(
        self,
        *,
        metrics: Callable[[bool], Awaitable[str]],
        health: Callable[[], Awaitable[HealthStatus]],
        ready: Callable[[], Awaitable[Readiness]] | None = None,
        host: str = DEFAULTS.monitoring.http_host,
        port: int = 0,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        self._metrics, self._health, self._ready = metrics, health, ready
        self._host, self._asked_port, self._seconds = host, port, timeout.total_seconds()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None:
            return self._asked_port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Begin to listen; raises OSError when the port is taken."""
        self._server = await asyncio.start_server(self._connected, self._host, self._asked_port, limit=MAX_HEAD_BYTES)

    async def close(self) -> None:
        """Stop listening and end open connections."""
        if self._server is not None:
            self._server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening."""
        await self.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, TimeoutError, EOFError):
            pass  # the client went away or is too slow; it gets no answer
        except asyncio.CancelledError:
            writer.transport.abort()  # by close(); asyncio before 3.12 reports a task that ends cancelled as an error
        finally:
            await self._hang_up(writer)
            self._connections.discard(task)

    async def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection; a client that does not read what is left for it counts until it is cut off."""
        writer.close()
        try:
            async with asyncio.timeout(self._seconds):
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            async with asyncio.timeout(self._seconds):
                request = parse_head(await _read_head(reader))
        except BadHead as bad:
            await self._send(writer, _plain(bad.status).encode(keeps_alive=False, head_only=False))
            return False
        try:
            response = await self._answer(request)
        except asyncio.CancelledError:
            raise
        except BaseException:  # noqa: BLE001 - the server outlives a broken page
            _log.exception("telemetry_page_failed", path=request.path)
            response = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        keeps_alive = request.keeps_alive
        await self._send(writer, response.encode(keeps_alive=keeps_alive, head_only=request.method == "HEAD"))
        return keeps_alive

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        async with asyncio.timeout(self._seconds):
            writer.write(answer)
            await writer.drain()

    async def _answer(self, request: Request) -> Response:
        pages = {
            "/metrics": self._metrics_page,
            "/health/live": self._live_page,
            "/health/ready": self._ready_page,
            "/health/queue": self._health_page,
        }
        page = pages.get(request.path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        if request.method not in _METHODS:
            return Response(status=HTTPStatus.METHOD_NOT_ALLOWED, body=b"GET only\n", allow="GET, HEAD")
        return await page(request)

    async def _metrics_page(self, request: Request) -> Response:
        wanted = exposition.wants_open_metrics(request.headers.get("accept", ""))
        text = await self._metrics(wanted)
        kind = exposition.OPEN_METRICS_TYPE if wanted else exposition.PLAIN_TYPE
        return Response(status=HTTPStatus.OK, body=text.encode(), content_type=kind)

    async def _live_page(self, _request: Request) -> Response:
        """Say that this process answers: what does not is to be started again."""
        return Response(status=HTTPStatus.OK, body=b'{"status":"live"}', content_type=_JSON)

    async def _ready_page(self, request: Request) -> Response:
        if self._ready is None:  # nothing but answering is asked of this process
            return await self._live_page(request)
        found = await self._ready()
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status=status, body=msgspec.json.encode(found), content_type=_JSON)

    async def _health_page(self, _request: Request) -> Response:
        found = await self._health()
        status = HTTPStatus.OK if found.healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status=status, body=msgspec.json.encode(found), content_type=_JSON)


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadHead(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None


def parse_head(head: bytes) -> Request:
    """Return the request that `head` (up to and with the empty line) describes."""
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    words = first.split(" ")
    if len(words) != _WORDS_OF_A_REQUEST_LINE or not words[2].startswith("HTTP/1."):
        raise BadHead(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines:
        name, found, value = line.partition(":")
        key = name.lower()
        # Two lengths are how a body is passed off as the next request.
        if not found or not name or name != name.strip() or (key == "content-length" and key in headers):
            raise BadHead(HTTPStatus.BAD_REQUEST)
        headers[key] = value.strip()
    return Request(method=words[0], path=words[1].partition("?")[0], version=words[2], headers=headers)


def _plain(status: HTTPStatus) -> Response:
    return Response(status=status, body=f"{status.phrase}\n".encode())
