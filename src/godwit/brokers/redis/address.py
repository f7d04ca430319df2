"""Where a Redis server is and how to get in: what a URL says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from godwit.core.errors import InvalidSetting, UnknownScheme

DEFAULT_PORT: Final = 6379
SCHEMES: Final = ("redis", "rediss")
_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs"})
_FORM: Final = "redis://[[user]:password@]host[:port][/database], rediss:// for TLS"


@dataclass(frozen=True, slots=True)
class Address:
    """One server. `shown` is its URL without the password."""

    host: str
    port: int
    database: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    @property
    def shown(self) -> str:
        """The URL as it may be logged."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"

    @classmethod
    def from_url(cls, url: str) -> Address:
        """Read a URL; what it cannot mean is refused."""
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES:
            raise UnknownScheme(parts.scheme, SCHEMES)
        shown = url if parts.password is None else url.replace(parts.password, "***")
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError:
            raise InvalidSetting("url", shown, _FORM) from None
        database = parts.path.strip("/")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if (database and not database.isdecimal()) or parts.fragment or set(options) - _OPTIONS:
            raise InvalidSetting("url", shown, _FORM)
        if options and parts.scheme != "rediss":
            raise InvalidSetting("url", shown, "ssl_ options only with rediss://")
        return cls(
            parts.hostname or "localhost",
            port,
            int(database or 0),
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
            _context(options, shown) if parts.scheme == "rediss" else None,
        )


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
