"""The in-memory broker: a synchronous engine and a thin async shell over it.

Modules:

    engine         the reference engine: every promise on plain structures, synchronous
    queue          a queue in memory: groups, dedup window, the publish step
    group          one group's copies and the places they wait in
    maintain       looking after a group: due leases, expiry, due delays, outages
    pull           taking ready copies in delivery order
    leases         what a pull and an extension do to copies
    settle         what a worker's word does to copies
    dead_letters   dead letters: paging, replay, discard, feeding
    journal        the journal of one queue in memory
    saved_state    what a memory broker still holds when it is closed: saved to a file, taken in at the next start
    stats          a group seen from outside: its copies, state and numbers
    listen         waiting for something to pull, without a lost wake-up
    broker         the async shell: waiting, and nothing else
"""

from godwit.brokers.memory.broker import MemoryBroker
from godwit.brokers.memory.engine import MemoryEngine

__all__ = ["MemoryBroker", "MemoryEngine"]
