"""What a manager does with its store besides scheduling.

Modules:

    services   the store's services of an open manager: recording, status, effects, outbox
    status     where a message stands: what is recorded, and what the journal tells beyond it
    once       effects that happen once: a key is claimed, the effect made, the key remembered
    outbox     messages written in an application's own transaction, forwarded once it is committed
    sync_effects   once and outbox for synchronous programs, in the thread that calls
"""
