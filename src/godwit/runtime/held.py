"""What a worker holds: deliveries whose handlers run, until they are settled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from godwit.brokers.contract import Ack, Delivery, GiveUp, HandBack, Nack, Settlement
from godwit.core.errors import MessageNotHeld
from godwit.core.handling import Judgement, Permanent, Retry
from godwit.core.names import AckId, MessageId


class Held:
    """One delivery in a worker's hands; it is settled exactly once."""

    __slots__ = ("_judge", "_settle", "delivery", "lease", "message_id", "renew_until", "settled", "started")

    def __init__(
        self,
        delivery: Delivery,
        *,
        lease: timedelta,
        started: float,
        renew_until: float,
        settle: Callable[[Settlement], None],
        judge: Callable[[BaseException, Delivery], Judgement],
    ) -> None:
        self.delivery = delivery
        self.message_id: MessageId = delivery.envelope.id
        self.lease = lease
        self.started = started
        self.renew_until = renew_until
        self.settled = False
        self._settle = settle
        self._judge = judge

    def done(self, run_ms: int, result: bytes | None) -> None:
        """Settle it as done, unless the handler did so."""
        self._once(Ack(self.delivery.ack_id, run_ms, result))

    def failed(self, error: BaseException, run_ms: int) -> Judgement:
        """Settle it as its error and the retry policy say."""
        judgement = self._judge(error, self.delivery)
        ack_id = self.delivery.ack_id
        if judgement.delay is None:
            self._once(GiveUp(ack_id, judgement.kind, judgement.error, run_ms))
        else:
            self._once(Nack(ack_id, judgement.delay, judgement.error, run_ms))
        return judgement

    def hand_back(self) -> None:
        """Let somebody else do it; this counts as no attempt."""
        self._once(HandBack(self.delivery.ack_id))

    async def acknowledge(self) -> None:
        """Settle it as done, from inside its handler."""
        self._by_hand()
        self._once(Ack(self.delivery.ack_id))

    async def reject(self, reason: str, *, requeue: bool) -> None:
        """Settle it as failed, from inside its handler."""
        self._by_hand()
        self.failed(Retry(reason) if requeue else Permanent(reason), 0)

    def _by_hand(self) -> None:
        if self.settled:
            raise MessageNotHeld(self.message_id)

    def _once(self, settlement: Settlement) -> None:
        if not self.settled:
            self.settled = True
            self._settle(settlement)


class HeldTable:
    """Everything a worker holds, by ack id; the renewing thread reads it too."""

    def __init__(self) -> None:
        self._held: dict[AckId, Held] = {}

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def add(self, held: Held) -> None:
        """Begin to hold."""
        self._held[held.delivery.ack_id] = held

    def drop(self, ack_id: AckId) -> Held:
        """Stop holding."""
        return self._held.pop(ack_id)

    def to_renew(self, now: float) -> dict[timedelta, list[AckId]]:
        """Return the ack ids whose handlers are still within their time, by length of lease."""
        wanted: dict[timedelta, list[AckId]] = {}
        for ack_id, held in list(self._held.items()):  # a copy in one step: the loop's thread goes on changing it
            if now < held.renew_until:
                wanted.setdefault(held.lease, []).append(ack_id)
        return wanted
