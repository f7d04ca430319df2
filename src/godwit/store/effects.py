"""The ports for effects: a ledger of those that happened, and an outbox of messages that leave with a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from godwit.core.messages.envelope import Envelope


class EffectOutcome(StrEnum):
    """What a claim came to."""

    WON = "won"
    DONE = "done"
    HELD = "held"


class EffectClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's answer: won, done before (with what came of it), or held by another caller for so long."""

    outcome: EffectOutcome
    result: bytes | None = None
    held_for: timedelta = timedelta(0)


class Ledger(Protocol):
    """Keys of effects: each is claimed by one holder at a time and, once done, remembered for a time.

    A claim whose holder fell silent is free after `hold`; the same holder gets its own claim again at once.
    """

    async def claim(self, key: str, *, holder: str, hold: timedelta, ttl: timedelta) -> EffectClaim:
        """Claim a key for `hold`; a done one is remembered for `ttl`."""
        ...

    async def finish(self, key: str, *, holder: str, ttl: timedelta, result: bytes | None = None) -> bool:
        """Say that the effect happened; False when the claim was lost meanwhile."""
        ...

    async def keep(self, key: str, *, holder: str, to: str, hold: timedelta, ttl: timedelta) -> bool:
        """Hold a claim of `holder` for another `hold`, in the name of `to`; False when it was lost meanwhile."""
        ...

    async def release(self, key: str, *, holder: str) -> None:
        """Give a claim back: the effect did not happen."""
        ...

    async def finish_within(self, connection: Any, key: str, *, holder: str, ttl: timedelta) -> EffectClaim:
        """Claim and finish in the application's own transaction: both happen with its effect, or neither."""
        ...

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Forget what is remembered no longer; return how many keys."""
        ...


class Waiting(msgspec.Struct, frozen=True):
    """A message in the outbox; `tried_before`: a forwarder may have published it then."""

    number: int
    envelope: Envelope
    tries: int
    tried_before: datetime | None


class OutboxBacklog(msgspec.Struct, frozen=True):
    """How many messages wait in the outbox, and since when the oldest does."""

    waiting: int
    oldest: datetime | None


class Outbox(Protocol):
    """Messages written in transactions of applications, on their way to the broker."""

    async def put(self, connection: Any, envelopes: Sequence[Envelope]) -> None:
        """Add messages in the application's own transaction."""
        ...

    async def claim(self, *, hold: timedelta, limit: int) -> list[Waiting]:
        """Take due messages in their order; no other forwarder takes them for `hold`.

        A message waits while an earlier one of its ordering key is not due: one refused, or being published.
        """
        ...

    async def forwarded(self, numbers: Sequence[int]) -> None:
        """Forget messages that are at the broker."""
        ...

    async def postpone(self, number: int, *, delay: timedelta, error: str) -> None:
        """Try a message again later: the broker did not take it."""
        ...

    async def backlog(self) -> OutboxBacklog:
        """Say what waits."""
        ...


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def packed_envelope(envelope: Envelope) -> bytes:
    """Return an envelope as the outbox keeps it."""
    return _encoder.encode(envelope)


def unpacked_envelope(data: bytes) -> Envelope:
    """Return an envelope from the outbox."""
    return _decoder.decode(data)
