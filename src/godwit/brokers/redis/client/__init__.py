"""Connections to Redis servers, and calls that outlast failovers.

Modules:

    topology         which server has a key: slots of a cluster, the master that sentinels name
    connection       one connection: commands out, replies in, in order
    pool             connections for calls: bounded, with a bounded wait
    discovery        asks all sentinels or nodes at once where things are; the newest answer counts
    routes           one round of a call to the servers that have the keys, along with redirections
    client           calls to the server of a key: failovers, patience while it is away
    command_batch    commands that belong together, and the replies that have come
    errors           from the server's errors to those of this library
    script_runner    what the parts of the broker need of the server
    scripts          puts the Lua scripts together from their parts
"""
