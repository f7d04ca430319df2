"""The store in a PostgreSQL database (15 or later).

Modules:

    store            the PostgreSQL store, its parts put together
    database         a pool that connects at first use, the schema checked once
    day_partitions   days of partitioned tables: made in time, dropped as a whole
    journal          a journal for brokers that cannot keep one; no slow writer is ever skipped
    messages         where each message stands, and how long finished ones are kept
    record           batches of the journal by COPY, with the position, in one transaction
    application      working inside an application's own PostgreSQL transaction
    ledger           the ledger of effects, by the server's clock
    outbox           the outbox, written by applications in their own transactions
    migrate          applies migrations one by one under an advisory lock
    errors           from errors of PostgreSQL and its driver to ours
    pipeline         the state of pipelines in PostgreSQL
"""

from godwit.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
