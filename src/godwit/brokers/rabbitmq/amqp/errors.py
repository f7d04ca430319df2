"""What a server or a network can do to a connection, before it is translated for callers."""

from __future__ import annotations


class ConnectionLost(Exception):
    """The connection, or a channel of it, is gone; whether the last calls were carried out is not known."""


class ServerRefused(Exception):
    """The server closed a channel or the connection, with a reply code and a sentence."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(code, text)

    def __str__(self) -> str:
        """Return both."""
        return f"{self.code} {self.text}"
