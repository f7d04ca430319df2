"""From an application's message to the broker.

Modules:

    producer    the producer: prepares and publishes, until it is closed
    prepare     from an application's message to an envelope: kind, metadata, route, transform, schema
    batcher     one round trip for concurrent callers, each with the outcome of its own message
    publisher   from envelopes to the broker: round trips that are tried again, and counted
    drains      which queues take no messages at the moment
    stats       what a producer did, its rate, and where other processes read it
"""
