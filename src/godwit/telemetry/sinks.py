"""Where alerts go: the log, a webhook, a Python callable. One that fails or hangs does not stop the others."""

from __future__ import annotations

import asyncio
import inspect
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import msgspec

from godwit.core.background import is_cancelled
from godwit.core.errors import GodwitError, InvalidSetting
from godwit.core.logs import get_logger
from godwit.core.settings import MonitoringSettings
from godwit.telemetry.alerts import Alert
from godwit.telemetry.health import described

SINK_TIMEOUT: Final = timedelta(seconds=30)
WEBHOOK_TIMEOUT: Final = timedelta(seconds=5)
WEBHOOK_ATTEMPTS: Final = 3
WEBHOOK_PAUSE: Final = timedelta(seconds=1)

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TOO_MANY, _SERVER_ERRORS, _OK, _REDIRECTS = 429, 500, 200, 300

_log = get_logger(__name__)

Sink = Callable[[Alert], Awaitable[None] | None]
"""A plain function runs in a thread, so that it cannot hold up the event loop."""


async def tell(sinks: Sequence[Sink], alerts: Iterable[Alert], *, timeout: timedelta = SINK_TIMEOUT) -> None:  # noqa: ASYNC109 - a limit per sink
    """Tell every sink every alert, the sinks side by side, each sink in order."""
    known = list(alerts)
    if known:
        await asyncio.gather(*(_tell_one(sink, known, timeout) for sink in sinks))


async def _tell_one(sink: Sink, alerts: Sequence[Alert], limit: timedelta) -> None:
    for alert in alerts:
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await _call(sink, alert)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            _log.error("alert_sink_failed", sink=_name(sink), alert=alert.name, error=described(error))


async def _call(sink: Sink, alert: Alert) -> None:
    if inspect.iscoroutinefunction(sink) or inspect.iscoroutinefunction(getattr(sink, "__call__", None)):  # noqa: B004 - the method's kind
        answer = sink(alert)
    else:
        answer = await asyncio.to_thread(sink, alert)
    if answer is not None:
        await answer


def _name(sink: Sink) -> str:
    try:
        return str(getattr(sink, "__qualname__", type(sink).__qualname__))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - the name of a broken sink must not silence the others
        return type(sink).__qualname__


def log_sink(alert: Alert) -> None:
    """Write the alert to the log."""
    write = _log.warning if alert.state == "firing" else _log.info
    write(
        "alert",
        alert=alert.name.value,
        state=alert.state,
        subject=alert.subject,
        value=alert.value,
        threshold=alert.threshold,
    )


class WebhookRefused(GodwitError):
    """The webhook's server did not take the alert."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)

    @property
    def fact(self) -> str:
        return f"The webhook answered {self.status}"

    @property
    def remedy(self) -> str:
        return "Check its address and what it expects."


class WebhookSink:
    """POSTs an alert as JSON. Tries again on silence, 429 and 5xx; follows no redirects."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = WEBHOOK_TIMEOUT,
        attempts: int = WEBHOOK_ATTEMPTS,
        pause: timedelta = WEBHOOK_PAUSE,
    ) -> None:
        self._timeout, self._attempts, self._pause = timeout, max(1, attempts), pause
        self._host, self._port, self._tls, target, host_header = _address(url)
        lines = [f"POST {target} HTTP/1.1", f"Host: {host_header}", "Content-Type: application/json"]
        lines += ["User-Agent: godwit", "Connection: close", *map(_header, (headers or {}).items())]
        self._head = "\r\n".join(lines).encode("latin-1")

    async def __call__(self, alert: Alert) -> None:
        """Deliver one alert; raises when no attempt succeeded."""
        body = msgspec.json.encode(alert)
        request = b"%b\r\nContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)
        for attempt in range(1, self._attempts + 1):
            try:
                async with asyncio.timeout(self._timeout.total_seconds()):
                    status = await self._post(request)
            except (OSError, TimeoutError, EOFError):
                if attempt == self._attempts:
                    raise
            else:
                if _OK <= status < _REDIRECTS:
                    return
                if attempt == self._attempts or (status != _TOO_MANY and status < _SERVER_ERRORS):
                    raise WebhookRefused(status)
            await asyncio.sleep(self._pause.total_seconds() * 2 ** (attempt - 1))

    async def _post(self, request: bytes) -> int:
        context = ssl.create_default_context() if self._tls else None
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        try:
            writer.write(request)
            await writer.drain()
            try:
                line = await reader.readline()
            except ValueError:  # a line beyond the reader's limit
                line = b""
            status = _STATUS_LINE.match(line)
            if status is None:
                raise EOFError("the webhook's answer is not HTTP")
            return int(status[1])
        finally:
            writer.close()


def _address(url: str) -> tuple[str, int, bool, str, str]:
    allowed = "http:// or https:// with a host, without a password (put credentials into headers)"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidSetting("webhook", "(not a URL)", allowed) from None
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or not plain:
        raise InvalidSetting("webhook", f"{parts.scheme}://...", allowed)  # the rest may hold a secret
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.hostname, port or (443 if tls else 80), tls, target, parts.netloc


def _header(item: tuple[str, str]) -> str:
    name, value = item
    if _HEADER_NAME.fullmatch(name) is None or not (value.isascii() and value.isprintable()):
        raise InvalidSetting("webhook header", name, "a token as name and printable ASCII as value")
    return f"{name}: {value}"


def sinks_of(settings: MonitoringSettings) -> tuple[Sink, ...]:
    """Return the sinks that a configuration names; the log is always one."""
    sinks: list[Sink] = [log_sink]
    if settings.alert_webhook is not None:
        sinks.append(WebhookSink(settings.alert_webhook))
    return tuple(sinks)
