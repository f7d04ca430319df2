"""What a worker holds: deliveries whose handlers run, until they are settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from godwit.brokers.contract import NO_WAIT, Ack, Delivery, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.core.clock import utc_now
from godwit.core.error_text import error_text
from godwit.core.errors import MessageNotHeld
from godwit.core.failures.judgement import Judgement, Permanent, Retry, unjudged
from godwit.core.logs import get_logger
from godwit.core.names import AckId, MessageId

log = get_logger(__name__)


class Terms:
    """What all deliveries of one consumer are held under."""

    __slots__ = ("judge", "lease", "renewed_for", "settle")

    def __init__(
        self,
        *,
        lease: timedelta,
        renewed_for: timedelta,
        settle: Callable[[Settlement], None],
        judge: Callable[[BaseException, Delivery], Judgement],
    ) -> None:
        self.lease = lease
        self.renewed_for = renewed_for.total_seconds()
        self.settle = settle
        self.judge = judge


class HeldDelivery(msgspec.Struct, eq=False):
    """A delivery in a worker's hands; it is settled exactly once."""

    delivery: Delivery
    terms: Terms
    started: float
    settled: bool = False

    @property
    def message_id(self) -> MessageId:
        """The id its publisher knows it by."""
        return self.delivery.envelope.id

    def done(self, run_ms: int, result: bytes | None) -> None:
        """Settle it as done, unless the handler did so."""
        self._once(Ack(self.delivery.ack_id, run_ms, result))

    def failed(self, error: BaseException, run_ms: int) -> Judgement:
        """Settle it as its error and the retry policy say."""
        try:
            judgement = self.terms.judge(error, self.delivery)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as second:  # noqa: BLE001 - however odd the error or the application's hook, it is settled
            log.warning("a failure could not be judged", message_id=self.message_id, error=error_text(second))
            judgement = unjudged(error, failures=self.delivery.failures, now=utc_now())
        ack_id = self.delivery.ack_id
        if judgement.postponed:
            # Only the first postponement is remembered, with its time: a history of refusals would push out the errors.
            why = judgement.error if self.delivery.postponements <= 0 else None
            self._once(Postpone(ack_id, judgement.delay or NO_WAIT, why, run_ms))
        elif judgement.delay is None:
            self._once(GiveUp(ack_id, judgement.kind, judgement.error, run_ms))
        else:
            self._once(Nack(ack_id, judgement.delay, judgement.error, run_ms))
        return judgement

    def postpone(self, delay: timedelta) -> None:
        """Let it come again later, without an attempt being counted and without a reason to remember."""
        self._once(Postpone(self.delivery.ack_id, delay))

    def hand_back(self) -> None:
        """Hand the message back for another worker; this counts as no attempt."""
        self._once(HandBack(self.delivery.ack_id))

    async def acknowledge(self) -> None:
        """Settle it as done, from inside its handler."""
        self._manual()
        self._once(Ack(self.delivery.ack_id))

    async def reject(self, reason: str, *, requeue: bool) -> None:
        """Settle it as failed, from inside its handler."""
        self._manual()
        self.failed(Retry(reason) if requeue else Permanent(reason), 0)

    def _manual(self) -> None:
        if self.settled:
            raise MessageNotHeld(self.message_id)

    def _once(self, settlement: Settlement) -> None:
        if not self.settled:
            self.settled = True
            self.terms.settle(settlement)


class InFlight:
    """Everything a worker holds, by ack id; the renewing thread reads it too."""

    def __init__(self) -> None:
        self._held: dict[AckId, HeldDelivery] = {}
        self.something = threading.Event()
        """Set when something is held after its reader, the renewing thread, found nothing and cleared it."""

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def take(self, deliveries: Sequence[Delivery], terms: Terms, now: float) -> list[HeldDelivery]:
        """Begin to hold what was delivered."""
        taken = [HeldDelivery(delivery, terms, now) for delivery in deliveries]
        self._held.update({held.delivery.ack_id: held for held in taken})
        if not self.something.is_set():
            self.something.set()
        return taken

    def drop(self, settlements: Sequence[Settlement]) -> list[Delivery]:
        """Stop holding what was settled; return it in the same order."""
        pop = self._held.pop
        return [pop(settlement.ack_id).delivery for settlement in settlements]

    def is_renewed(self, now: float) -> bool:
        """Say whether something is held whose handler is within its time; what hangs beyond it is given up."""
        return any(now < held.started + held.terms.renewed_for for held in self._held.values())

    def to_renew(self, now: float) -> dict[timedelta, list[AckId]]:
        """Return the ack ids whose handlers are still within their time, by length of lease."""
        wanted: dict[timedelta, list[AckId]] = {}
        for ack_id, held in list(self._held.items()):  # a copy in one step: the loop's thread goes on changing it
            if now < held.started + held.terms.renewed_for:
                wanted.setdefault(held.terms.lease, []).append(ack_id)
        return wanted
