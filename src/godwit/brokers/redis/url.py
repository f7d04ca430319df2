"""Where Redis servers are and how to get in: what a URL says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from godwit.core.errors import InvalidSetting, UnknownOption, UnknownScheme
from godwit.core.urls import split_url

DEFAULT_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
_TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs"})
_ONE: Final = "redis://[[user]:password@]host[:port][/database], rediss:// for TLS"
_CLUSTER: Final = "redis+cluster://[[user]:password@]host[:port][,host[:port]...], rediss+cluster:// for TLS"
_SENTINEL: Final = (
    "redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[/database], rediss+sentinel:// for TLS"
)


class Role(StrEnum):
    """What a server is expected to be."""

    SINGLE = "single"
    NODE = "node of a cluster"
    SENTINEL = "sentinel"
    MASTER = "master named by sentinels"


class TopologyKind(StrEnum):
    """How the servers of a broker belong together."""

    SINGLE = "single"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


_KINDS: Final = {
    "redis": TopologyKind.SINGLE,
    "rediss": TopologyKind.SINGLE,
    "redis+cluster": TopologyKind.CLUSTER,
    "rediss+cluster": TopologyKind.CLUSTER,
    "redis+sentinel": TopologyKind.SENTINEL,
    "rediss+sentinel": TopologyKind.SENTINEL,
}
SCHEMES: Final = tuple(_KINDS)
_FORMS: Final = {TopologyKind.SINGLE: _ONE, TopologyKind.CLUSTER: _CLUSTER, TopologyKind.SENTINEL: _SENTINEL}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server. `shown` is its URL without the password."""

    host: str
    port: int
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    role: Role = Role.SINGLE

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL as it may be logged."""
        return f"{'rediss' if self.tls else 'redis'}://{self.place}/{self.database}"

    def at(self, host: str, port: int) -> ServerAddress:
        """Return a server elsewhere that is entered the same way."""
        return replace(self, host=host, port=port)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """What a URL names: one server, some nodes of a cluster, or sentinels who know a master."""

    kind: TopologyKind
    seeds: tuple[ServerAddress, ...]
    """Whom to ask first: the server itself, nodes, or sentinels."""
    data: ServerAddress
    """How servers with data are entered; host and port are those of the first seed."""
    master: str = ""
    """The name under which sentinels know the master."""
    on_disk: bool = True
    """Whether `min_replicas` waits for the replicas' disks where the server can say so."""

    @property
    def shown(self) -> str:
        """The URL as it may be logged."""
        if self.kind is TopologyKind.SINGLE:
            return self.data.shown
        scheme = f"{'rediss' if self.data.tls else 'redis'}+{self.kind}"
        path = f"/{self.master}/{self.data.database}" if self.master else ""
        return f"{scheme}://{','.join(seed.place for seed in self.seeds)}{path}"

    @classmethod
    def from_url(cls, url: str) -> RedisUrl:
        """Read a URL; what it cannot mean is refused."""
        parts = split_url(url)
        kind = _KINDS.get(parts.scheme)
        if kind is None:
            raise UnknownScheme(parts.scheme, SCHEMES)
        account, _, hosts = parts.netloc.rpartition("@")
        user, _, password = account.partition(":")
        shown = url.replace(password, "***") if password else url
        options = _options(parts, kind, shown)
        master, database = _path(parts.path, kind, shown)
        tls = _context(options, shown) if parts.scheme.startswith("rediss") else None
        role = {TopologyKind.SINGLE: Role.SINGLE, TopologyKind.CLUSTER: Role.NODE, TopologyKind.SENTINEL: Role.MASTER}[
            kind
        ]
        default_port = SENTINEL_PORT if kind is TopologyKind.SENTINEL else DEFAULT_PORT
        places = _places(hosts, kind, default_port, shown)
        data = ServerAddress(*places[0], database, unquote(user) or None, unquote(password) or None, tls, role)
        seed = data
        if kind is TopologyKind.SENTINEL:
            secret = options.get("sentinel_password")
            seed = ServerAddress(*places[0], 0, options.get("sentinel_username"), secret, tls, Role.SENTINEL)
        seeds = tuple(seed.at(*place) for place in places)
        return cls(kind, seeds, data, master, options.get("replicas", "disk") == "disk")


def _options(parts: SplitResult, kind: TopologyKind, shown: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    known = _TLS_OPTIONS | {"replicas"}
    if kind is TopologyKind.SENTINEL:
        known |= {"sentinel_username", "sentinel_password"}
    if parts.fragment:
        raise InvalidSetting("url", shown, _FORMS[kind])
    if unknown := sorted(set(options) - known):
        raise UnknownOption(shown, unknown[0], tuple(sorted(known)))
    if options.keys() & _TLS_OPTIONS and not parts.scheme.startswith("rediss"):
        raise InvalidSetting("url", shown, "ssl_ options only with rediss://")
    if options.get("replicas", "disk") not in {"disk", "memory"}:
        raise InvalidSetting("url", shown, "replicas=disk or replicas=memory")
    return options


def _path(path: str, kind: TopologyKind, shown: str) -> tuple[str, int]:
    """Return the master's name and the number of the database."""
    names = [unquote(name) for name in path.strip("/").split("/") if name]
    master = names.pop(0) if kind is TopologyKind.SENTINEL and names else ""
    database = names.pop(0) if names else "0"
    wrong = names or not database.isdecimal() or (kind is TopologyKind.SENTINEL and not master)
    if wrong:
        raise InvalidSetting("url", shown, _FORMS[kind])
    if kind is TopologyKind.CLUSTER and int(database):
        raise InvalidSetting("url", shown, "no database, or 0: a cluster has only that one")
    return master, int(database)


def _places(hosts: str, kind: TopologyKind, default_port: int, shown: str) -> list[tuple[str, int]]:
    places = []
    for host in hosts.split(","):
        try:
            one = urlsplit(f"//{host}")
            place = (one.hostname or "localhost", one.port or default_port)
        except ValueError:
            raise InvalidSetting("url", shown, _FORMS[kind]) from None
        if not host and "," in hosts:
            raise InvalidSetting("url", shown, _FORMS[kind])
        places.append(place)
    if kind is TopologyKind.SINGLE and len(places) > 1:
        raise InvalidSetting("url", shown, f"{_ONE}; several servers only as {_CLUSTER} or {_SENTINEL}")
    return places


def _context(options: dict[str, str], url: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if certificate := options.get("ssl_certfile"):
            context.load_cert_chain(certificate, options.get("ssl_keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting("url", url, f"certificates that can be read ({error})") from None
    if options.get("ssl_cert_reqs", "required") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
