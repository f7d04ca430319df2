"""The RabbitMQ broker: messages in quorum queues, bookkeeping in a ledger.

Modules:

    broker         the port on a RabbitMQ server, with a ledger for what RabbitMQ cannot keep
    url            where a server is and how to behave there, read from a URL
    publish        numbers messages in the ledger, sends them in windows, notes what was confirmed
    consumer       messages of one group as they come in: fetched, or sent ahead while a pull waits
    listen         pulls that wait are woken by messages that come in and by leases that run out
    declare        queues are declared, emptied and removed, on the server and in the ledger
    pull_wait      waits in a pull until something comes, and ends the pulls whose caller is gone
    pull           takes what came in and sends on what is not to be delivered
    leases         the leases of this process, extended from any thread
    settle         settles deliveries as their workers say
    resend         sends copies anew, safe before the old one goes
    maintain       leases are prolonged after an outage and taken back when they ran out
    dead_letters   dead letter queues: copied into the ledger, fed into declared queues
    side_ports     the side ports: dead letters, journal, shared values
    journal        forwards the journal to a store, in order, at least once
"""

from godwit.brokers.rabbitmq.broker import PARTIAL_PROMISES, RabbitMQBroker
from godwit.brokers.rabbitmq.layout.topology import QueueNames

__all__ = ["PARTIAL_PROMISES", "QueueNames", "RabbitMQBroker"]
