"""What runs: producers, workers, schedulers, recorders, and the manager's helpers.

Modules:

    breaker         a circuit breaker around a named downstream, shared through the broker
    leader          a claim on something that one process does for all
    manual          pulling and settling by hand, for applications that run no worker
    monitoring      what an open manager watches and serves: gauges, alerts, instances, pages
    shared_alerts   alerts of many processes, sent once
    supervisor      starts worker processes, restarts crashed ones and passes signals on
    sync_bridge     synchronous calls, run in an event loop of their own thread
    threads         plain functions called in daemon threads
    troubles        what goes wrong with single queues or shards while the others go on
"""
