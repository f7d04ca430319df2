"""What RabbitMQ cannot keep, in one SQLite file for all processes of a machine.

Modules:

    file           the ledger's file: its schema and its errors, for the writer
    log            when the ledger waits for the disk, and for what
    transaction    one step on the ledger: numbers, counters, journal chunks
    declare        declaring, removing, purging and cancelling in the ledger
    publish        what a publish writes: numbers before, arrivals after the confirm
    pull           what a pull writes: delivered, dropped, sent on or buried
    settle         what ends or moves a lease
    dead_letters   dead letters: taken over, listed, replayed, discarded, moved
    queries        journal, shared values and statistics, read and trimmed
"""
