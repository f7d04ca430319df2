"""The queues of one broker: declared, changed, emptied and removed, on the server and in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from godwit.brokers.contract import Place
from godwit.brokers.rabbitmq.amqp.reconnect import ReconnectingConnection
from godwit.brokers.rabbitmq.layout.declarations import Declarer
from godwit.brokers.rabbitmq.layout.topology import Names
from godwit.brokers.rabbitmq.leases import LeaseTable
from godwit.brokers.rabbitmq.ledger import declare as book_of_queues
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.brokers.rabbitmq.ledger.transaction import LedgerTransaction
from godwit.core.errors import InvalidSetting
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec


class Queues:
    """Declares and removes for one broker."""

    def __init__(
        self,
        link: ReconnectingConnection,
        ledger: LedgerFile,
        names: Names,
        lease_table: LeaseTable,
        declarer: Declarer,
        *,
        changed: Callable[[Sequence[Place] | None], None],
    ) -> None:
        self._link, self._ledger, self._names, self._lease_table = link, ledger, names, lease_table
        self._declarer = declarer
        self._changed = changed
        """Told which places are other than they were; None: any of them."""

    async def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec] = ()) -> None:
        """Create a queue and groups, or change their settings; without groups it gets the group `default`."""
        wanted = await self._ledger.step(lambda tx: book_of_queues.wanted(tx, queue, groups))
        names = [group.name for group in wanted]
        self._check_names(queue.name, names)
        first, _ = self._declarer.known.get(queue.name, (await self._declared_first(queue), set()))
        await self._declarer.declare(await self._link.connection(), first, names)
        self._declarer.note(first, names)
        self._changed(None)
        await self._ledger.step(lambda tx: book_of_queues.declare(tx, queue, wanted))

    def _check_names(self, queue: QueueName, groups: list[GroupName]) -> None:
        """Refuse a second group for a queue whose one quorum queue has a given name."""
        given = self._names.of(queue).queue
        known = self._declarer.known.get(queue, (None, set()))[1] | set(groups)
        if given is not None and len(known) > 1:
            raise InvalidSetting("groups", sorted(known), f"one, since the queue {given!r} was named for it")

    async def _declared_first(self, queue: QueueSpec) -> QueueSpec:
        """Return the settings the server's queues were made with: those of the queue's first declaration."""
        return await self._ledger.step(lambda tx: book_of_queues.first_spec(tx, queue))

    async def declare_again(self, queue: QueueName) -> None:
        """Declare a known queue on the server, where an administrator may have removed parts of it."""

        def groups(tx: LedgerTransaction) -> tuple[QueueSpec, list[GroupName]]:
            book = tx.queue(queue)
            return book_of_queues.first_spec(tx, book.spec), list(book.groups)

        spec, names = await self._ledger.step(groups)
        await self._declarer.declare(await self._link.connection(), spec, names)

    async def remove(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue, or one group, with all it holds."""
        gone = await self._ledger.step(lambda tx: book_of_queues.remove(tx, queue, group, actor=actor))
        self._lease_table.drop(lambda lease: lease.queue == queue and lease.group in gone)
        self._changed([(queue, name) for name in gone])
        await self._declarer.remove(self._link, queue, gone, whole=group is None)

    async def purge(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete everything that waits (not what is leased or dead); return how many copies."""
        purged, groups = await self._ledger.step(lambda tx: book_of_queues.purge(tx, queue, group, actor=actor))
        await self._declarer.purge(self._link, queue, groups)
        return purged

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed."""
        await self._ledger.step(lambda tx: book_of_queues.note_hold(tx, event, queue, group, hold=hold, actor=actor))

    async def cancel(self, queue: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits; copies that are leased or dead stay. Say whether there was one."""
        return await self._ledger.step(lambda tx: book_of_queues.cancel(tx, queue, message_id, actor=actor))
