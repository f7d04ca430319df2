"""The store in a SQLite file, usually the broker's own.

Modules:

    store         the SQLite store, its parts put together
    file          one file: what the writer must know of it, and a thread that reads
    journal       a journal for brokers that cannot keep one, on one machine
    messages      where each message stands, in the file
    record        batches of the journal into the file, with the position
    application   working inside an application's own SQLite transaction
    ledger        the ledger of effects in a file
    outbox        the outbox in a file
    migrate       applies what is pending when a file is first opened
    pipeline      the state of pipelines in a SQLite file
    many_rows     statements that take many rows of values at once
"""

from godwit.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
