"""From the journal to the state tables, with the position in the same transaction.

Modules:

    recorder       reads the journal of every queue and records it
    single_shard   records one shard around what cannot be read or stored
    pace           how far a recorder is behind, and how it shares the machine
    resync         starts over from a list of what the broker holds
    census         pauses and heartbeats, which the journal does not tell, written to the tables
"""
