"""Transactions: several calls in each, one call's error undone without the others."""

from __future__ import annotations

import sqlite3

from godwit.core.fault_points import fault_point
from godwit.sqlite_writer.call import StepRunner, WriterCall
from godwit.sqlite_writer.errors import ErrorTable, FileTrouble, trouble_of
from godwit.sqlite_writer.write_ahead_log import WriteAheadLog


class Transactions:
    """Carries out calls on one connection; its callers hold the file lock."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        runner: StepRunner,
        log: WriteAheadLog,
        errors: ErrorTable,
        *,
        busy_seconds: float,
        owner: str,
    ) -> None:
        self._connection = connection
        self._runner = runner
        self._log = log
        self._errors = errors
        self._busy_seconds = busy_seconds
        self._owner = owner
        """The first part of the names of fault points."""

    def carry_out(self, calls: list[WriterCall]) -> None:
        """Carry out what is still wanted; each call has its result or its error afterwards."""
        wanted = [call for call in calls if call.is_wanted]
        for call in calls:
            if call not in wanted:
                call.error = self._errors.late(call.name, self._busy_seconds)
        if wanted and not self._transaction(wanted):
            # The transaction as a whole was lost; alone, each shows whether it was the one.
            for call in wanted:
                call.result, call.error = None, None
                self._transaction([call])

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
            fault_point(f"{self._owner}.before_commit")
            if alone and calls[0].error is not None:
                self._roll_back()
                return True
            if not self._connection.in_transaction:
                self._runner.rolled_back()
                return alone
            execute("COMMIT")
            fault_point(f"{self._owner}.after_commit")
        except Exception as error:  # noqa: BLE001
            self._roll_back()
            if not alone:
                return False
            calls[0].error = self._translated(error, calls[0])
        return True

    def _call(self, call: WriterCall, *, alone: bool) -> None:
        execute = self._connection.execute
        if not alone:
            execute("SAVEPOINT call")
        try:
            call.result = self._runner.run(call.step)
            fault_point(f"{self._owner}.{call.name}")
        except Exception as error:  # noqa: BLE001
            call.error = self._translated(error, call)
            self._runner.rolled_back()
            if not alone and self._connection.in_transaction:
                execute("ROLLBACK TO call")
        if not alone and self._connection.in_transaction:
            execute("RELEASE call")

    def _translated(self, error: Exception, call: WriterCall) -> Exception:
        if trouble_of(error) is FileTrouble.FULL:
            self._log.disk_was_full()
        ours = self._errors.translated(error, call.name)
        if ours is not error:
            ours.__cause__ = error
        return ours

    def _roll_back(self) -> None:
        self._runner.rolled_back()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def write_through(self, calls: list[WriterCall]) -> None:
        """Return when what durable calls have changed is on the disk; needs no lock, and should be called without."""
        durable = [call for call in calls if call.durable and call.error is None]
        if not durable:
            return
        try:
            self._log.write_through()
            fault_point(f"{self._owner}.after_disk")
        except OSError as error:
            for call in durable:
                call.error = self._errors.not_on_disk(error, call.name)
