"""What is declared on the server, and how a copy travels there.

Modules:

    topology       what is declared on the server: names, arguments, and a refusal explained
    declarations   declaring on the server, and all again after an outage
    delays         delays without a plugin: binary levels of hold queues
    message        a copy as RabbitMQ carries it: the body as it is, the rest in one header
"""
