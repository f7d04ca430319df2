"""The way of a message through a worker: pulled, dispatched, handled, settled.

Modules:

    puller             pulls for one consumer: as much as it has free slots, from its queues in turn
    queue_order        in which order a consumer looks into its queues
    empty_polls        where consumers last looked in vain
    rate_limiter       a declared rate, kept by all workers of a group together
    gate               pauses, rate limits and circuit breakers in front of a pull
    quarantine         gives a message its last chance alone
    dispatch           handlers that have not begun, and the few tasks that begin them
    group_types        which handlers of a group take which types of messages, here and elsewhere
    coroutine_driver   drives a coroutine step by step in a context of its own
    execution          runs a handler over what was delivered, and settles by how it ended
    time_limit         one timer for the time limits of all running handlers
    in_flight          deliveries whose handlers run, until they are settled
    settler            settles in batches: one round trip for all that ended during the last one
    renewer            renews leases from a thread of its own
    tracing            the span of a handler, in the trace that published its message
"""
