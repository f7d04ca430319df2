"""A worker: the consumers of one process and what keeps them going.

Modules:

    worker          starts and stops what one process runs
    consumer        which function handles which messages, under which rules
    registry        consumers as an application registered them, completed from the configuration
    registration    registers the consumers of an application and makes workers for them
    status          how a worker does: pauses, health checks and watchdog, reported to heartbeats and metrics
    health_checks   health callables of groups
    heartbeat       each worker says that it is alive and how it does
    worker_log      what a worker logs about itself and its peers
    watchdog        a consumer that should pull and does not is started again
    maintenance     maintenance of the broker, done by one process for all
    balance         how the members of a group share its work
    counts          what was delivered and settled, for metrics, heartbeats and breakers
    shutdown        a gentle stop first, an immediate one at the second call
"""
