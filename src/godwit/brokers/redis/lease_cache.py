"""The leases this process got: what it can say of them without asking the server again."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from godwit.brokers.redis.layout.codec import StoredCopy
from godwit.core.names import AckId

MOST: Final = 100_000
"""Leases remembered; those never settled are forgotten, oldest first. A settlement then asks the server."""


class CachedLease(NamedTuple):
    """A lease: `ordered` says that the group keeps the order of keys."""

    copy: StoredCopy
    member: str
    worker: str
    ordered: bool


class LeaseCache(dict[AckId, CachedLease]):
    """Leases by ack id."""

    def bound(self) -> None:
        """Forget the oldest when there are too many."""
        if len(self) > MOST:
            for ack_id in list(islice(self, len(self) - MOST // 2)):
                del self[ack_id]
