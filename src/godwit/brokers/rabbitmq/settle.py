"""Settling: acks, retries, dead letters and hand-backs of the deliveries that this process holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.brokers.rabbitmq.leases import HeldLease, LeaseTable, ack_id_of, place_of
from godwit.brokers.rabbitmq.ledger import settle
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.pull import Lease
from godwit.brokers.rabbitmq.ledger.settle import Burial, Done, Return
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.brokers.rabbitmq.resend import Resender
from godwit.core.clock import Clock, milliseconds
from godwit.core.failures.failure import FailureKind, remembered
from godwit.core.journal.vocabulary import RETURN_KINDS, Event
from godwit.core.names import AckId


class RabbitSettler:
    """Settles for one broker."""

    def __init__(self, lease_table: LeaseTable, ledger: LedgerFile, resender: Resender, clock: Clock) -> None:
        self._lease_table, self._ledger, self._resender, self._clock = lease_table, ledger, resender, clock

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[AckId], list[HeldLease]]:
        """End leases; return the ack ids refused, and what was held until now."""
        now_ms = self._clock.now_ms()
        done: list[tuple[HeldLease, Done]] = []
        returns: list[tuple[HeldLease, Return]] = []
        burials: list[tuple[HeldLease, Burial]] = []
        refused: dict[int, AckId] = {}
        places: dict[AckId, int] = {}
        limits = await self._limits(settlements)
        for index, settlement in enumerate(settlements):
            held = self._lease_table.take(settlement.ack_id)
            if held is None:
                refused[index] = settlement.ack_id
                continue
            places[settlement.ack_id] = index
            if isinstance(settlement, Ack):
                done.append((held, Done(held.lease, settlement)))
            else:
                self._refusal(settlement, held, now_ms, limits, returns, burials)
        late = await self._acknowledge([one for _, one in done], list(refused.values()))
        for held, _ in done:
            held.release()
        late += await self._resender.carry_out(returns, burials, now_ms)
        for lease in late:
            ack_id = ack_id_of(lease)
            refused[places[ack_id]] = ack_id
        return [refused[index] for index in sorted(refused)], [held for held, _ in (*done, *returns, *burials)]

    async def _acknowledge(self, done: list[Done], refused: list[AckId]) -> list[Lease]:
        if not done and not refused:
            return []

        def step(tx: LedgerTransaction) -> list[Lease]:
            late = settle.acked(tx, done)
            settle.refused(tx, refused)
            return late

        # The ledger first: a crash before the ack brings the copy back, and it is known to be done.
        return await self._ledger.step(step)

    async def _limits(self, settlements: Sequence[Settlement]) -> dict[tuple[str, str], int | None]:
        """Return after how many deliveries the groups concerned give up."""
        places = {place for one in settlements if isinstance(one, Nack) and (place := place_of(one.ack_id))}
        if not places:
            return {}

        def step(tx: LedgerTransaction) -> dict[tuple[str, str], int | None]:
            found: dict[tuple[str, str], int | None] = {}
            for queue, group in places:
                book = tx.find(queue)
                known = book.groups.get(group) if book is not None else None
                found[queue, group] = known.spec.max_delivery_attempts if known is not None else None
            return found

        return await self._ledger.step(step)

    def _refusal(
        self,
        settlement: Nack | Postpone | GiveUp | HandBack,
        held: HeldLease,
        now_ms: int,
        limits: dict[tuple[str, str], int | None],
        returns: list[tuple[HeldLease, Return]],
        burials: list[tuple[HeldLease, Burial]],
    ) -> None:
        lease = held.lease
        match settlement:
            case HandBack():
                lease.attempt -= 1
                returns.append((held, Return(lease, Event.HANDED_BACK, now_ms)))
            case Nack() | Postpone() | GiveUp():
                error = settlement.error
                fingerprint = error.fingerprint if error is not None else None
                lease.failures += not isinstance(settlement, Postpone)
                lease.errors = remembered(lease.errors, error)
                limit = limits.get((lease.queue, lease.group))
                exhausted = limit is not None and lease.failures + lease.crashes >= limit
                if isinstance(settlement, Postpone) or (isinstance(settlement, Nack) and not exhausted):
                    event = Event.POSTPONED if isinstance(settlement, Postpone) else Event.NACKED
                    ready_at_ms = now_ms + milliseconds(settlement.delay)
                    why = RETURN_KINDS[event]
                    returns.append((held, Return(lease, event, ready_at_ms, settlement.run_ms, why, fingerprint)))
                else:
                    kind = FailureKind.TRANSIENT if isinstance(settlement, Nack) else settlement.kind
                    burials.append((held, Burial(lease, kind, settlement.run_ms, fingerprint)))
            case _:
                assert_never(settlement)
