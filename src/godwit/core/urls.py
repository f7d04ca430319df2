"""URLs taken apart the same way on every Python."""

from __future__ import annotations

from urllib.parse import SplitResult


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL that may name several hosts.

    By hand: some Pythons refuse several hosts when one of them is an IPv6 address.
    """
    before, _, fragment = url.partition("#")
    before, _, query = before.partition("?")
    scheme, _, rest = before.partition("://")
    netloc, slash, path = rest.partition("/")
    return SplitResult(scheme.lower(), netloc, slash + path, query, fragment)
