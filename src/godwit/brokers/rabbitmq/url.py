"""Where a RabbitMQ server is and how to behave there, read from a URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from godwit.core.durations import FORMS, NotADuration, parse_duration
from godwit.core.errors import InvalidSetting, UnknownOption
from godwit.core.urls import split_url

DEFAULT_PORT: Final = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_SECONDS: Final = 60
MANAGEMENT_PORT: Final = 15_672
MAX_LENGTH: Final = 100_000
MESSAGE_TTL_SECONDS: Final = 24 * 3600
_OPTIONS: Final = (
    "heartbeat", "connect_timeout", "publish_timeout", "blocked", "ledger", "namespace", "cafile", "prefetch",
    "max_length", "message_ttl", "management",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Address:
    """The server or the nodes of a cluster, with a virtual host and a user."""

    hosts: tuple[tuple[str, int], ...]
    """Tried in this order, and in turn after a connection was lost."""
    user: str = "guest"
    password: str = "guest"  # noqa: S105 (RabbitMQ's own default, which it takes from the same machine only)
    vhost: str = "/"
    secure: bool = False
    cafile: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS
    connect_seconds: float = 10
    publish_seconds: float = 30
    """How long a publish waits for a lost connection, a confirm or a blocking alarm."""
    wait_when_blocked: bool = True
    namespace: str = ""
    ledger: Path = Path("godwit-rabbitmq.db")
    prefetch: int | None = None
    max_length: int = MAX_LENGTH
    """What the server lets wait in a group's queue before it refuses publishes."""
    message_ttl_seconds: float = MESSAGE_TTL_SECONDS
    """After so long in a group's queue the server gives a message up as expired."""
    management: int = MANAGEMENT_PORT
    """Where the management interface listens; only the doctor asks it."""
    name: str = "godwit"

    @classmethod
    def from_url(cls, url: str) -> Address:
        """Return what `amqp://user:password@host:port/vhost?option=value` says."""
        scheme, place, path, query, _ = split_url(url)
        login, _, places = place.rpartition("@")
        hosts = _hosts(places, DEFAULT_PORT.get(scheme, 0))
        if scheme not in DEFAULT_PORT or not hosts:
            raise InvalidSetting("url", _shown(url), "amqp://user:password@host:port,host:port/vhost, or amqps://")
        options = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := [name for name in options if name not in _OPTIONS]:
            raise UnknownOption(_shown(url), unknown[0], _OPTIONS)
        # An empty path is the default virtual host; "/" alone is a common spelling of it.
        vhost = unquote(path[1:]) or "/"
        return cls(
            hosts=hosts,
            user=unquote(login.partition(":")[0]) or "guest",
            password=unquote(login.partition(":")[2]) or "guest",
            vhost=vhost,
            secure=scheme == "amqps",
            cafile=options.get("cafile"),
            heartbeat=int(_seconds(options, "heartbeat", HEARTBEAT_SECONDS)),
            connect_seconds=_seconds(options, "connect_timeout", 10),
            publish_seconds=_seconds(options, "publish_timeout", 30),
            wait_when_blocked=_choice(options, "blocked", ("wait", "fail")) == "wait",
            namespace=options.get("namespace", ""),
            ledger=Path(options.get("ledger", "godwit-rabbitmq.db")),
            prefetch=_whole(options, "prefetch", 0) or None,
            max_length=_whole(options, "max_length", MAX_LENGTH),
            management=_whole(options, "management", MANAGEMENT_PORT),
            message_ttl_seconds=_seconds(options, "message_ttl", MESSAGE_TTL_SECONDS),
        )

    @property
    def shown(self) -> str:
        """The URL without its password."""
        scheme = "amqps" if self.secure else "amqp"
        vhost = "" if self.vhost == "/" else self.vhost
        places = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{scheme}://{self.user}@{places}/{vhost}"

    def tls(self) -> ssl.SSLContext | None:
        """Return how to encrypt, or None for a plain connection."""
        return ssl.create_default_context(cafile=self.cafile) if self.secure else None


def _hosts(places: str, port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for place in places.split(",") if places else ():
        parts = urlsplit(f"//{place}")
        try:
            number = parts.port
        except ValueError:
            return ()
        if not parts.hostname:
            return ()
        found.append((parts.hostname, number or port))
    return tuple(found)


def _shown(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at else url


def _whole(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise InvalidSetting(f"url option {name}", text, "a whole number, 0 or more")
    return int(text)


def _seconds(options: dict[str, str], name: str, default: float) -> float:
    text = options.get(name, str(default))
    try:
        return parse_duration(text, bare="s").total_seconds()
    except NotADuration:
        allowed = f"seconds as a number, 0 or more, or text such as {FORMS}"
        raise InvalidSetting(f"url option {name}", text, allowed) from None


def _choice(options: dict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise InvalidSetting(f"url option {name}", value, " or ".join(allowed))
    return value
