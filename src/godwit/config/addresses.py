"""Addresses of brokers and stores: which are allowed, and how they are shown without passwords."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from godwit.config.values import HIDDEN, Unreadable
from godwit.core.urls import split_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """The address of a server or file; `bare` is the scheme that an address without one gets."""

    schemes: tuple[str, ...] = ()
    bare: str | None = None
    whole: bool = True
    unit: str = ""

    @property
    def allowed(self) -> str:
        forms = [f"{scheme}://..." for scheme in self.schemes] or ["a URL such as sqlite:///godwit.db"]
        forms += ["host:port"] if self.bare else []
        return ", ".join(forms) + " (with / @ : in a password written %2F %40 %3A)"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip() or any(letter.isspace() for letter in raw.strip()):
            raise Unreadable
        url = raw.strip()
        if self.bare and "://" not in url:
            url = f"{self.bare}://{url}"
        try:
            parts = split_url(url)
            for host in parts.netloc.rpartition("@")[2].split(","):  # several: nodes of a cluster, sentinels
                _ = urlsplit(f"//{host}").port
        except ValueError:
            raise Unreadable from None
        if "://" not in url or not parts.scheme or (self.schemes and parts.scheme not in self.schemes):
            raise Unreadable
        if self.schemes and not parts.hostname:
            raise Unreadable
        return url

    def parse(self, text: str) -> str:
        return self.read(text)

    def show(self, value: str) -> str:
        return without_password(value) if self.whole else f"{value.partition('://')[0]}://{HIDDEN}"


def without_password(url: str) -> str:
    """Return a URL as it may be shown; also one whose password was not escaped as it should be."""
    scheme, separator, rest = url.partition("://")
    account, at, place = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    if colon:
        account = f"{user}:{HIDDEN}"
    place = re.sub(r"(?i)(pass\w*|secret|token|key)=[^&#]*", rf"\1={HIDDEN}", place)
    return f"{scheme}{separator}{account}{at}{place}"
