"""Transactions: several calls in each, one call's error undone without the others."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from godwit.brokers.sqlite.engine import SqliteEngine
from godwit.brokers.sqlite.writer.calls import WriterCall
from godwit.brokers.sqlite.writer.connection import translated
from godwit.brokers.sqlite.writer.write_ahead_log import WriteAheadLog
from godwit.core.errors import BrokerBusy, BrokerError, BrokerUnavailable, StorageFull
from godwit.core.fault_points import fault_point


class Transactions:
    """Carries out calls on one connection; whoever calls this holds the file lock."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        engine: SqliteEngine,
        log: WriteAheadLog,
        *,
        busy_seconds: float,
    ) -> None:
        self._path = path
        self._connection = connection
        self._engine = engine
        self._log = log
        self._busy_seconds = busy_seconds

    def carry_out(self, calls: list[WriterCall]) -> None:
        """Carry out what is still wanted; each call has its result or its error afterwards."""
        wanted = [call for call in calls if call.is_wanted]
        for call in calls:
            if call not in wanted:
                call.error = BrokerBusy(call.name, self._busy_seconds)
        if wanted and not self._transaction(wanted):
            # The transaction as a whole was lost; alone, each shows whether it was the one.
            for call in wanted:
                call.result, call.error = None, None
                self._transaction([call])
        if any(isinstance(call.error, StorageFull) for call in wanted):
            self._log.disk_was_full()

    def _transaction(self, calls: list[WriterCall]) -> bool:
        """Carry out calls in one transaction; False when several were lost together and are to be tried alone."""
        execute = self._connection.execute
        alone = len(calls) == 1
        try:
            execute("BEGIN IMMEDIATE")
            for call in calls:
                self._call(call, alone=alone)
                if not self._connection.in_transaction:  # SQLite rolls back by itself when the disk is full
                    break
            fault_point("sqlite.before_commit")
            if alone and calls[0].error is not None:
                self._roll_back()
                return True
            if not self._connection.in_transaction:
                self._engine.rolled_back()
                return alone
            execute("COMMIT")
            fault_point("sqlite.after_commit")
        except Exception as error:  # noqa: BLE001
            self._roll_back()
            if not alone:
                return False
            calls[0].error = translated(error, self._path, calls[0].name) if isinstance(error, sqlite3.Error) else error
        return True

    def _call(self, call: WriterCall, *, alone: bool) -> None:
        execute = self._connection.execute
        if not alone:
            execute("SAVEPOINT call")
        try:
            call.result = call.step(self._engine)
            fault_point(f"sqlite.{call.name}")
        except Exception as error:  # noqa: BLE001
            call.error = translated(error, self._path, call.name) if isinstance(error, sqlite3.Error) else error
            self._engine.rolled_back()
            if not alone and self._connection.in_transaction:
                execute("ROLLBACK TO call")
        if not alone and self._connection.in_transaction:
            execute("RELEASE call")

    def _roll_back(self) -> None:
        self._engine.rolled_back()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def write_through(self, calls: list[WriterCall]) -> None:
        """Return when what durable calls have changed is on the disk; needs no lock, and should be called without."""
        durable = [call for call in calls if call.durable and call.error is None]
        if not durable:
            return
        try:
            self._log.write_through()
            fault_point("sqlite.after_disk")
        except OSError as error:
            for call in durable:
                call.error = self._not_on_disk(error)

    def _not_on_disk(self, error: OSError) -> BrokerError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(str(self._path))
        remedy = "Check the disk. What was published may be there or not; publishing it again is safe."
        return BrokerUnavailable(f"sqlite:///{self._path}", error.strerror or str(error), remedy)
