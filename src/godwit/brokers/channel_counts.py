"""How often a broker opened and closed channels (or connections) to its server, for the metrics."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Counts(Protocol):
    """What a broker with a server has as `connection_counts`; the metrics show it."""

    @property
    def channel_opens(self) -> int:
        """How many were opened so far."""
        ...

    @property
    def channel_closes(self) -> int:
        """How many of them have ended."""
        ...


class ChannelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a broker whose connections have no channels."""

    channel_opens: int = 0
    channel_closes: int = 0


def channels_of(broker: object) -> Counts | None:
    """Return a broker's counts; an embedded one opens nothing and has none."""
    counts: Counts | None = getattr(broker, "connection_counts", None)
    return counts
