"""How often a broker opened and closed connections (or channels) to its server, for whoever counts them."""

from __future__ import annotations


class Channels:
    """Two counters; a broker with a server has them as `channels` and the metrics show them."""

    __slots__ = ("closed", "opened")

    def __init__(self) -> None:
        self.opened = self.closed = 0


def channels_of(broker: object) -> Channels:
    """Return a broker's counters; an embedded one opens nothing."""
    found = getattr(broker, "channels", None)
    return found if isinstance(found, Channels) else Channels()
