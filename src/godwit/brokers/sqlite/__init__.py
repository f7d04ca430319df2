"""The broker in one SQLite file: durable, for several processes on one machine, without a server.

Modules:

    broker         the async shell: a thread writes, a read-only connection reads, pulls may wait
    side_ports     its side ports: dead letters, journal, shared values
    engine         every step of the contract on one connection, synchronous
    declare        declaring and removing queues and groups
    publish        a chunk becomes runs, ids, copies and journal chunks, or nothing
    maintain       what the broker does by itself as time passes
    portions       maintenance of all queues in short steps, between which others write
    pull           takes copies in order and leases them
    settle         what a worker's word does: ack, retry, give up, hand back, extend
    removal        cancel, purge, and what a removed group held
    dead_letters   dead letters: page, replay, discard, feed
    journal        reading and trimming the journal, readers' positions
    shared         small shared values with versions and ttls
    stats          what can be read without changing anything: stats, snapshots, outlook
    backup         a consistent copy of a live file
"""

from godwit.brokers.sqlite.backup import backup
from godwit.brokers.sqlite.broker import SqliteBroker

__all__ = ["SqliteBroker", "backup"]
