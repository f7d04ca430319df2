"""Bugs planted in what applications meet first: connections of their own, Django, reports and notebooks."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

_CONNECTIONS: Final = "tests/store/effects/test_application_connections.py"
TOGETHER: Final = f"{_CONNECTIONS}::test_message_key_and_the_applications_row_are_kept_or_lost_together"
REFUSED: Final = f"{_CONNECTIONS}::test_connections_that_commit_each_statement_are_refused"
TRANSLATED: Final = f"{_CONNECTIONS}::test_errors_of_psycopg_become_those_of_the_store"
THREADS: Final = f"{_CONNECTIONS}::test_a_handlers_thread_uses_the_outbox_of_the_open_manager_inside_a_transaction"

MUTANTS: Final = (
    Mutant(
        name="outbox: a psycopg connection that commits each statement is taken",
        file="store/postgres/application.py",
        old="return bool(connection.autocommit) and",
        new="return False and",
        tests=(REFUSED,),
    ),
    Mutant(
        name="outbox: a Django connection outside of atomic() is taken",
        file="store/driver_connections.py",
        old="if not connection.in_atomic_block:",
        new="if connection is None:",
        tests=(REFUSED,),
    ),
    Mutant(
        name="outbox: SQLAlchemy's transaction on asyncpg is not begun",
        file="store/driver_connections.py",
        old="await connection.exec_driver_sql(_IN_USE)",
        new="pass",
        tests=(TOGETHER,),
    ),
    Mutant(
        name="outbox: rows of sqlite3 come as the application wants them",
        file="store/sqlite/application.py",
        old="        cursor = self._connection.cursor(sqlite3.Cursor)\n        cursor.row_factory = None\n",
        new="        cursor = self._connection.cursor(sqlite3.Cursor)\n",
        tests=(TOGETHER,),
    ),
    Mutant(
        name="outbox: errors of psycopg are not translated",
        file="store/postgres/application.py",
        old="        if error.sqlstate is not None:\n",
        new="        if error.sqlstate is None:\n",
        tests=(TRANSLATED,),
    ),
    Mutant(
        name="mq.sync.outbox: refused in a transaction although the manager is open",
        file="runtime/sync_bridge.py",
        old="elif self._manager.opened.loop is None:",
        new="else:",
        tests=(THREADS,),
    ),
)
