"""Pulling: take what came in, let the ledger judge each message, and send on what is not to be delivered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from godwit.brokers.arguments import MAX_PULL
from godwit.brokers.contract import Delivery, Place
from godwit.brokers.rabbitmq.caring import Carer
from godwit.brokers.rabbitmq.channel import Channel
from godwit.brokers.rabbitmq.hands import Hands, Held
from godwit.brokers.rabbitmq.intake import Intake
from godwit.brokers.rabbitmq.ledger.books import Books
from godwit.brokers.rabbitmq.ledger.ending import Burial, Return
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.taking import Lease, Taken, Taker
from godwit.brokers.rabbitmq.parcels import Parcel, unpack
from godwit.brokers.rabbitmq.returning import Returner
from godwit.brokers.rabbitmq.wire import Incoming
from godwit.core.clock import Clock
from godwit.core.journal.vocabulary import Event
from godwit.core.queues import FlowControl


class Puller:
    """Pulls for one broker."""

    def __init__(
        self,
        hands: Hands,
        ledger: LedgerFile,
        returner: Returner,
        carer: Carer,
        clock: Clock,
        *,
        tokens: Iterator[str],
        body: bool,
    ) -> None:
        self.known: dict[Place, FlowControl] = {}
        """Places that were there when last asked for, and how much of them may be leased."""
        self._hands, self._ledger, self._returner, self._carer = hands, ledger, returner, carer
        self._clock, self._tokens, self._body = clock, tokens, body

    async def check(self, place: Place) -> None:
        """Refuse a place that does not exist."""
        if place not in self.known:

            def step(books: Books) -> FlowControl:
                return books.queue(place[0]).group(place[1]).spec.flow_control

            self.known[place] = await self._ledger.step(step)

    def forget(self, places: Sequence[Place] | None) -> None:
        """Ask the ledger again about these places; None: about all."""
        for place in list(self.known) if places is None else places:
            self.known.pop(place, None)

    async def pull(
        self, intake: Intake, *, worker: str, limit: int, length_ms: int, max_bytes: int | None
    ) -> list[Delivery]:
        """Look after the place, then lease what is there now."""
        await self._carer.look_after(intake.place)
        deliveries: list[Delivery] = []
        async with intake.lock:
            limit = min(limit, await self._room(intake.place))
            while len(deliveries) < limit:
                fetched = await intake.fetch(limit - len(deliveries))
                if not fetched:
                    break
                came, more = await self._judge(intake, fetched, worker, limit - len(deliveries), length_ms, max_bytes)
                deliveries += came
                if not more or max_bytes is not None:
                    break
        return deliveries

    async def _room(self, place: Place) -> int:
        """Return how many may be leased before flow control says no; the ledger has the last word."""
        flow = self.known.get(place, FlowControl())
        if flow.max_messages is None:
            return MAX_PULL

        def step(books: Books) -> int:
            return int(books.queue(place[0]).group(place[1]).leased)

        return max(flow.max_messages - await self._ledger.step(step), 0)

    async def _judge(
        self,
        intake: Intake,
        fetched: list[tuple[Channel, Incoming]],
        worker: str,
        limit: int,
        length_ms: int,
        max_bytes: int | None,
    ) -> tuple[list[Delivery], bool]:
        """Return what may be delivered, and whether it is worth fetching more in place of what may not."""
        queue, group = intake.place
        now_ms = self._clock.now_ms()
        channels: dict[int, tuple[Channel, Incoming]] = {}
        parcels: list[Parcel] = []
        for channel, incoming in fetched:
            parcel = unpack(incoming, queue, now_ms)
            channels[id(parcel)] = (channel, incoming)
            parcels.append(parcel)

        def step(books: Books) -> Taken:
            taker = Taker(
                books,
                queue,
                group,
                worker=worker,
                lease_ms=length_ms,
                limit=limit,
                max_bytes=max_bytes,
                tokens=self._tokens,
                body=self._body,
            )
            return taker.take(parcels)

        try:
            taken = await self._ledger.step(step)
        except BaseException:
            self.known.pop(intake.place, None)
            intake.put_back(fetched)
            raise
        if taken.left:
            intake.put_back([channels[id(parcel)] for parcel in taken.left])
        for parcel in taken.dropped:
            channel, incoming = channels[id(parcel)]
            if channel.alive:
                channel.ack([incoming.tag])
        await self._send_on(intake, taken, channels)
        return self._hold(intake, taken, channels), not taken.left and len(taken.leases) < len(fetched)

    def _hold(self, intake: Intake, taken: Taken, channels: dict[int, tuple[Channel, Incoming]]) -> list[Delivery]:
        deliveries = []
        self._carer.begin(intake.place)
        for lease in taken.leases:
            channel, _ = channels[id(lease.parcel)]
            if channel is intake.channel:
                intake.held += 1
            ack_id = self._hands.add(Held(lease, channel, intake))
            deliveries.append(
                Delivery(
                    ack_id,
                    lease.queue,
                    lease.group,
                    lease.parcel.envelope,
                    lease.seq,
                    lease.attempt,
                    lease.failures,
                    lease.crashes,
                    lease.errors,
                    lease.ready_at_ms,
                    lease.leased_at_ms,
                    lease.deadline_ms,
                )
            )
        return deliveries

    async def _send_on(self, intake: Intake, taken: Taken, channels: dict[int, tuple[Channel, Incoming]]) -> None:
        """Send away what came too early, what has to wait after a silence, and what is dead."""

        def held(lease: Lease) -> Held:
            intake.held += 1  # the release that follows counts it out
            return Held(lease, channels[id(lease.parcel)][0], intake)

        returns: list[tuple[Held, Return]] = [
            (held(lease), Return(lease, None, lease.parcel.card.ready_at_ms)) for lease in taken.early
        ]
        returns += [
            (held(lease), Return(lease, Event.LEASE_EXPIRED, taken.now_ms + delay_ms))
            for lease, delay_ms in taken.silent
        ]
        burials = [(held(lease), Burial(lease, kind)) for lease, kind in taken.dead]
        await self._returner.carry_out(returns, burials, taken.now_ms)
