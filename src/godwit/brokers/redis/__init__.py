"""The broker on Redis Streams (Redis 6.2 or newer, Valkey): every step is one Lua script on the server.

Modules:

    broker          the async shell over scripts on a Redis server
    url             what a URL says: one server, nodes of a cluster, sentinels of a master
    pull            leases by script, and the deliveries made of them
    lease_cache     the leases this process got, for rows that need no look-up
    settle          settlements and extensions by queue, 200 to a call
    lost_reply      settlements whose reply was lost, told from those that came too late
    renew           extending leases from any thread, over connections of its own
    inbox           what foreign producers add with XADD becomes messages
    dead_letters    dead letters: page, replay, discard, feed
    journal         reading and trimming the journal, readers' positions
    stats           statistics, and snapshots of all copies
    shared          small shared values with versions and ttls
    recount         counters and indexes that disagree with what is stored are counted anew
    maintain        what time asks for in all queues; what fails in one holds up no other
"""

from godwit.brokers.redis.broker import RedisBroker

__all__ = ["RedisBroker"]
