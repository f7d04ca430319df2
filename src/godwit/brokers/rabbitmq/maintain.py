"""What time does to the leases of this process: forgiven after an outage, taken back when they ran out."""

from __future__ import annotations

from godwit.brokers.contract import Place
from godwit.brokers.rabbitmq.leases import HeldLease, LeaseTable
from godwit.brokers.rabbitmq.ledger import settle
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.settle import Burial, Return
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.brokers.rabbitmq.resend import Resender
from godwit.core.clock import Clock, milliseconds
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.vocabulary import Event
from godwit.core.queues import GroupSpec


class LeaseReaper:
    """Prolongs and takes back the leases held by this process."""

    def __init__(self, lease_table: LeaseTable, ledger: LedgerFile, resender: Resender, clock: Clock) -> None:
        self._lease_table, self._ledger, self._resender, self._clock = lease_table, ledger, resender, clock
        self._looked_ms: dict[Place, int] = {}

    def begin(self, place: Place) -> None:
        """Note that a worker begins to hold leases at a place."""
        self._looked_ms.setdefault(place, self._clock.now_ms())

    async def maintain(self, place: Place) -> int:
        """Take back what ran out at a place; return the number of changes."""
        now_ms = self._clock.now_ms()
        looked_ms = self._looked_ms.get(place, now_ms)
        self._looked_ms[place] = now_ms
        gap_ms = now_ms - looked_ms
        next_due_ms, shortest_ms = self._lease_table.outlook(place, now_ms)
        if next_due_ms is None or (next_due_ms > now_ms and shortest_ms >= gap_ms):
            return 0
        spec = await self._ledger.step(lambda tx: _spec(tx, place))
        if spec is None:
            return 0
        changes = 0
        if spec.forgive_outages and (moved := self._lease_table.forgive(place, gap_ms, now_ms)):
            await self._ledger.step(lambda tx: settle.extended(tx, moved, Event.LEASE_MOVED))
            changes += len(moved)
        due = self._lease_table.due(place, now_ms)
        if due:
            await self._take_back(due, spec, now_ms)
        return changes + len(due)

    async def _take_back(self, due: list[HeldLease], spec: GroupSpec, now_ms: int) -> None:
        returns: list[tuple[HeldLease, Return]] = []
        burials: list[tuple[HeldLease, Burial]] = []
        for held in due:
            lease = held.lease
            lease.crashes += 1
            tries = lease.failures + lease.crashes
            poison = spec.max_crashes is not None and lease.crashes >= spec.max_crashes
            worn_out = spec.max_delivery_attempts is not None and tries >= spec.max_delivery_attempts
            if poison or worn_out:
                burials.append((held, Burial(lease, FailureKind.POISON if poison else FailureKind.TRANSIENT)))
            else:
                delay_ms = milliseconds(spec.backoff.delay(attempt=tries)) if spec.backoff else 0
                returns.append((held, Return(lease, Event.LEASE_EXPIRED, now_ms + delay_ms)))
        await self._resender.carry_out(returns, burials, now_ms)


def _spec(tx: LedgerTransaction, place: Place) -> GroupSpec | None:
    book = tx.find(place[0])
    group = book.groups.get(place[1]) if book is not None else None
    return group.spec if group is not None else None
