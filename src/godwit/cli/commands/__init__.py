"""The commands of `godwit`, one module each; each has a `register` that adds it.

Modules, in the order of the help:

    publish          `godwit publish`: one message, or a file of them
    pull             `godwit pull`: look at messages, or take them
    settle           `godwit ack` and `godwit nack`
    queues           `godwit queues`: depths, once or live
    topology         `godwit declare` and `godwit group`: queues with their groups
    dlq              `godwit dlq`: list, show, replay, discard dead letters; failure patterns
    message          `godwit message`: where one stands; discard one that waits
    control          `godwit pause`, `resume`, `drain` and `purge`
    route            `godwit route`: which queue a message would go to, and why
    worker           `godwit worker`: run an application's consumers
    workers          `godwit workers`: which processes serve which queues
    schedules        `godwit schedule` and `godwit scheduler`: messages that are due later
    db               `godwit db`: the store's schema
    config           `godwit config`: the configuration in force and where each value came from
    backup           `godwit backup`: a copy of a SQLite file in use
    doctor           `godwit doctor`: examine a server and explain what is wrong
"""
