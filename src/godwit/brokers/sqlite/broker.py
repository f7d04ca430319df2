"""The async shell over one SQLite file: a thread writes, a read-only connection reads, pulls may wait."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from godwit.brokers.arguments import check_actor, check_hold, check_pull, checked_settlements, lease_ms, no_replicas
from godwit.brokers.contract import NO_WAIT, Delivery, HandBack, Place, QueueStats, Receipt, Settlement
from godwit.brokers.listener import LoopListener
from godwit.brokers.sqlite.engine import SqliteEngine
from godwit.brokers.sqlite.layout.file import open_reader, owner_of, translated
from godwit.brokers.sqlite.layout.recount import disagreements
from godwit.brokers.sqlite.layout.runs import Runs
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.listen.listeners import SqliteListeners
from godwit.brokers.sqlite.listen.wake import WakeSocket
from godwit.brokers.sqlite.portions import Maintained, Stage
from godwit.brokers.sqlite.side_ports import SqliteBrokerJournal, SqliteDeadLetters, SqliteShared
from godwit.brokers.sqlite.stats import stats
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, BrokerUnavailable, InvalidSetting
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope
from godwit.core.names import AckId, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.urls import sqlite_file
from godwit.sqlite_writer.call import Step
from godwit.sqlite_writer.location import check_location
from godwit.sqlite_writer.writer import SqliteWriter

T = TypeVar("T")
BUSY: Final = 50
BRIEF: Final = 200
"""Messages up to which a pull or a settlement is short enough to be carried out on the event loop's own thread."""
RECOUNT_SECONDS: Final = 600.0
"""How often the counters of all groups are compared with what is stored; readers and writers go on meanwhile."""
MAINTAIN_SECONDS: Final = 10.0
"""How long a call may look after groups and dead letters, so that what is past its time is forgotten in any case."""


class SqliteBroker:
    """A broker in one file, for any number of processes on one machine.

    A publish is on the disk when it returns. A broker belongs to the process and the event loop it was opened in:
    after a fork, a child may open one that was only made before; of one that was open it needs another.
    """

    app_version: str | None = None
    partial_promises: frozenset[str] = frozenset()
    care_is_shared = True
    publishes_at_once = 1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        busy_timeout: timedelta = timedelta(seconds=30),
        max_pages: int | None = None,
    ) -> None:
        if not str(path):
            raise InvalidSetting("path", path, "the name of a file, such as godwit.db")
        self._path = Path(path).absolute()
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._max_pages = max_pages
        self._pid = os.getpid()
        self._closed = False
        self._opening = asyncio.Lock()
        self._writer: SqliteWriter | None = None
        self._recount_at = 0.0
        self.dead_letters = SqliteDeadLetters(self)
        self.journal = SqliteBrokerJournal(self)
        self.shared = SqliteShared(self)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = SYSTEM_CLOCK) -> Self:
        """Return a broker on `sqlite:///relative.db` or `sqlite:////absolute/path.db`."""
        return cls(sqlite_file(url), clock=clock)

    @property
    def clock(self) -> Clock:
        """What tells the time here."""
        return self._clock

    # Opening and closing

    async def __aenter__(self) -> Self:
        """Open the file, creating it when it is missing."""
        await self._opened()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the broker."""
        await self.close()

    async def _opened(self) -> SqliteWriter:
        """Return the writer, opening the file at the first call."""
        if self._closed:
            raise BrokerClosed(f"The SQLite broker on {self._path}")
        if os.getpid() != self._pid and self._writer is None:
            # Made before a fork, and not opened there: a server makes its application first and its workers then.
            self._pid, self._opening = os.getpid(), asyncio.Lock()
        if os.getpid() != self._pid:
            raise BrokerUnavailable(
                f"sqlite:///{self._path}",
                f"it was opened in process {self._pid} and this is process {os.getpid()}",
                "Open a broker of its own in each process, after the fork.",
            )
        async with self._opening:
            if self._writer is None:
                self._writer = await self._open()
        return self._writer

    async def _open(self) -> SqliteWriter:
        check_location(self._path)
        self._loop = asyncio.get_running_loop()
        writer: SqliteWriter | None = None
        try:
            owner = owner_of(
                self._path,
                self._clock,
                busy_seconds=self._busy_timeout.total_seconds(),
                max_pages=self._max_pages,
                ready=self._committed,
            )
            writer = SqliteWriter(self._path, owner, self._loop)
            await writer.open()
            self._wake_socket = WakeSocket(Path(f"{self._path}.wake"))
            self._glances = open_reader(self._path)
            self._listeners = SqliteListeners(self._glances, self._clock, self._loop)
            self._reader = open_reader(self._path)
            self._reader_runs = Runs(self._reader)
            self._readers = ThreadPoolExecutor(1, thread_name_prefix="godwit-sqlite-reader")
        except BaseException as error:
            if writer is not None:
                await writer.close()
            if isinstance(error, OSError):
                raise self._unwritable(error) from error
            raise
        return writer

    def _unwritable(self, error: OSError) -> BrokerUnavailable:
        remedy = "The directory must be writable: SQLite keeps files beside the database."
        return BrokerUnavailable(f"sqlite:///{self._path}", error.strerror or str(error), remedy)

    async def close(self) -> None:
        """End all waiting, finish what is queued, close the file."""
        if self._closed:
            return
        self._closed = True
        writer = self._writer
        if writer is None or os.getpid() != self._pid:
            return
        self._listeners.close()
        try:
            await writer.close()
        finally:
            self._wake_socket.close(self._loop)
            closed = self._readers.submit(self._reader.close)  # behind the reads that are under way
            self._readers.shutdown(wait=False)
            await asyncio.wrap_future(closed)

    def _committed(self, ready: set[str]) -> None:
        """Wake those who wait, here and elsewhere; called on the thread that carried out the step."""
        if ready and not self._closed:
            self._wake_socket.ring(ready)
            if self._listeners.any_there:
                self._loop.call_soon_threadsafe(self._heard, ready)

    def _heard(self, names: set[str]) -> None:
        if not self._closed:
            self._listeners.news(names)

    # Ways in for this class and its side ports

    async def write(self, name: str, step: Step, *, durable: bool = False) -> Any:
        """Carry out a step that changes something; return after its commit."""
        writer = self._writer
        if writer is None or self._closed or os.getpid() != self._pid:
            writer = await self._opened()
        return await writer.submit(name, step, durable=durable)

    async def read(self, step: Callable[[SqliteStep], T]) -> T:
        """Carry out a step that changes nothing, in one read transaction."""
        await self._opened()
        return await self._loop.run_in_executor(self._readers, self._read, step)

    def _read(self, step: Callable[[SqliteStep], T]) -> T:
        try:
            self._reader.execute("BEGIN")
            try:
                return step(SqliteStep(self._reader, self._reader_runs, self._clock, {}))
            finally:
                self._reader.execute("COMMIT")
        except sqlite3.Error as error:
            raise translated(error, self._path, "a read") from error

    async def glance(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Carry out a step that reads a page or two: the way to another thread and back would cost more."""
        await self._opened()
        try:
            return step(self._glances)
        except sqlite3.Error as error:
            raise translated(error, self._path, "a read") from error

    # The port

    async def declare(self, queue: QueueSpec, groups: Sequence[GroupSpec] = ()) -> None:
        """Create a queue and groups, or change their settings."""
        await self.write("declare", lambda engine: engine.declare(queue, groups), durable=True)

    async def remove(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> None:
        """Remove a queue, or one group, with all it holds; pulls waiting there end with an error."""
        check_actor(actor)
        await self.write("remove", lambda engine: engine.remove(queue, group, actor=actor))

    async def purge(self, queue: QueueName, group: GroupName | None = None, *, actor: str | None = None) -> int:
        """Delete everything that waits."""
        check_actor(actor)
        return int(await self.write("purge", lambda engine: engine.purge(queue, group, actor=actor)))

    async def note_hold(
        self, event: Event, queue: QueueName, group: GroupName | None = None, *, hold: bytes | None, actor: str | None
    ) -> None:
        """Write down that a queue or a group was paused, is draining or was resumed."""
        check_hold(event, hold)
        check_actor(actor)
        await self.write("hold", lambda engine: engine.note_hold(event, queue, group, hold, actor))

    async def publish(self, envelopes: Sequence[Envelope], *, min_replicas: int | None = None) -> list[Receipt]:
        """Store messages for every group; they are on the disk when this returns."""
        no_replicas(min_replicas)
        receipts: list[Receipt]
        writer = await self._opened()
        # A few messages wait for the disk most of the time, many keep the processor busy.
        carry_out = writer.brief if BUSY <= len(envelopes) <= BRIEF else writer.submit
        version = self.app_version
        receipts, stopped = await carry_out("publish", lambda engine: engine.publish(envelopes, version), durable=True)
        if stopped is not None:
            raise stopped
        return receipts

    async def pull(
        self,
        queue: QueueName,
        group: GroupName,
        *,
        worker: str,
        limit: int,
        lease: timedelta,
        wait: timedelta = NO_WAIT,
        max_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to `limit` messages; empty after `wait` when there are none."""
        wait = check_pull(limit, wait, max_bytes, worker)
        length_ms = lease_ms(lease)

        def step(engine: SqliteEngine, *, briefly: bool = False) -> list[Delivery] | None:
            return engine.pull(
                queue,
                group,
                worker=worker,
                limit=limit,
                lease_ms=length_ms,
                max_bytes=max_bytes,
                briefly=briefly,
                app_version=self.app_version,
            )

        writer = await self._opened()
        found: list[Delivery] | None = None
        if limit <= BRIEF:
            found = await writer.brief("pull", partial(step, briefly=True), lost=self._hand_back)
        if found is None:
            found = await writer.carry_out("pull", step, lost=self._hand_back)
        if not found and wait:
            found = await self._pull_later(writer, step, (queue, group), wait)
        if found:
            self._listeners.check((queue, group))  # what is left behind is for others who wait
        return found

    async def _pull_later(self, writer: SqliteWriter, step: Step, place: Place, wait: timedelta) -> list[Delivery]:
        """Pull whenever something may be ready, until there is something or the time is up."""
        until = self._loop.time() + wait.total_seconds()
        listener = self.listen([place])
        try:
            while (left := until - self._loop.time()) > 0:
                await listener.wait(timedelta(seconds=left))
                listener.clear()
                found: list[Delivery] = await writer.carry_out("pull", step, lost=self._hand_back)
                if found:
                    return found
        finally:
            listener.close()
        return []

    def listen(self, places: Sequence[Place]) -> LoopListener:
        """Return a listener for these places; the broker must be open."""
        if self._writer is None or self._closed:
            raise BrokerClosed(f"The SQLite broker on {self._path}")
        try:
            self._wake_socket.listen(self._loop, self._heard)
        except OSError as error:
            raise self._unwritable(error) from error
        return self._listeners.listen(places)

    def _hand_back(self, deliveries: list[Delivery] | None) -> None:
        if deliveries and self._writer is not None:
            words = [HandBack(delivery.ack_id) for delivery in deliveries]
            self._writer.submit("hand_back", lambda engine: engine.settle(words))

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids that were not, or no longer, valid."""
        settlements = checked_settlements(settlements)
        writer = await self._opened()
        carry_out = writer.brief if len(settlements) <= BRIEF else writer.submit
        refused: list[AckId] = await carry_out("settle", lambda engine: engine.settle(settlements))
        return refused

    async def extend(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Let leases end `lease` from now."""
        length_ms = lease_ms(lease)
        refused: list[AckId] = await self.write("extend", lambda engine: engine.extend(ack_ids, length_ms))
        return refused

    def extend_now(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
        """Extend from any thread, also while the event loop is busy."""
        length_ms = lease_ms(lease)
        writer = self._writer
        if writer is None or self._closed:
            raise BrokerClosed(f"The SQLite broker on {self._path}")
        refused: list[AckId] = writer.thread.do("extend", lambda engine: engine.extend(ack_ids, length_ms))
        return refused

    async def cancel(self, queue: QueueName, message_id: MessageId, *, actor: str | None = None) -> bool:
        """Delete a message wherever it waits."""
        check_actor(actor)
        return bool(await self.write("cancel", lambda engine: engine.cancel(queue, message_id, actor=actor)))

    async def maintain(self) -> int:
        """Do what time asks for, in portions; what is not done in time is left to the next call."""
        place = Maintained(until_ms=self._clock.now_ms())
        began = asyncio.get_running_loop().time()
        while place.stage is not Stage.DONE:
            step = partial(SqliteEngine.maintain, place=place)
            place = await self.write("maintain", step)
            spent = asyncio.get_running_loop().time() - began
            if spent > MAINTAIN_SECONDS and place.stage in (Stage.GROUPS, Stage.DEAD_LETTERS):
                place = replace(place, stage=Stage.PAST, done=(0, 0))
            elif spent > 2 * MAINTAIN_SECONDS:
                break
        if began >= self._recount_at:
            self._recount_at = began + RECOUNT_SECONDS
            for queue, group, _ in await self.read(disagreements):
                await self.write("mend", partial(SqliteEngine.mend, name=queue, group=group))
        return place.changes

    async def stats(self) -> list[QueueStats]:
        """Say how much every queue holds."""
        return await self.read(stats)
